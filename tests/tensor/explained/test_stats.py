"""`cb.stats`: what was traced, planned, called and run."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.runtime.stats import counters
from cubepy.tensor import Tensor


def some(*shape: int) -> Tensor:
    return cb.tensor(np.ones(shape, np.float32))


def since(before: dict[str, int]) -> dict[str, int]:
    return {k: v - before[k] for k, v in dict(cb.stats()).items() if k in COUNTED}


COUNTED = ("ops", "traces", "retraces", "plans", "calls")


def test_programs_are_counted() -> None:
    f = cb.jit(lambda x: (x.exp() + x).sum(axis=0))
    x = some(4, 4)
    before = dict(cb.stats())
    f(x)
    ran = since(before)
    assert (ran["traces"], ran["retraces"], ran["calls"]) == (1, 0, 1)
    assert ran["ops"] == 2  # nothing is computed while tracing, and two of three ops are one step
    for _ in range(20):
        f(x)
        if since(before)["plans"]:
            break
    (program,) = f.explain().programs
    ran = since(before)
    assert ran["plans"] == 1
    assert dict(cb.stats())["arena"] - before["arena"] == program.arena
    before = dict(cb.stats())
    for _ in range(5):
        f(x)
    assert since(before) == {"ops": 0, "traces": 0, "retraces": 0, "plans": 0, "calls": 5}
    assert cb.stats().launches - before["launches"] == 5 * program.launches
    f(some(5, 4))
    assert since(before)["traces"] == since(before)["retraces"] == 1


def test_repeated_ops_are_launches_alone() -> None:
    x = some(7, 3)
    before = dict(cb.stats())
    for _ in range(30):
        x.exp()
    ran = since(before)
    assert 1 <= ran["ops"] < 30
    assert cb.stats().launches - before["launches"] == 30


def test_a_snapshot_is_a_dict_and_can_begin_anew() -> None:
    kept = dict(counters)
    try:
        some(3).exp()
        found = cb.stats(reset=True)
        assert found.ops >= 1 and found["ops"] == dict(found)["ops"]
        assert cb.stats().ops == 0 and cb.stats().pool_peak == found.pool_peak
        assert f"ops {found.ops:,}" in " ".join(str(found).split())
        with pytest.raises(KeyError):
            found["reset"]
    finally:
        for name, value in kept.items():
            setattr(counters, name, value)


def test_the_pool_is_the_current_devices() -> None:
    held = cb.tensor(np.ones(1 << 20, np.float32)) + 1
    assert cb.stats().pool_in_use == cb.memory_stats().in_use >= held.nbytes
