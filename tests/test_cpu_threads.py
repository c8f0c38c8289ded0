"""When a launch on the CPU uses several threads."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.cpu import run, threads


@cb.kernel
def collatz(out: cb.Array, start, steps):
    """Much work on few elements: the sum of `steps` steps, for every unit another number."""
    i = cb.ABSOLUTE_POS
    v = cb.u64(start + i)
    total = cb.u64(0)
    for _ in range(steps):
        v = cb.select(v % 2 == 0, v // 2, 3 * v + 1)
        total = total + v
    out[i] = total


def expected(n: int, start: int, steps: int) -> list[int]:
    result = []
    for v in range(start, start + n):
        total = 0
        for _ in range(steps):
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            total += v
        result.append(total)
    return result


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The chunks that were done before threads took over, for each launch that they did."""
    seen: list[int] = []
    share = run.CpuRunner.share

    def counted(self: run.CpuRunner, done: int) -> None:
        seen.append(done)
        share(self, done)

    monkeypatch.setattr(run.CpuRunner, "share", counted)
    monkeypatch.setattr(threads, "threads", lambda: 2)
    return seen


@pytest.mark.parametrize("cubes", [2, 7, 37])
def test_long_work_on_few_elements_goes_on_all_threads(shared: list[int], cubes: int) -> None:
    out = np.zeros(cubes, np.uint64)
    launch = collatz[cubes, 1].bind(out, 27, 2_000_000)
    launch()
    again = out.copy()
    launch()
    assert shared == [1, 0], "the first run begins on one thread, the next one does not"
    assert out.tolist() == again.tolist()
    out[:] = 0
    collatz[cubes, 1](out, 27, 100)
    assert out.tolist() == expected(cubes, 27, 100)


def test_a_launch_that_went_on_all_threads_is_measured_no_more(shared: list[int]) -> None:
    collatz[9, 1](np.zeros(9, np.uint64), 27, 2_000_000)
    runner = list(collatz.launches.local.table.values())[-1].runner
    assert shared == [1] and runner.parallel and not runner.trials, "calls of launches that are measured do not repeat"


def test_short_work_on_few_elements_stays_on_one_thread(shared: list[int]) -> None:
    out = np.zeros(5, np.uint64)
    with cb.config.override(serial_us=10_000_000):
        launch = collatz[5, 1].bind(out, 27, 10)
        for _ in range(run.TRIALS + 2):
            launch()
    assert shared == [] and out.tolist() == expected(5, 27, 10)


def test_zero_never_shares(shared: list[int]) -> None:
    out = np.zeros(4, np.uint64)
    with cb.config.override(serial_us=0):
        collatz[4, 1].bind(out, 27, 2_000_000)()
    assert shared == []
