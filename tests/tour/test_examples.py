"""The small examples run and agree with NumPy (each checks itself)."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    """The folder holds the examples that the docs name."""
    assert {"axpy", "reduction", "histogram", "mandelbrot", "softmax", "struct_complex"} <= {
        p.stem for p in EXAMPLES
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example, run as a script, passes its own check and needs nothing from the working
    directory.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
