"""Compiling ahead: what was warmed is not compiled at first use."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cubepy import kernels as K
from cubepy import warm
from cubepy.__main__ import main
from cubepy.backends.cpu.compile import versions
from cubepy.backends.cpu.jobs import Job
from cubepy.backends.llvm.processes import workers
from cubepy.config import config
from cubepy.kernels import typical
from cubepy.runtime import cache

OTHERS = {"Generator", "functions", "manual_seed", "views"}
"""Public names that are no functions of arrays."""

SOFTMAX = """
import numpy as np
import cubepy as cb
from cubepy import kernels as K
y = K.softmax(np.ones((5, 700), np.float32))
assert abs(y.sum() - 5) < 1e-4
print(cb.stats().compiled, cb.stats().loaded)
"""
PROGRAM = """
import numpy as np
import cubepy as cb

@cb.kernel
def double(x: cb.Array, out: cb.Array):
    if cb.ABSOLUTE_POS < x.size:
        out[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS] * 2

out = np.zeros(10, np.float32)
double[cb.over(10)](np.ones(10, np.float32), out)
{rest}
"""


def python(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A run of Python with a cache of its own."""
    environment = os.environ | {"CUBEPY_CACHE_DIR": str(folder), "CUBEPY_CACHE": "1"} | more
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_every_function_of_the_library_has_typical_calls() -> None:
    assert set(K.__all__) - OTHERS == set(typical.calls())


def test_a_warm_function_compiles_nothing_at_its_first_call(tmp_path: Path) -> None:
    done = python(tmp_path, "-m", "cubepy", "warm", "K.softmax")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("softmax: ") and done.stderr == ""
    first = python(tmp_path, "-c", SOFTMAX)
    assert first.stdout == "0 1\n", first.stderr


def test_a_program_is_followed_without_running_its_launches(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(rest="print(out.sum(), cb.stats().compiled)"))
    done = python(tmp_path / "cache", "-m", "cubepy", "warm", str(program))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "0.0 0" and "1 kernels compiled" in lines[1]
    assert python(tmp_path / "cache", str(program)).stdout == "20.0 0\n"


def test_a_program_that_needs_its_results_runs_as_it_is(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(rest="assert out.sum() == 20"))
    done = python(tmp_path / "cache", "-m", "cubepy", "warm", str(program))
    assert done.returncode == 0 and "needs its results" in done.stderr
    with config.override(cache_dir=str(tmp_path / "cache")):
        assert cache.usage()[0] == 2  # the kernel, and what shares launches


def test_another_processor_finds_what_was_compiled_for_it(tmp_path: Path) -> None:
    """The other one is this one without its widest registers, as numba can pretend."""
    here = warm.described()
    there = {
        "NUMBA_CPU_NAME": "x86-64" if "+sse2" in here["features"] else "generic",
        "NUMBA_CPU_FEATURES": "+sse2" if "+sse2" in here["features"] else "",
    }
    told = python(tmp_path, "-m", "cubepy", "info", "--json", **there).stdout
    assert json.loads(told)["target"]["cpu"] == there["NUMBA_CPU_NAME"]
    (tmp_path / "there.json").write_text(told)
    target = ("--target", str(tmp_path / "there.json"))
    done = python(tmp_path, "-m", "cubepy", "warm", "K.softmax", *target)
    assert done.returncode == 0, done.stderr
    assert python(tmp_path, "-c", SOFTMAX, **there).stdout == "0 1\n"


@pytest.mark.parametrize("told", ["", "{}", '{"target": {"cpu": 1}}', '{"target": []}'])
def test_a_target_that_says_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: str
) -> None:
    path = tmp_path / "there.json"
    path.write_text(told)
    with config.override(cache=True):
        assert main(["warm", "K.softmax", "--target", str(path)]) == 2
    assert "does not say what to compile for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (["K.softmin"], "no function 'K.softmin'"),
        (["K.sofmax"], "did you mean K.softmax"),
        (["K.softmax", "--target", "gfx9999"], "'gfx9999' is no file, and no architecture"),
        (["missing.py"], "no file missing.py"),
        ([], "nothing to compile"),
    ],
)
def test_what_does_not_exist_is_an_error(
    capsys: pytest.CaptureFixture[str], what: list[str], says: str
) -> None:
    with config.override(cache=True):
        assert main(["warm", *what]) == 2
    assert says in capsys.readouterr().err


def test_nothing_is_compiled_for_a_cache_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").touch()
    with config.override(cache=True, cache_dir=str(tmp_path / "cache")):
        assert main(["warm", "K.softmax"]) == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said and "CUBEPY_CACHE_DIR" in said


def test_an_interrupt_leaves_what_is_said_to_the_process_that_asked(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise KeyboardInterrupt\n")
    order = {"what": [str(program)], "properties": None, "architecture": None, "dtype": "f32"}
    command = [sys.executable, "-m", "cubepy.warm", json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 130 and not done.stderr


JOB = Job(
    "empty",
    "ab" * 32,
    "from cubepy.backends.llvm.ops import *\n\ndef kernel(first, last):\n    pass\n",
    (("first", "i64", ""), ("last", "i64", "")),
    "cubepy_empty",
    (),
    True,
    versions(),
)


def test_jobs_travel_through_a_pipe() -> None:
    assert Job.of_line(JOB.as_line()) == JOB


def test_a_job_that_fails_is_told_and_the_others_are_done(tmp_path: Path) -> None:
    wrong = dataclasses.replace(
        JOB, kernel="wrong", key="cd" * 32, text=JOB.text.replace("pass", "nobody(first)   # long")
    )
    told: list[tuple[str, bool]] = []
    with config.override(cache_dir=str(tmp_path), cache=True):
        failed = workers.compile_all(
            [JOB, wrong], 1, lambda job, why: told.append((job.kernel, bool(why)))
        )
        assert told == [("wrong", True), ("empty", False)]
        assert list(failed) == ["wrong"] and "nobody" in failed["wrong"]
        assert cache.read(JOB.key) and not cache.read(wrong.key)


def test_a_worker_that_dies_is_told_and_replaced(tmp_path: Path) -> None:
    unreadable = (("first", "i64", "", "more"),) * 9
    dying = dataclasses.replace(JOB, kernel="dying", text=JOB.text * 2, parameters=unreadable)
    with config.override(cache_dir=str(tmp_path), cache=True):
        failed = workers.compile_all([JOB, dying], 1, lambda job, why: None)
    assert list(failed) == ["dying"] and "ended with status 1" in failed["dying"]
    assert cache.path_of(JOB.key, ".bin").name in os.listdir(tmp_path / "code" / JOB.key[:2])


def test_a_worker_with_other_versions_refuses(tmp_path: Path) -> None:
    other = dataclasses.replace(JOB, versions="of another LLVM")
    with config.override(cache_dir=str(tmp_path), cache=True):
        failed = workers.compile_all([other], 1, lambda job, why: None)
        assert "of another LLVM" in failed["empty"] and not cache.read(JOB.key)


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("cubepy ")


def test_the_cache_goes_out_and_comes_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = str(tmp_path / "kernels.tar")
    with config.override(cache_dir=str(tmp_path), cache=True):
        cache.write("ab" * 32, b"code")
        assert main(["cache", "export", archive]) == 0
        assert main(["cache", "clear"]) == 0
        assert main(["cache", "import", archive]) == 0
        assert cache.read("ab" * 32) == b"code"
        assert main(["cache", "export"]) == 2
        assert main(["cache", "info", archive]) == 2
        Path(archive).write_bytes(b"other")
        assert main(["cache", "import", archive]) == 2
    assert "kernels.tar" in capsys.readouterr().err
