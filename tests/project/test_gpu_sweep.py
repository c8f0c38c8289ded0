"""The sweep of random shapes on a GPU: what it draws and what it counts; nothing is run."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "asv_benchmarks"


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("gpu_sweep")
    yield module
    for name in ("gpu_sweep", "gpu_sweep_families"):
        sys.modules.pop(name, None)


def test_lengths_follow_from_the_seed_and_are_often_odd(sweep: Any) -> None:
    families = sys.modules["gpu_sweep_families"]
    drawn = [[families.length(random.Random(seed), 8192) for seed in range(300)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert min(drawn[0]) >= 1 and max(drawn[0]) <= 8192
    assert 0.2 < sum(n % 2 for n in drawn[0]) / 300 < 0.6
    assert 0.3 < sum(n % 8 == 0 for n in drawn[0]) / 300


def test_nine_in_ten_are_not_below_the_lowest_decile(sweep: Any) -> None:
    assert sweep.lowest_decile([n / 10 for n in range(50, 0, -1)]) == 0.6
    assert sweep.lowest_decile([2.0]) == 2.0


def test_a_row_names_the_slowest_case(sweep: Any) -> None:
    cases = [{"label": f"case {n}", "ratio": 1 + n / 10, "difference": n * 1e-6} for n in range(10)]
    row = sweep.row_of("norms", cases, 7)
    assert row["ratio"] == "1.10" and "1.00 at case 0" in row["peer"] and row["error"] == "9.0e-06"
    assert "10 random shapes, seed 7" in row["work"] and "median 1.45" in row["ours"]


def test_every_family_is_in_the_table(sweep: Any) -> None:
    gpu = importlib.import_module("gpu")
    sys.modules.pop("gpu", None)
    assert "sweep" in gpu.PARTS
    assert {"matmul, bf16", "matmul, f16", "matmul, tf32", "norms", "softmax", "reductions", "elementwise",
            "convolution"} <= set(sweep.families())  # fmt: skip
