"""Elementwise functions of tensors whose axes lie in memory in another order than C's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import where


def turned(rng: Any, shape: tuple[int, ...], order: Any, gaps: Any) -> tuple[np.ndarray, Any]:
    """An array of a shape whose axes lie in an order in memory, with gaps, and a tensor of it."""
    whole = np.array(shape)[order]
    base = rng.standard_normal(tuple(whole + gaps)).astype(np.float32)
    part = tuple(slice(int(g), int(g + n)) for g, n in zip(gaps, whole, strict=True))
    back = [int(d) for d in np.argsort(order)]
    return base[part].transpose(back), cb.tensor(base)[part].permute(*back)


@pytest.mark.parametrize("seed", range(60))
def test_functions_of_turned_tensors(seed: int) -> None:
    """Dense, with gaps, beside others in the same and another order and such as are repeated."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    shape = tuple(int(n) for n in rng.integers(1, 7, rank))
    order, none = rng.permutation(rank), np.zeros(rank, int)
    gaps = rng.integers(0, 3, rank) * int(rng.random() < 0.5)
    x, one = turned(rng, shape, order, gaps)
    z, other = turned(
        rng,
        shape,
        order if rng.random() < 0.7 else rng.permutation(rank),
        gaps if rng.random() < 0.5 else none,
    )
    small = tuple(1 if rng.random() < 0.5 else n for n in shape)[int(rng.integers(0, rank + 1)) :]
    y = rng.standard_normal(small).astype(np.float32)
    row = cb.tensor(y)
    for _ in range(3):  # the first time, then as a repetition
        for found, wanted in (
            (one + row, x + y),
            (row - one, y - x),
            (one * other, x * z),
            (where(one > row, other, row), np.where(x > y, z, y)),
            (one.floor(), np.floor(x)),
            (one.clamp(row, None), np.maximum(x, y)),
            ((one * 9).astype("i32"), (x * 9).astype(np.int32)),
        ):
            assert found.shape == wanted.shape
            np.testing.assert_array_equal(found.numpy(), wanted)


def test_a_result_lies_as_what_it_was_made_of() -> None:
    """On the host; GPUs write results in C order."""
    with cb.use("cpu"):
        _lies_alike()


def _lies_alike() -> None:
    x = cb.tensor(np.ones((5, 4, 3), np.float32)).permute(2, 0, 1)
    row = cb.tensor(np.ones(4, np.float32))
    for y in (x.floor(), x + row, row * x, x[:, 1:] - x[:, :-1], where(x > row, x, row)):
        assert y.permute(1, 2, 0).is_contiguous() and not y.is_contiguous()
    assert (x + cb.tensor(np.ones((3, 5, 4), np.float32))).is_contiguous()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extremes_so_far_and_where_they_are(name: str, seed: int) -> None:
    """Of any dtype and layout, along short axes and long ones, the last one of equal elements;
    NaN from the first one on.
    """
    rng = np.random.default_rng(seed)
    dtype = np.dtype(["f4", "f8", "f2", "i4", "i8", "u1", "i1", "?", "i2", "f4", "u4", "f4"][seed])
    shape = [(3, 40), (50, 3), (4, 60, 33), (2, 20_000), (300,), (64, 1)][int(rng.integers(6))]
    few = rng.random() < 0.5
    x = (rng.integers(-2, 3, shape) if few else rng.standard_normal(shape) * 50).astype(dtype)
    if dtype.kind == "f" and rng.random() < 0.7:
        spots = rng.integers(0, x.size, 1 + x.size // 30)
        x.flat[spots] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], spots.size)
    given = cb.tensor(x)
    if rng.random() < 0.4:
        x, given = x.T, given.permute(*range(x.ndim)[::-1])
    axis = int(rng.integers(x.ndim))
    found, at = getattr(given, name)(axis)
    lines = np.moveaxis(x, axis, -1)
    values, places = np.moveaxis(found.numpy(), axis, -1), np.moveaxis(at.numpy(), axis, -1)
    assert found.dtype is given.dtype and places.dtype == np.int64
    for line, value, place in zip(
        lines.reshape(-1, lines.shape[-1]),
        values.reshape(-1, lines.shape[-1]),
        places.reshape(-1, lines.shape[-1]),
        strict=True,
    ):
        best, where_ = line[0], 0
        for k, v in enumerate(line.tolist()):
            if v != v or (v >= best if name == "cummax" else v <= best):
                best, where_ = v, k
            assert place[k] == where_
        np.testing.assert_array_equal(value, line[place])
        if dtype.kind == "f":
            assert (np.signbit(value) == np.signbit(line[place])).all()
