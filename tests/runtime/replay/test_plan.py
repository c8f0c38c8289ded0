"""Plans: one holds any number of launches, variants stand beside each other, and what makes no plan
is not recorded for ever.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import AliasError
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.primitives import functions as f
from cubepy.runtime import recording
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.replay import calls
from cubepy.runtime.replay.arguments import REFUSED
from cubepy.runtime.replay.host import HostOperands
from cubepy.runtime.replay.plan import Plan
from cubepy.runtime.replay.record import Recorder
from cubepy.runtime.stats import counters
from cubepy.tensor.replay import OFTEN
from tests.pretend import NAME, pretend
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="replays of the CPU")
rng = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    recording.forget()


def some(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def model(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two results of several functions of the library."""
    hidden = K.map(f.add, K.matmul(x, weight), bias)
    return K.softmax(K.matmul(hidden, weight)), hidden


def planned(values: tuple[Any, ...], call: Any) -> Plan:
    with Recorder() as recorded:
        result = call(*values)
    return Plan(recorded, result, None, HostOperands(recorded, values, result, None))


def test_the_launches_of_a_whole_model_are_one_plan() -> None:
    """Its values are the input and the parameters; what lies between is memory of the plan."""
    values = some(999, 64), some(64, 64), some(999, 64)  # results begin at a line of the cache
    for _ in range(4):  # launches that find out whether threads pay
        model(*values)
    plan = planned(values, model)
    for _ in range(3):
        values = some(999, 64), some(64, 64), some(999, 64)
        expected, before = model(*values), counters.launches
        found = plan.again(values)
        assert counters.launches == before + plan.launches and plan.launches > 3
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_plan_keeps_no_arrays_of_the_call_it_was_made_of() -> None:
    values = some(6, 6), some(6, 6)
    K.matmul(*values)
    plan = planned(values, K.matmul)
    references = [sys.getrefcount(v) for v in values]
    del plan
    assert [sys.getrefcount(v) for v in values] == references


def test_what_numpy_wrote_is_in_no_plan() -> None:
    def half_seen(x: np.ndarray) -> np.ndarray:
        return K.map(f.add, x, x + 1)

    for call in (half_seen, lambda x: K.map(f.add, x, x) * 2):
        with pytest.raises(Unsuitable):
            planned((some(5),), call)


def test_arrays_that_share_memory_have_plans_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cubepy.kernels.elementwise import map

    n = 40_000  # results begin at a line of the cache
    whole = some(2 * n)
    pairs = [(whole[:n], whole[n:]), (whole[:n], whole[:n]), (whole[:n], whole[3 : n + 3])]
    for _ in range(5):
        for pair in pairs:
            K.map(f.add, *pair)
    monkeypatch.setattr(map, "run", None)  # what the long way comes through
    for _ in range(2):
        for one, other in pairs:
            np.testing.assert_array_equal(K.map(f.add, one, other), one + other)


def test_a_plan_refuses_what_it_was_not_made_for() -> None:
    whole = some(40)

    def into(x: np.ndarray, out: np.ndarray) -> np.ndarray:
        return K.softmax(x, out=out)  # type: ignore[no-any-return]

    values = whole[:20], whole[20:]
    with Recorder() as recorded:
        into(*values)
    plan = Plan(recorded, values[1], 1, HostOperands(recorded, values, values[1], 1))
    before = whole.copy()
    assert plan.again((whole[:20], whole[10:30])) is REFUSED
    np.testing.assert_array_equal(whole, before)
    with pytest.raises(AliasError):
        into(whole[:20], whole[10:30])


def test_what_makes_no_plan_is_recorded_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    @repeated
    def doubled(x: Any) -> Any:
        return K.map(f.add, x, x) * 1

    recorded: list[Recorder] = []
    begin = Recorder.__enter__
    monkeypatch.setattr(Recorder, "__enter__", lambda self: recorded.append(self) or begin(self))
    x = some(7)
    for _ in range(2 * calls.CHANCES):
        np.testing.assert_array_equal(doubled(x), 2 * x)
    assert len(recorded) <= calls.CHANCES + 2, "and what it calls has plans of its own"


def test_views_on_a_gpu_are_plans_without_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = importlib.import_module("cubepy.tensor.array")
    with pretend(monkeypatch):
        x = cb.tensor(some(4, 6), device=NAME)
        for _ in range(OFTEN + 1):
            x.reshape(3, 8).T[1:]
        monkeypatch.setattr(ops, "perform", None)  # what the long way comes through
        before = counters.launches
        found = x.reshape(3, 8).T[1:]
        assert counters.launches == before and found.storage.array.owner is x.storage.array.owner
        monkeypatch.undo()
    recording.forget()
