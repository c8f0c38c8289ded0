"""Which arrays share bytes, beside the set of all of their addresses."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.runtime.memory.spans import interleaved, meet


def bytes_of(x: np.ndarray) -> set[int]:
    at = np.full(x.shape, x.__array_interface__["data"][0])
    for axis, (n, step) in enumerate(zip(x.shape, x.strides, strict=True)):
        at = at + (np.arange(n) * step).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    return set((at.reshape(-1, 1) + np.arange(x.itemsize)).reshape(-1).tolist())


def part(rng: np.random.Generator, whole: np.ndarray) -> np.ndarray:
    """A slice of an array, also backwards, in steps, or as bytes."""
    index = []
    for n in whole.shape:
        low, high = sorted(rng.integers(0, n + 1, 2))
        every = slice(None, None, -1) if rng.random() < 0.2 else slice(None)
        index.append(every if rng.random() < 0.5 else slice(low, high, rng.integers(1, 3)))
    found = whole[tuple(index)]
    narrow = found.shape[-1] > 0 and found.strides[-1] == found.itemsize and rng.random() < 0.3
    return found.view(np.uint8) if narrow else found


@pytest.mark.parametrize("seed", range(4))
def test_interleaved_arrays_have_no_byte_in_common(seed: int) -> None:
    rng = np.random.default_rng(seed)
    apart = missed = 0
    for _ in range(1500):
        shape = tuple(rng.integers(1, 6, rng.integers(1, 5)))
        whole = np.zeros(shape, rng.choice([np.uint8, np.uint16, np.float32]))
        whole = whole.transpose(rng.permutation(whole.ndim))
        a, b = part(rng, whole), part(rng, whole)
        if meet(a, b):
            separate = bytes_of(a).isdisjoint(bytes_of(b))
            assert separate or not interleaved(a, b), (a.shape, a.strides, b.shape, b.strides)
            assert interleaved(a, b) == interleaved(b, a)
            apart += interleaved(a, b)
            missed += separate and not interleaved(a, b)
    assert apart > 10 and missed < 0.2 * apart


@cb.kernel
def halve(out: cb.Array, other: cb.Array, x: cb.Array) -> None:
    if cb.ABSOLUTE_POS < out.shape[0]:
        for j in range(out.shape[1]):
            out[cb.ABSOLUTE_POS, j] = x[cb.ABSOLUTE_POS, j] / 2
            other[cb.ABSOLUTE_POS, j] = x[cb.ABSOLUTE_POS, j] * 2


def test_a_launch_writes_parts_of_rows_that_lie_side_by_side() -> None:
    whole = np.zeros((5, 9), np.float32)
    whole[:, :3] = np.arange(15).reshape(5, 3)
    for _ in range(3):
        halve[cb.over(5)](whole[:, 3:6], whole[:, 6:], whole[:, :3])
    np.testing.assert_array_equal(whole[:, 3:6], whole[:, :3] / 2)
    np.testing.assert_array_equal(whole[:, 6:], whole[:, :3] * 2)
    with pytest.raises(cb.errors.AliasError):
        halve[cb.over(5)](whole[:, 3:6], whole[:, 5:8], whole[:, :3])
