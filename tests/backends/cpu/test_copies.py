"""Copies are taken out of a program, and nothing that is more than a copy."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.cpu import lowering
from cubepy.config import config


@cb.kernel
def swaps(x: cb.Array, out: cb.Array):
    a, b = x[0], x[1]
    for _ in range(x.shape[0]):
        a, b = b, a + b
    out[0] = a
    out[1] = b


@cb.kernel
def keeps_the_old(x: cb.Array, out: cb.Array):
    last = x[0]
    for i in range(1, x.shape[0]):
        before = last
        last = x[i]
        out[i] = before * 10 + last


@cb.kernel
def leaves_early(x: cb.Array, out: cb.Array):
    best = x[0]
    for i in range(x.shape[0]):
        new = x[i] + best
        if new > 9:
            break
        best = new
    out[0] = best


@cb.kernel
def grows(x: cb.Array, out: cb.Array, n: cb.Comptime[int]):
    parts = ()
    for k in cb.unroll(range(n)):
        parts = parts + (x[0] + k,)
    for k in cb.unroll(range(n)):
        out[k] = parts[n - 1 - k]


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_values_that_are_exchanged_stay_apart(device: str) -> None:
    x, out = np.array([1, 2, 0, 0, 0], np.int32), np.zeros(2, np.int32)
    with cb.use(device):
        swaps[1, 1](x, out)
    assert out.tolist() == [8 + 5, 21]


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_a_copy_whose_source_changes_is_kept(device: str) -> None:
    x, out = np.array([1, 2, 3, 4], np.int32), np.zeros(4, np.int32)
    with cb.use(device):
        keeps_the_old[1, 1](x, out)
    assert out.tolist() == [0, 12, 23, 34]


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_a_value_does_not_go_where_a_jump_keeps_it_from(device: str) -> None:
    x, out = np.array([1, 2, 3, 4], np.int32), np.zeros(1, np.int32)
    with cb.use(device):
        leaves_early[1, 1](x, out)
    assert out.tolist() == [7]


def test_a_tuple_that_grows_costs_a_statement_for_each_part() -> None:
    x = np.array([3], np.float32)
    lengths = []
    for n in (4, 8, 16):
        out = np.zeros(n, np.float32)
        grows[1, 1](x, out, n)
        assert np.array_equal(out, x[0] + np.arange(n)[::-1])
        lengths.append(len(grows[1, 1].inspect(x, out, n).python.splitlines()))
    assert lengths[2] - lengths[1] == 2 * (lengths[1] - lengths[0])
    assert lengths[2] - lengths[1] <= 8 * 4


def test_generated_code_does_without_the_front_end_of_numba(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lowering, "_by_numba", None)
    x, out = np.array([3], np.float32), np.zeros(5, np.float32)
    with config.override(cache=False):
        grows[1, 1](x, out, 5)
    assert out.tolist() == [7, 6, 5, 4, 3]


def test_what_is_unusual_is_left_to_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways give machine code that does the same."""

    def refuse(*_: object) -> str:
        raise lowering.Unusual("for this test")

    monkeypatch.setattr(lowering, "_straight", refuse)
    x, out = np.array([1, 2, 0, 0, 0], np.int32), np.zeros(2, np.int32)
    kernel = cb.kernel(swaps.fn)
    with config.override(cache=False):
        kernel[1, 1](x, out)
    assert out.tolist() == [13, 21]
