"""Quantized layers on a CPU are replayed as other ops are: by the layouts of their packed arrays
and their plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn, quant
from cubepy.nn import functional as F
from cubepy.quant import storage as packed
from cubepy.runtime import recording
from cubepy.tensor import Tensor, replay
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="replays of the CPU")
rng = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    recording.forget()


def some(*shape: int) -> Tensor:
    return cb.tensor(rng.standard_normal(shape).astype(np.float32))


def layer(columns: int, rows: int, scheme: str, bias: bool = True) -> Any:
    model = nn.Sequential(nn.Linear(columns, rows, bias=bias))
    return quant.quantize(model, scheme, measure_speed=False).model[0]


def without_replays(call: Callable[[], Any]) -> np.ndarray:
    recording.detour(1)
    try:
        return call().numpy()
    finally:
        recording.detour(-1)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_what_is_replayed_is_what_was_computed(
    scheme: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [layer(96, 40, scheme) for _ in range(2)]  # of one shape: they share a replay
    residual = some(rows, 40)
    calls: list[Callable[[Any, Any], Any]] = [
        lambda one, x: one(x),
        lambda one, x: one(x, "relu"),
        lambda one, x: one(x, residual=residual),
    ]
    expected = [
        (call, one, x, without_replays(lambda: call(one, x)))
        for call in calls
        for one in layers
        for x in (some(rows, 96), some(rows, 96))
    ]
    for _ in range(6):
        for call, one, x, right in expected:
            np.testing.assert_array_equal(call(one, x).numpy(), right)
    monkeypatch.setattr(packed, "quantized_linear", None)  # what the long way comes through
    for call, one, x, right in expected:
        np.testing.assert_array_equal(call(one, x).numpy(), right)


def test_another_weight_in_a_storage_is_another_weight() -> None:
    first, second, x = layer(64, 16, "int4"), layer(64, 16, "int4"), some(2, 64)
    for _ in range(6):
        first(x)
    right = without_replays(lambda: F.linear(x, second.weight))
    first.weight.storage.weight = second.weight.storage.weight
    np.testing.assert_array_equal(F.linear(x, first.weight).numpy(), right)


def test_plans_are_told_apart() -> None:
    """A gain is in no array, and layouts do not tell it."""
    weight = layer(64, 16, "int4", bias=False).weight
    packed_weight = weight.storage.weight
    doubled = Tensor(packed.Quantized(replace(packed_weight, gain=2 * packed_weight.gain)))
    x = some(1, 64)
    for _ in range(6):
        once = F.linear(x, weight).numpy()
    for _ in range(6):
        np.testing.assert_array_equal(F.linear(x, doubled).numpy(), 2 * once)


def test_weights_that_are_multiplied_as_floats_are_not_replayed_wrongly() -> None:
    one = layer(64, 16, "int4")
    weight = one.weight.storage.weight
    floats = replace(weight, scheme=replace(weight.scheme, activations="float"))
    one.weight.storage.weight = floats
    for _ in range(6):
        x = some(2, 64)
        np.testing.assert_array_equal(one(x).numpy(), without_replays(lambda: one(x)))


def test_tensors_of_another_backend_run_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """They lie in the host's memory, too, and are laid out alike."""
    here = some(4, 8)
    for _ in range(6):
        here + here
    with cb.use("python"):
        there = cb.tensor(here.numpy())
    assert replay.quick("add", (here, here), {}) is not None
    assert replay.quick("add", (there, there), {}) is None
    monkeypatch.setattr(replay, "quick", None)
    monkeypatch.setattr(replay, "_calls", None)  # what a replay is found in
    np.testing.assert_array_equal((there + there).numpy(), 2 * here.numpy())
