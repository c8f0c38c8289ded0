"""The sweep of random shapes on a GPU: what it draws and what it counts; nothing is run."""

from __future__ import annotations

import importlib
import random
import sys
import types
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "asv_benchmarks"


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("gpu_sweep")
    yield module
    for name in ("gpu_sweep", "gpu_sweep_families", "gpu_timing"):
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
    cases = [
        {"label": f"case {n}", "ours": 4.0, "ratio": 1 + n / 10, "difference": n * 1e-6}
        for n in range(10)
    ]
    row = sweep.row_of("norms", cases, 7)
    assert row["ratio"] == "1.10" and "1.00 at case 0" in row["peer"] and row["error"] == "9.0e-06"
    assert "10 random shapes, seed 7" in row["work"] and "median 1.45" in row["ours"]
    assert row["ms"] == pytest.approx((4.0, 5.68), abs=0.01)


def test_every_family_is_in_the_table(sweep: Any) -> None:
    gpu = importlib.import_module("gpu")
    sys.modules.pop("gpu", None)
    assert "sweep" in gpu.PARTS
    assert {"matmul, bf16", "matmul, f16", "matmul, tf32", "norms", "softmax", "reductions", "elementwise",
            "convolution"} <= set(sweep.families())  # fmt: skip


def test_runs_are_timed_in_turns_and_medians_count(
    sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing, log, now = sys.modules["gpu_timing"], [], [0.0]

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: Any) -> None:
            self.at = now[0]

        def synchronize(self) -> None:
            log.append("wait")

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    def run(name: str, cost: float) -> Any:
        def call() -> None:
            log.append(name)
            now[0] += cost * (100 if log.count(name) <= 3 else 1)  # the first ones are slow

        return call

    cuda = types.SimpleNamespace(Event=Event, _sleep=lambda cycles: log.append(cycles))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    runs = [run("a", 2.0), run("b", 3.0)]
    assert timing.milliseconds(runs, None, 5, [2, 3], [7, 8]) == [2.0, 3.0]
    assert log[:11] == [7, "a", "a", "wait", 8, "b", "b", "b", "wait", 7, "a"]
    log.clear()
    timing.milliseconds(runs, None, 1, [1, 1])
    assert log == ["a", "a", "wait", "b", "b", "wait"]
    turns = timing.turning(log.append, 2)
    for _ in range(3):
        turns()
    assert log[-3:] == [0, 1, 0] and timing.pause(10, 1e-6) == 3000
