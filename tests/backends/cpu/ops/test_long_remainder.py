"""Remainders by long division, which serve AMD GPUs with an older LLVM: those of C's fmod, bit for
bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.numbers.long_remainder import long_remainder
from tests.backends.cpu.ops import compiled_ops
from tests.backends.cpu.ops.compiled_ops import FLOATS, NUMPY

RNG = np.random.default_rng()
WORDS = {"f32": np.uint32, "f64": np.uint64}

long_fmod = elementwise("long_fmod", 2, lambda b, d, x, y: long_remainder(b, x, y), "float")


def numbers(dtype: str, count: int) -> np.ndarray:
    """Random bits: every exponent, subnormal numbers, infinities and NaN; and the edges."""
    info = np.finfo(NUMPY[dtype])
    edges = [0, -0.0, 1, -1, info.max, -info.max, info.tiny, info.smallest_subnormal, np.inf]
    bits = RNG.integers(0, 1 << info.bits, count, WORDS[dtype])
    bits[-40:] = RNG.integers(0, 1 << info.nmant, 40, WORDS[dtype])  # subnormal
    return np.concatenate([bits.view(info.dtype), np.array([*edges, np.nan], info.dtype)])


def remainder(x: float, y: float) -> float:
    """C's fmod; Python's own raises where that gives NaN."""
    if math.isinf(x) or y == 0 or math.isnan(x + y):
        return math.nan
    return math.fmod(x, y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_long_division_gives_the_exact_remainder(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(compiled_ops.ops.OPS, "long_fmod", long_fmod)
    some = numbers(dtype, 90)
    pairs = np.array([(x, y) for x in some for y in some], some.dtype)
    x, y = (np.ascontiguousarray(column) for column in pairs.T)
    (got,) = compiled_ops.apply([("long_fmod(a, b)", dtype)], 0, x, y)
    want: Any = np.array([remainder(float(u), float(v)) for u, v in zip(x, y)], some.dtype)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    numeric = ~np.isnan(want)
    word = WORDS[dtype]
    assert np.array_equal(got[numeric].view(word), want[numeric].view(word))
