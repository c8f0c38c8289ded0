"""`python -m cubepy check`: what it finds, and what it says when a GPU ends the process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.__main__ import main
from cubepy.check import command, worker
from cubepy.check.case import Case, difference, results
from cubepy.errors import DeviceError


def test_an_emulated_gpu_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    only = "^(axpy|planes|atomics|sum|matmul of one row|speed)$"
    given = ["check", "hip", "--emulate", "gfx942", "--only", only, "--report", str(file)]
    assert main(given) == 0
    assert "6 of 6 cases passed" in capsys.readouterr().out
    report = json.loads(file.read_text())
    assert report["emulated"] == "gfx942" and report["versions"]["numpy"] == np.__version__
    assert report["device"]["processor"].startswith("gfx942:")
    assert [r["status"] for r in report["results"]] == ["passed"] * 6
    assert report["results"][-1]["measured"]["launch, us"] > 0


def test_every_case_passes_on_the_cpu() -> None:
    """The cases themselves are right: the CPU's backend gives what the python backend gives."""
    for group in worker.GROUPS.values():
        for case in group:
            assert not difference(case, results(case, "cpu"), results(case, "python")), case.name


def test_wrong_results_are_found() -> None:
    case = Case("one", lambda put: put(np.ones(3, np.float32)), 1e-3)
    right = results(case, "cpu")
    assert difference(case, right, results(case, "python")) == ""
    wrong = [np.array([1, 1.1, 1], np.float32)]
    assert "1 of 3 elements differ, the first at [1]" in difference(case, wrong, right)
    assert "1 of 3" in difference(case, [np.array([1, np.nan, 1], np.float32)], right)
    assert "float64" in difference(case, [right[0].astype(np.float64)], right)
    assert "[2]" in difference(case, [right[0][:2]], right)


def test_a_case_that_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(put: Any) -> Any:
        if str(cb.current_device()) != "python":
            raise DeviceError("a kernel failed", hint="start a new process")
        return np.zeros(1)

    monkeypatch.setattr(worker, "GROUPS", {"some": (Case("bad", raises),)})
    found = worker.done(0, "cpu", True)
    assert found["status"] == "failed" and found["lost"] and "a kernel failed" in found["text"]


def test_another_process_goes_on_where_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[int]] = []

    def ends(device: str, emulate: Any, numbers: list[int]) -> tuple[list[Any], str]:
        given.append(list(numbers))
        lines: list[Any] = [{"device": {"device": device}}]
        for n in numbers:
            lines.append({"begins": n})
            if n == 3:
                break
            lines.append({"number": n, "found": {**command.named(n), "status": "passed"}})
        return lines, "the process ended with the status -6"

    monkeypatch.setattr(command, "one_process", ends)
    report = command.checked("hip", None, [1, 3, 4])
    assert given == [[1, 3, 4], [4]]
    assert [r["status"] for r in report["results"]] == ["passed", "ended", "passed"]
    assert "status -6" in report["results"][1]["detail"]


def test_a_gpu_that_ends_every_process_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        command, "one_process", lambda device, emulate, numbers: ([{"begins": numbers[0]}], "gone")
    )
    found = command.checked("hip", None, list(range(12)))["results"]
    statuses = [r["status"] for r in found]
    assert statuses == ["ended"] * command.PROCESSES + ["not run"] * (12 - command.PROCESSES)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["check", "hip", "--only", "nothing of that name"], "hip"),
        (["check", "cpu", "--only", "nothing of that name"], "the cases are axpy"),
        (["check", "cpu", "--only", "("], "regular expression"),
        (["check", "hip", "--emulate", "gfx000", "--only", "axpy"], "there is one of gfx942"),
        (["check", "quantum"], "quantum"),
    ],
)
def test_what_cannot_be_checked_is_said(
    given: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*given, "--report", str(tmp_path / "report.json")]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "report.json").exists()
