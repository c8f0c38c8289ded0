"""Operations among the units of a plane: the plane's size is the device's, the meaning is the same."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.runtime.device import backend_named


@cb.kernel
def reductions(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    v = x[i]
    out[0, i] = cb.plane_sum(v)
    out[1, i] = cb.plane_max(v)
    out[2, i] = cb.plane_min(v)
    out[3, i] = cb.plane_prod(v)
    out[4, i] = cb.plane_inclusive_sum(v)
    out[5, i] = cb.plane_exclusive_sum(v)


@cb.kernel
def shuffles(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    v = x[i]
    out[0, i] = cb.plane_broadcast(v, 0)
    out[1, i] = cb.plane_shuffle(v, (cb.UNIT_POS_PLANE + 3) % cb.PLANE_DIM)
    out[2, i] = cb.plane_shuffle_xor(v, 1 % cb.PLANE_DIM)
    out[3, i] = cb.plane_shuffle_up(v, 1)
    out[4, i] = cb.plane_shuffle_down(v, 2)


@cb.kernel
def votes(x: cb.Array, out: cb.Array, bound):
    i = cb.ABSOLUTE_POS
    out[0, i] = cb.select(cb.plane_all(x[i] < bound), 1, 0)
    out[1, i] = cb.select(cb.plane_any(x[i] < bound), 1, 0)
    out[2, i] = cb.UNIT_POS_PLANE
    out[3, i] = cb.PLANE_POS


@cb.kernel
def votes_of_lanes(x: cb.Array, out: cb.Array, bound):
    i = cb.ABSOLUTE_POS * 4
    v = x.load(i, 4)
    out.store((0, i), cb.select(cb.plane_all(v < bound), 1, 0))
    out.store((1, i), cb.select(cb.plane_any(v < bound), 1, 0))
    out.store((2, i), cb.select(cb.plane_any(v), 1, 0))


@cb.kernel
def sum_of_bools(x: cb.Array, out: cb.Array):
    out[0] = cb.select(cb.plane_sum(x[cb.UNIT_POS] > 0), 1, 0)


@cb.kernel
def some_units(x: cb.Array, out: cb.Array, n):
    i = cb.ABSOLUTE_POS
    if i < n:
        out[i] = cb.plane_sum(x[i])


@cb.kernel
def of_lines(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out.store(i * 4, cb.plane_sum(x.load(i * 4, 4)))


def planes(x: np.ndarray, device: str) -> np.ndarray:
    """The elements as rows of one plane each."""
    return x.reshape(-1, backend_named(device).properties(0).plane_size)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "float64", "uint8"])
def test_reductions_and_scans(device: str, dtype: str) -> None:
    x = (np.arange(128) % 3 + 1).astype(dtype)
    out = np.zeros((6, 128), dtype)
    reductions[2, 64](x, out, device=device)
    rows = planes(x, device)
    with np.errstate(over="ignore"):
        inclusive = np.cumsum(rows, axis=1, dtype=dtype)
        for k, f in enumerate((np.sum, np.max, np.min, np.prod)):
            kind = {} if k in (1, 2) else {"dtype": np.dtype(dtype)}
            expected = np.broadcast_to(f(rows, axis=1, keepdims=True, **kind), rows.shape)
            np.testing.assert_allclose(out[k], expected.ravel(), rtol=1e-6)
        np.testing.assert_array_equal(out[4], inclusive.ravel())
        np.testing.assert_array_equal(out[5], (inclusive - rows).astype(dtype).ravel())


@pytest.mark.parametrize("dtype", ["float32", "int16", "float64"])
def test_shuffles(device: str, dtype: str) -> None:
    x = np.arange(64).astype(dtype)
    out = np.zeros((5, 64), dtype)
    shuffles[1, 64](x, out, device=device)
    rows = planes(x, device)
    n = rows.shape[1]
    k = np.arange(n)
    for line, pick in enumerate((0 * k, (k + 3) % n, k ^ (1 % n), np.where(k >= 1, k - 1, k),
                                 np.where(k + 2 < n, k + 2, k))):  # fmt: skip
        np.testing.assert_array_equal(out[line], rows[:, pick].ravel(), err_msg=str(line))


def test_votes_and_positions(device: str) -> None:
    x = np.arange(64).astype("float32")
    out = np.zeros((4, 64), "int32")
    votes[1, 64](x, out, 40.5, device=device)
    rows = planes(x, device)
    n = rows.shape[1]
    np.testing.assert_array_equal(out[0], np.repeat((rows < 40.5).all(1), n))
    np.testing.assert_array_equal(out[1], np.repeat((rows < 40.5).any(1), n))
    np.testing.assert_array_equal(out[2], np.arange(64) % n)
    np.testing.assert_array_equal(out[3], np.arange(64) // n)


def test_masks_are_voted_on_lane_by_lane(device: str) -> None:
    x = np.arange(256).astype("float32")
    x[::4] = 0
    out = np.zeros((3, 256), "int32")
    votes_of_lanes[1, 64](x, out, 130, device=device)
    n = planes(np.arange(64), device).shape[1]
    rows = x.reshape(-1, n, 4)
    for got, want in zip(out, ((rows < 130).all(1), (rows < 130).any(1), rows.any(1)), strict=True):
        np.testing.assert_array_equal(got, np.repeat(want[:, None], n, 1).ravel())


def test_numbers_are_added_not_bools(device: str) -> None:
    with pytest.raises(cb.errors.DTypeError, match="plane_sum takes numbers, not bools"):
        sum_of_bools[1, 32](np.ones(32), np.zeros(1), device=device)


def test_units_that_do_not_take_part_are_left_out(device: str) -> None:
    x = np.arange(64).astype("float32")
    out = np.zeros(64, "float32")
    some_units[1, 64](x, out, 45, device=device)
    rows = planes(np.where(np.arange(64) < 45, x, 0), device)
    expected = np.broadcast_to(rows.sum(1, keepdims=True), rows.shape).ravel()
    np.testing.assert_array_equal(out[:45], expected[:45])
    np.testing.assert_array_equal(out[45:], 0)


def test_lines_are_reduced_lane_by_lane(device: str) -> None:
    x = np.arange(256).astype("float32")
    out = np.zeros(256, "float32")
    of_lines[1, 64](x, out, device=device)
    n = backend_named(device).properties(0).plane_size
    rows = x.reshape(-1, n, 4)
    np.testing.assert_array_equal(
        out.reshape(-1, n, 4), np.broadcast_to(rows.sum(1, keepdims=True), rows.shape)
    )
