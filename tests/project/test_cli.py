"""`python -m cubepy`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from cubepy.__main__ import main
from cubepy.config import KNOBS, Knob, config, is_command_line
from cubepy.runtime.device import backend_named


def test_info_as_json_tells_versions_devices_and_settings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["cubepy"] and found["devices"][0]["backend"] == "cpu"
    assert found["settings"]["mode"] in ("checked", "validate", "unchecked")


def test_info_as_text_names_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    assert "folder:" in capsys.readouterr().out


def test_cache_can_be_looked_at_and_cleared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = tmp_path / "code" / "ab" / "abc.bin"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(b"12345")
    with config.override(cache_dir=str(tmp_path)):
        assert main(["cache", "info"]) == 0
        assert "1 kernels, 5 bytes" in capsys.readouterr().out
        assert main(["cache", "clear"]) == 0
        assert "freed 5 bytes" in capsys.readouterr().out
    assert not entry.exists()


def test_run_uses_the_backend_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nimport cubepy as cb\nprint(cb.current_device(), sys.argv[1:])\n")
    with config.override(backend="cpu"):
        assert main(["run", "--backend", "python", str(script), "a", "b"]) == 0
    assert "python ['a', 'b']" in capsys.readouterr().out


def test_a_wrong_backend_is_an_error_without_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--backend", "quantum", str(tmp_path / "x.py")]) == 2
    assert "cannot be 'quantum'" in capsys.readouterr().err


def test_quantizing_a_file_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "quantize",
        str(tmp_path / "none.safetensors"),
        "--scheme",
        "int8",
        "-o",
        str(tmp_path / "out"),
    ]
    assert main(arguments) == 2
    assert "none.safetensors" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_interrupted_command_says_so_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cubepy.tune.command.run", interrupted)
    assert main(["tune", "matmul"]) == 130
    assert capsys.readouterr().err.strip() == "cubepy: interrupted"


def test_a_program_that_is_interrupted_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        main(["run", str(tmp_path / "program.py")])


NO_PROGRAMS = {
    "bytes": b"\x93\x00\xff\x10",
    "latin": b'x = "caf\xe9"\n',
    "syntax": b"def f(:\n",
    "zeros": b"x = 1\x00\n",
}


@pytest.mark.parametrize("command", ["run", "tune", "warm"])
@pytest.mark.parametrize("what", ["missing", "folder", *NO_PROGRAMS])
def test_a_file_that_is_no_program_is_an_error_of_one_line(
    command: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / f"{what}.py"
    if what == "folder":
        program.mkdir()
    elif what != "missing":
        program.write_bytes(NO_PROGRAMS[what])
    assert main([command, str(program)]) == 2
    said, *hint = capsys.readouterr().err.splitlines()
    assert said.startswith("cubepy: ") and str(program) in said
    assert all(line.startswith("  Hint: ") for line in hint)


def test_an_error_of_a_program_is_shown_from_its_own_first_line_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "fails.py"
    program.write_text("def inner():\n    raise ValueError('no good')\n\ninner()\n")
    assert main(["run", str(program)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("Traceback") and said[1] == f'  File "{program}", line 4, in <module>'
    assert said[-1] == "ValueError: no good" and not any("runpy" in line for line in said)


def test_an_error_of_a_program_that_is_tuned_names_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "fails.py"
    program.write_text("x = 1\nraise ValueError('no good')\n")
    assert main(["tune", str(program)]) == 2
    assert f"cubepy: {program} (line 2) raised ValueError: no good" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def worked(*_: object) -> None:
        raise AssertionError("it began")

    monkeypatch.setattr("cubepy.check.command.checked", worked)
    assert main(["check", "python", "--report", str(tmp_path / "none" / "report")]) == 2
    assert "none" in capsys.readouterr().err


COMMANDS = (
    ["info"],
    ["cache", "info"],
    ["look", "x"],
    ["tune"],
    ["check"],
    ["warm"],
    ["quantize", "a", "--scheme", "int8", "-o", "b"],
    ["run", "x.py"],
    ["generate", "x"],
    ["chat", "x"],
    ["--help"],
)


def ended(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """`python -m cubepy` with variables of the environment."""
    return subprocess.run(
        [sys.executable, "-m", "cubepy", *command],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("knob", KNOBS, ids=lambda k: k.name)
def test_a_wrong_variable_is_an_error_of_one_line_or_two(knob: Knob) -> None:
    wrong = "" if knob.name == "cache_dir" else "x" if knob.name != "debug" else "-1"
    rng = random.Random(knob.name)
    for command in rng.sample(COMMANDS, 2):
        done = ended(command, **{knob.variable: wrong})
        lines = done.stderr.splitlines()
        assert done.returncode == 2 and not done.stdout
        assert lines[0].startswith(f"cubepy: the variable {knob.variable} ") and len(lines) <= 2


def test_all_wrong_variables_are_named_and_tracebacks_come_on_demand() -> None:
    wrong = {"CUBEPY_MODE": "fast", "CUBEPY_TUNE": "long"}
    said = ended(["info"], **wrong).stderr
    assert "CUBEPY_MODE" in said and "CUBEPY_TUNE" in said and "Traceback" not in said
    done = ended(["info"], CUBEPY_DEBUG="2", **wrong)
    assert done.returncode == 1 and "Traceback" in done.stderr


@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_what_needs_no_device_runs_without_the_one_that_is_named(backend: str) -> None:
    if backend_named(backend).count():
        pytest.skip(f"there is a device of {backend}")
    assert ended(["info"], CUBEPY_BACKEND=backend).returncode == 0
    done = ended(["generate", "/nowhere", "--prompt", "x"], CUBEPY_BACKEND=backend)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_a_program_sees_the_error_itself() -> None:
    assert is_command_line(["-m"], ["python", "-X", "dev", "-Im", "cubepy", "info"])
    assert is_command_line(["-m"], ["python", "-mcubepy"])
    assert is_command_line(["/bin/cubepy", "info"], ["python", "/bin/cubepy", "info"])
    assert not is_command_line(["-c"], ["python", "-c", "import cubepy"])
    assert not is_command_line(["-m"], ["python", "-m", "pytest", "cubepy"])
    assert not is_command_line(["x.py"], ["python", "x.py", "-m", "cubepy"])
    assert not is_command_line([], [])
