"""Tuned results on disk: shared by processes, mended when damaged, carried to other machines; and
the command.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cubepy.__main__ import main
from cubepy.config import config
from cubepy.errors import CacheWarning, TuneError
from cubepy.tune import Decision, Table, Trial, Work, export_table, import_table, roofline, table
from cubepy.tune.progress import Bar, Lines, Progress, Silent, progress_for
from cubepy.tune.roofline import Peaks
from cubepy.tune.stopwatch import HostStopwatch, stopwatch_for

SCRIPT = """
import sys, time
from dataclasses import dataclass
from typing import NamedTuple
import numpy as np
import cubepy as cb
from cubepy.tune.progress import Bar, Lines, Progress, Silent, progress_for
from cubepy.tune.roofline import Peaks
from cubepy.tune.tuner import Tuner

class Problem(NamedTuple):
    device: str
    n: int

@dataclass(frozen=True)
class Plan:
    pause: int

class Clock:
    seconds = 0.0
    def now(self): return self.seconds
    def time(self, run, count):
        start = self.seconds
        for i in range(count): run(i)
        return (self.seconds - start) / count
    def rest(self, spent): pass

clock = Clock()

class Pausing(cb.tune.TunedRoutine):
    name = "pausing"
    def blueprints(self, problem, properties):
        return [Plan(5), Plan(1)]
    def launch(self, blueprint, problem, args):
        clock.seconds += blueprint.pause * 1e-3
        args[0][...] = 1

class Wait(cb.tune.TunedOp):
    problem = Problem
    def make(self, problem, seed):
        return (np.zeros(problem.n),)

op = Wait("work", [Pausing()])
tuner = Tuner(lambda device: clock, lambda device, watch: Peaks())
chosen = [tuner.choose(op, Problem("cpu", n)).blueprint.pause for n in map(int, sys.argv[1].split(","))]
print(tuner.measured, chosen)
"""


def start(folder: Path, sizes: str, level: str = "quick") -> subprocess.Popen[str]:
    script = folder / "script.py"
    if not script.exists():
        script.write_text(SCRIPT)
    environment = {**os.environ, "CUBEPY_CACHE_DIR": str(folder / "cache"), "CUBEPY_TUNE": level}
    return subprocess.Popen(
        [sys.executable, str(script), sizes],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def answer(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "tune").rglob("work-*.json"))


def test_a_second_process_measures_nothing(tmp_path: Path) -> None:
    assert answer(start(tmp_path, "8,9,16", "none")) == "0 [5, 5, 5]"
    assert answer(start(tmp_path, "8,9,16")) == "2 [1, 1, 1]", "9 and 16 share a key"
    assert answer(start(tmp_path, "8,9,16")) == "0 [1, 1, 1]"
    assert answer(start(tmp_path, "8,9,16", "none")) == "0 [1, 1, 1]"


def test_processes_that_start_together_measure_each_key_once(tmp_path: Path) -> None:
    processes = [start(tmp_path, sizes) for sizes in ("8,64", "64,8", "8,64,512")]
    found = [answer(p) for p in processes]
    assert sum(int(f.split()[0]) for f in found) == 3
    assert all(set(f.split(maxsplit=1)[1]) <= set("[1, ]") for f in found)
    assert len(files(tmp_path)) == 3
    assert not list(tmp_path.rglob(".part-*")), "no temporary file stays behind"


def test_damaged_entries_are_measured_anew(tmp_path: Path) -> None:
    answer(start(tmp_path, "8,64,512"))
    cut, garbled, emptied = files(tmp_path)
    cut.write_text(cut.read_text()[:-20])
    garbled.write_text(garbled.read_text().replace('"samples"', '"sampels"', 1))
    emptied.write_bytes(b"\xff\xfe")
    assert answer(start(tmp_path, "8,64,512", "none")) == "0 [5, 5, 5]"
    assert answer(start(tmp_path, "8,64,512")) == "3 [1, 1, 1]"
    assert answer(start(tmp_path, "8,64,512")) == "0 [1, 1, 1]"


# In this process


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.override(cache_dir=str(tmp_path / "cache"), cache=True, tune="none", progress=True):
        yield tmp_path


def decision(key: str, level: str = "quick") -> Decision:
    trials = [
        Trial("a", "Plan(1)", samples=[2e-3, 1e-3, 3e-3], status="measured"),
        Trial("a", "Plan(2)", reason="why"),
    ]
    return Decision("work", key, {"n": 8}, level, "sum", "a Plan(1)", trials, 1e-3, "samples", 0.5)


def test_a_table_is_exported_and_imported(folder: Path) -> None:
    for key in ("n=8", "n=64"):
        Table("cpu").write(decision(key))
    assert export_table(folder / "tuned.json") == 2
    with config.override(cache_dir=str(folder / "elsewhere")):
        assert import_table(folder / "tuned.json") == 2
        assert {d.key for d in Table("cpu")} == {"n=8", "n=64"}
        assert Table("cpu").read("work", "n=8") == decision("n=8")


def test_an_import_does_not_replace_what_was_measured_more_thoroughly(folder: Path) -> None:
    Table("cpu").write(decision("n=8"))
    export_table(folder / "tuned.json")
    Table("cpu").write(decision("n=8", "full"))
    assert import_table(folder / "tuned.json") == 0
    found = Table("cpu").read("work", "n=8")
    assert found is not None and found.level == "full"


def test_a_table_of_another_device_or_version_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Table("cpu").write(decision("n=8"))
    export_table(folder / "tuned.json")
    with config.override(num_threads=77):
        with pytest.raises(TuneError, match="77 threads"):
            import_table(folder / "tuned.json")
        assert import_table(folder / "tuned.json", any_device=True) == 1
        assert len(list(Table("cpu"))) == 1
    monkeypatch.setattr(table, "version", lambda: "9.9")
    with pytest.raises(TuneError, match=r"this is 9\.9"):
        import_table(folder / "tuned.json")
    assert not list(Table("cpu")), "another version has another folder"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"format": 1, "checksum": "0", "body": {}}',
        b"\x00",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_damaged_export_is_refused(folder: Path, text: bytes) -> None:
    (folder / "bad.json").write_bytes(text)
    with pytest.raises(TuneError, match="damaged"):
        import_table(folder / "bad.json")


def test_a_sealed_text_that_is_no_table_is_refused(folder: Path) -> None:
    (folder / "bad.json").write_text(table.seal({"device": "x"}))
    with pytest.raises(TuneError, match="not an exported table"):
        import_table(folder / "bad.json")
    outer = json.loads(table.seal({}))
    (folder / "bad.json").write_text(json.dumps({**outer, "format": 2}))
    with pytest.raises(TuneError, match="format 2"):
        import_table(folder / "bad.json")


def test_nothing_to_export_is_an_error(folder: Path) -> None:
    with pytest.raises(TuneError, match="nothing is tuned"):
        export_table(folder / "tuned.json")


def test_a_folder_that_cannot_be_written_costs_a_warning(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    with (
        config.override(cache_dir=str(folder / "file" / "cache")),
        pytest.warns(CacheWarning, match="cannot be kept"),
    ):
        Table("cpu").write(decision("n=8"))


def test_without_the_cache_nothing_is_written(folder: Path) -> None:
    with config.override(cache=False):
        Table("cpu").write(decision("n=8"))
    assert not (folder / "cache").exists()


def test_the_host_stopwatch_counts_every_run() -> None:
    watch = stopwatch_for("cpu")
    assert isinstance(watch, HostStopwatch)
    seen: list[int] = []
    assert watch.time(seen.append, 3) >= 0 and seen == [0, 1, 2]
    assert watch.now() <= watch.now()


def test_the_best_limits_of_all_processes_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for found, kept in (
        (Peaks(3.0, {"f32": 5.0}), Peaks(3.0, {"f32": 5.0})),
        (Peaks(4.0, {"f32": 1.0}), Peaks(4.0, {"f32": 5.0})),
    ):
        monkeypatch.setattr(roofline, "measure_peaks", lambda device, watch, found=found: found)
        monkeypatch.setattr(roofline, "_measured", {})
        assert roofline.peaks_of("cpu", HostStopwatch()) == kept
        assert roofline.peaks_of("cpu", HostStopwatch()) is roofline.peaks_of(
            "cpu", HostStopwatch()
        )
    (Table("cpu").folder / "peaks.json").write_text("{")
    monkeypatch.setattr(roofline, "_measured", {})
    assert roofline.peaks_of("cpu", HostStopwatch()) == Peaks(4.0, {"f32": 1.0}), (
        "a damaged file counts as absent"
    )


def test_the_bound_of_some_work_is_the_slower_of_memory_and_arithmetic() -> None:
    peaks = Peaks(10.0, {"f32": 100.0})
    assert peaks.bound(Work(20, 100)) == 2.0 and peaks.bound(Work(20, 400)) == 4.0
    assert peaks.bound(Work(20, 400, "i8")) == 2.0, "a dtype without a known limit"
    assert Peaks().bound(Work(20, 400)) == 0.0


class Terminal(io.StringIO):
    """A stream that a person watches."""

    def isatty(self) -> bool:
        return True


def shown(progress: Progress) -> None:
    for _ in range(2):
        progress.start("matmul m=8", 2)
        progress.step("tile Plan(1)")
        progress.step("tile Plan(2)")
        progress.finish("tile Plan(2), 3.0 us")


def test_progress_without_rich_is_a_line_for_each_race() -> None:
    plain, terminal = io.StringIO(), Terminal()
    shown(Lines(plain))
    assert plain.getvalue().count("\n") == 2
    assert plain.getvalue().startswith("matmul m=8: 2 candidates ... tile Plan(2), 3.0 us (")
    shown(Lines(terminal))
    assert "[2/2] tile Plan(2)" in terminal.getvalue() and terminal.getvalue().count("\n") == 2


def test_progress_goes_to_what_is_standard_error_when_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", first)
    progress = progress_for()
    first.close()
    monkeypatch.setattr(sys, "stderr", second)
    shown(progress)
    assert second.getvalue().count("\n") == 2
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(progress_for(), Silent)


def test_progress_with_rich_is_a_bar() -> None:
    pytest.importorskip("rich")
    terminal = Terminal()
    bar = progress_for(terminal)
    assert isinstance(bar, Bar)
    shown(bar)
    assert terminal.getvalue().count("matmul") >= 2


def test_progress_suits_the_stream_and_the_settings(folder: Path) -> None:
    assert isinstance(progress_for(io.StringIO()), Lines)
    assert isinstance(progress_for(Terminal()), (Bar, Lines))
    with config.override(progress=False):
        assert isinstance(progress_for(Terminal()), Silent)


# The command


def test_the_command_tunes_lists_exports_imports_and_clears(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = ["matmul", "--problem", "m=8,k=8,n=8", "--level", "quick"]
    assert main(["tune", *problem]) == 0
    out, err = capsys.readouterr()
    assert "matmul m=8 k=8 n=8" in out and " * " in out and "candidates ..." in err
    assert main(["tune", *problem]) == 0
    assert ": known" in capsys.readouterr().err
    assert main(["tune", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) == 1 and all("samples" in t for t in listed[0]["trials"])
    tuned = str(folder / "tuned.json")
    assert main(["tune", "--export", tuned]) == 0
    assert main(["tune", "matmul", "--clear"]) == 0
    assert "1 results forgotten" in capsys.readouterr().out
    assert main(["tune", "--import", tuned]) == 0
    assert "1 results taken" in capsys.readouterr().out
    assert len(list(Table("cpu"))) == 1


def test_the_command_tunes_what_a_program_uses(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = folder / "program.py"
    (folder / "beside_the_program.py").write_text(
        "import numpy as np\nx = np.ones((8, 16), np.float32)\n"
    )
    program.write_text(
        "import cubepy as cb\nfrom beside_the_program import x\ncb.kernels.matmul(x, x.T.copy())\nraise SystemExit(0)\n"
    )
    assert main(["tune", str(program), "--level", "quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(d["op"], d["problem"]["m"], d["problem"]["k"], d["problem"]["n"]) for d in found] == [
        ("matmul", 8, 16, 8)
    ]


def test_the_command_tunes_the_linear_layers_of_a_model_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cubepy.nn import save_safetensors

    save_safetensors(
        {"a.weight": np.ones((4, 8), np.float32), "a.bias": np.ones(4, np.float32)},
        folder / "m.safetensors",
    )
    assert (
        main(["tune", str(folder / "m.safetensors"), "--rows", "2", "--level", "quick", "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert [d["problem"]["k"] for d in found] == [8] and found[0]["problem"]["n"] == 4


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "nothing to tune"),
        (["matmull"], "no operation 'matmull'"),
        (["matmul", "--problem", "m=8,q=8"], "no 'q=8'"),
        (["matmul", "--problem", "m=x"], "not a whole number"),
        (["matmul", "--problem", "m=0,k=1,n=1"], "m must be at least 1"),
        (["matmul", "--problem", "m=1"], "needs k, n too"),
        (["matmul", "--problem", "m=1,k=1,n=1,layout=round"], "layout cannot be 'round'"),
        (["matmul", "--problem", "m=1,k=1,n=1,tf32=often"], "tf32 cannot be 'often'"),
        (["matmul", "--problem", "m=99999999999,k=99999999,n=5"], "cannot be made"),
        (["none.py"], "no file none.py"),
        (["none.safetensors"], "none.safetensors"),
        (["--import", "none.json"], "none.json"),
        (["--device", "tpu", "matmul"], "no device 'tpu'"),
    ],
)
def test_wrong_requests_are_errors_without_traceback(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_model_file_without_matrices_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cubepy.nn import save_safetensors

    save_safetensors({"a.bias": np.ones(4, np.float32)}, folder / "m.safetensors")
    assert main(["tune", str(folder / "m.safetensors")]) == 2
    assert "holds no matrix" in capsys.readouterr().err


@pytest.mark.parametrize(
    "where", ["op", "key", "level", "checksum", "winner", "trials", "bound", "stopped", "spent"]
)
@pytest.mark.parametrize("value", [None, [None], {}])
def test_entries_of_other_types_count_as_damaged(where: str, value: object) -> None:
    whole = Decision(
        "work", "n=8", {}, "full", "c", "a 1", [Trial("a", "1", samples=[1.0])]
    ).as_dict()
    assert Decision.from_dict(whole).winner == "a 1"
    with pytest.raises(TuneError, match="is damaged"):
        Decision.from_dict({**whole, where: value})


@pytest.mark.parametrize("where", ["routine", "blueprint", "status", "reason", "samples", "first"])
def test_trials_of_other_types_count_as_damaged(where: str) -> None:
    trials = [Trial("a", "1", samples=[1.0]), Trial("b", "2")]
    whole = Decision("work", "n=8", {}, "full", "c", "a 1", trials).as_dict()
    whole["trials"][1][where] = None
    with pytest.raises(TuneError, match="is damaged"):
        Decision.from_dict(whole)
