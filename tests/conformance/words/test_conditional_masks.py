"""`a if mask else b` takes each lane from one side, on every backend and in funcs that the library
is given.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType

F = np.float32
NUMBERS = [d for d in dt.ALL if not d.storage_only and d.name != "bool_"]


@cb.func
def leaky(v):
    return v if v > 0 else v * 0.125


@cb.func
def softly(v):
    return cb.exp(v) - 1 if v < 0 else v


@cb.func
def stepped(v):
    """Conditions in conditions, literals, and a func with a loop."""
    return -1 if v < -2 else ((smooth(v) if v < 2 else 1) if v > -1 else 0)


@cb.func
def smooth(v):
    total = v
    for _ in range(3):
        total = total * v + 1
    return total


@cb.kernel
def on_lines(x: cb.Array, y: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS * lanes
    a, b = x.load(i, lanes), y.load(i, lanes)
    out.store(i, a if a > b else b)


@cb.kernel
def on_numbers(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = x[i] if x[i] > y[i] else y[i]


@pytest.mark.parametrize("seed", range(2))
def test_lanes_and_numbers_choose_alike(device: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(4):
        left, right = rng.choice(NUMBERS), rng.choice(NUMBERS)
        lanes, both = rng.choice([1, 4, 8]), dt.promote(left, right)
        x, y = (
            np.array([rng.randrange(100) for _ in range(lanes * 2)]).astype(d.numpy)
            for d in (left, right)
        )
        out, one = np.zeros((2, lanes * 2), both.numpy)
        on_lines[1, 2](x, y, out, lanes=lanes, device=device)
        on_numbers[1, 2 * lanes](x, y, one, device=device)
        np.testing.assert_array_equal(out, np.maximum(x.astype(both.numpy), y.astype(both.numpy)))
        np.testing.assert_array_equal(one, out)


@cb.kernel
def applied(x: cb.Array, out: cb.Array, function: cb.Comptime, *, lanes: cb.Comptime[int]):
    if lanes:
        for k, valid in cb.lines(0, x.size, lanes):
            out.store(k, function(x.load(k, lanes, valid=valid)), valid=valid)
    else:
        for k in range(x.size):
            out[k] = function(x[k])


@pytest.mark.parametrize("function", [leaky, softly, stepped], ids=lambda f: f.__name__)
def test_one_func_is_for_numbers_and_lines(device: str, function: Any) -> None:
    x = np.linspace(-3, 3, 23, dtype=F)
    found = []
    for lanes in (0, 4):
        out = np.zeros_like(x)
        applied[1, 1](x, out, function, lanes=lanes, device=device)
        found.append(out)
    want = np.array(
        [
            float(function(v)) if function is not softly else (np.expm1(v) if v < 0 else v)
            for v in x
        ],
        F,
    )
    for out in found:
        np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [cb.f16, cb.i32], ids=lambda d: d.name)
def test_the_library_maps_funcs_with_conditions(dtype: DType) -> None:
    x = np.arange(-20, 21).astype(dtype.numpy)
    for a in (x, x[:40].reshape(5, 8).T):
        want = np.where(a > 0, a, a * np.float64(0.125)).astype(dtype.numpy)
        np.testing.assert_allclose(np.asarray(K.map(leaky, a), np.float64), want, rtol=1e-3)


@cb.kernel
def masks_of_masks(x: cb.Array, out: cb.Array):
    v = x.load(0, 4)
    inside = (v > 1) if v < 3 else (v > 5)
    out.store(0, 1 if inside else 0)
    out.store(4, v if not inside else cb.splat(cb.f32(9), 4))
    out[8] = 1.0 if inside.any() else 2.0


def test_sides_may_be_masks_literals_and_splats(device: str) -> None:
    x, out = np.array([1, 2, 3, 6], F), np.zeros(9, F)
    masks_of_masks[1, 1](x, out, device=device)
    assert out.tolist() == [0, 1, 0, 1, 1, 9, 3, 9, 1]


@cb.kernel
def guarded(x: cb.Array, out: cb.Array, n):
    """A condition that is one number looks at one side only."""
    for i in range(4):
        out[i] = x[i] if i < n else (x[i - n] if n > 0 else -1)


def test_a_number_looks_at_one_side_only(device: str) -> None:
    x, out = np.arange(10, 12, dtype=F), np.zeros(4, F)
    guarded[1, 1](x, out, 2, device=device, mode="validate")
    assert out.tolist() == [10, 11, 10, 11]
    guarded[1, 1](x, out, 0, device=device, mode="validate")
    assert out.tolist() == [-1] * 4


@cb.func
def counted(counts, v):
    counts[0] += 1
    return v


@cb.kernel
def loads(x: cb.Array, out: cb.Array):
    v = x.load(0, 4)
    out.store(0, x.load(4, 4) if v > 0 else v)


@cb.kernel
def stores(x: cb.Array, out: cb.Array):
    v = x.load(0, 4)
    out.store(0, counted(x, v) if v > 0 else v)


@cb.kernel
def lengths(x: cb.Array, out: cb.Array):
    v = x.load(0, 4)
    out.store(0, x.load(0, 2) * 2 if v > 0 else v)


@cb.kernel
def tuples(x: cb.Array, out: cb.Array):
    v = x.load(0, 4)
    a, b = (v, v) if v > 0 else (v, -v)
    out.store(0, a + b)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (loads, "touches memory"),
        (stores, "touches memory"),
        (lengths, "memory|lanes"),
        (tuples, "number"),
    ],
)
def test_sides_that_do_more_than_compute_are_refused(device: str, kernel: Any, words: str) -> None:
    with pytest.raises((KernelTypeError, cb.errors.ComptimeError), match=words):
        kernel[1, 1](np.ones(8, F), np.ones(8, F), device=device)
