"""Loops over units and ranges on a CPU: what ends them, which checks they do without, what is
counted apart, and who runs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb

F, I = np.float32, np.int32


def code(kernel: Any, *args: Any, grid: Any, **keywords: Any) -> str:
    return str(kernel[grid].inspect(*args, **keywords).python)


@cb.kernel
def relaxed(x: cb.Array, out: cb.Array):
    i, j = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    if i == 0 or j == 0 or i >= x.shape[0] - 1 or j >= x.shape[1] - 1:
        return
    out[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]


def test_a_return_is_a_guard() -> None:
    x = np.arange(63, dtype=F).reshape(7, 9)
    out = np.zeros_like(x)
    text = code(relaxed, x, out, grid=cb.over(x))
    assert "load_if" not in text and "below" not in text and "* 32), i64(1))" in text
    relaxed[cb.over(x)](x, out)
    want = x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]
    np.testing.assert_array_equal(out[1:-1, 1:-1], want)
    assert not out[0].any() and not out[-1].any() and not out[:, [0, -1]].any()


@cb.kernel
def early(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    v = x[i]
    if i < out.size:
        out[i] = v


def test_validate_looks_at_units_without_work() -> None:
    x = np.ones(9, F)
    for device in ("cpu", "python"):
        with pytest.raises(cb.errors.OutOfBoundsError, match="index 9"):
            early[1, 16](x, x.copy(), mode="validate", device=device)


@cb.kernel
def up_to(x: cb.Array, out: cb.Array, n):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        total = x[max(n, i)]
        for k in range(min(n, 20)):
            total += x[k]
        out[i] = total


def test_extremes_of_an_argument_are_indices_and_ends_of_loops() -> None:
    x, out = np.arange(9, dtype=F), np.zeros(5, F)
    up_to[cb.over(out)](x, out, 3)
    assert out.tolist() == [6, 6, 6, 6, 7]
    up_to[cb.over(out)](x, out, 30)
    assert out.tolist() == [36] * 5


@cb.kernel
def rows(begin: cb.Array, index: cb.Array, x: cb.Array, out: cb.Array):
    row = cb.ABSOLUTE_POS
    if row < out.size:
        total = cb.f32(0)
        for k in range(begin[row], begin[row + 1]):
            total += x[index[k]]
        out[row] = total


def test_a_loop_of_a_row_looks_at_its_ends_once() -> None:
    begin, index = np.array([0, 2, 2, 5], I), np.array([0, 3, 1, 1, 2], I)
    x, out = np.array([1, 10, 100, 1000], F), np.zeros(3, F)
    text = code(rows, begin, index, x, out, grid=cb.over(out))
    fast, checked = text.split("else:")
    assert "load(index," in fast and fast.count("below") == 1  # an index from memory
    assert checked.count("below") == 2
    rows[cb.over(out)](begin, index, x, out)
    assert out.tolist() == [1001, 0, 120]
    rows[cb.over(out)](np.array([-2, 2, 4, 9], I), np.array([0, 3, -1, 1, 4], I), x, out)
    assert out.tolist() == [1 + 1 + 1001, 10, 1 + 1 + 1 + 1 + 0]


@cb.kernel
def unpacked(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[2 * i] = x[i] & 15
        out[2 * i + 1] = x[i] >> 4


def test_two_places_of_a_unit_are_checked_where_sizes_do_not_go_together() -> None:
    x = np.arange(0, 250, 7).astype(np.uint8)
    text = code(unpacked, x, np.zeros(2 * x.size, np.uint8), grid=cb.over(x))
    assert "below" not in text and "if " not in text.split("def kernel")[1]
    for n in (0, 1, 7, 2 * x.size, 100):
        whole = np.full(n + 20, 99, np.uint8)
        unpacked[cb.over(x)](x, whole[10 : n + 10])
        want = np.stack([x & 15, x >> 4], 1).ravel()[:n]
        np.testing.assert_array_equal(whole[10 : 10 + len(want)], want)
        assert (whole[10 + len(want) :] == 99).all() and (whole[:10] == 99).all()


@cb.kernel
def counting(x: cb.Array, found: cb.Array, *, op: cb.Comptime = cb.atomic_add):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        op(found, x[i], i)


@cb.kernel
def numbering(x: cb.Array, found: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[i] = cb.atomic_add(found, x[i], 1)


UFUNCS = {
    cb.atomic_add: np.add,
    cb.atomic_sub: np.subtract,
    cb.atomic_max: np.maximum,
    cb.atomic_min: np.minimum,
    cb.atomic_or: np.bitwise_or,
    cb.atomic_and: np.bitwise_and,
    cb.atomic_xor: np.bitwise_xor,
}


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64], ids=str
)
@pytest.mark.parametrize("op", UFUNCS, ids=lambda op: op.name)
def test_counts_of_threads_come_together(op: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for n, bins in ((100_000, 7), (100_000, 5000), (300, 300), (3, 2)):
        x = rng.integers(-2, bins + 2, n, np.int32)  # some are outside
        found = rng.integers(0, 100, bins).astype(dtype)
        want = found.copy()
        inside = (x >= 0) & (x < bins)
        UFUNCS[op].at(want, x[inside], np.arange(n)[inside].astype(dtype))
        counting[cb.over(x)](x, found, op=op)
        np.testing.assert_array_equal(found, want)


def test_only_what_nobody_asks_for_is_counted_apart() -> None:
    x, found = np.zeros(9, I), np.zeros(4, I)
    assert "_keeps_found" in code(counting, x, found, grid=cb.over(x))
    assert "_keeps" not in code(numbering, x, found, x.copy(), grid=cb.over(x))
    assert "_keeps" not in code(counting, x, found.astype(F), grid=cb.over(x))
    assert "_keeps" not in code(counting, x, np.zeros(8, I)[::2], grid=cb.over(x))
    assert "first * 32" in code(counting, x, found, grid=cb.over(x))
    # one thread runs a cube whose order may be seen
    assert "first * 256" in code(numbering, x, found, x.copy(), grid=cb.over(x))
    assert "first * 256" in code(counting, x, found.astype(F), grid=cb.over(x))


@cb.kernel
def scaled(x: cb.Array, out: cb.Array):
    for i in range(cb.ABSOLUTE_POS, out.size, cb.CUBE_COUNT * cb.CUBE_DIM):
        out[i] = 2 * x[i]


@cb.kernel
def scaled_while(x: cb.Array, out: cb.Array):
    i = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    stride = cb.CUBE_COUNT * cb.CUBE_DIM
    while i < out.size:
        out[i] = 2 * x[i]
        i += stride


@cb.kernel
def summed(x: cb.Array, out: cb.Array):
    total = x.dtype(0)
    for i in range(cb.ABSOLUTE_POS, x.size, cb.CUBE_COUNT * cb.CUBE_DIM):
        total += x[i]
    out[cb.ABSOLUTE_POS] = total


@cb.kernel
def first_large(x: cb.Array, out: cb.Array):
    out[cb.ABSOLUTE_POS] = -1
    for i in range(cb.ABSOLUTE_POS, x.size, cb.CUBE_COUNT * cb.CUBE_DIM):
        if x[i] > 500:
            out[cb.ABSOLUTE_POS] = i
            break


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 500, 1000])
@pytest.mark.parametrize("units", [2, 32, 64])
def test_loops_that_stride_over_the_grid_give_what_they_gave(n: int, units: int) -> None:
    x = np.arange(n, dtype=I)
    for cubes in (1, 3, 20):
        for kernel in (scaled, scaled_while):
            out = np.full(n + 5, 7, I)
            kernel[cubes, units](x, out[:n])
            np.testing.assert_array_equal(out, [*(2 * x), *[7] * 5])
        for kernel in (summed, first_large):
            results = []
            for device in ("cpu", "python"):
                out = np.zeros(cubes * units, I)
                kernel[cubes, units](x, out, device=device)
                results.append(out)
            np.testing.assert_array_equal(*results)


def test_loops_that_stride_over_the_grid_go_along_memory() -> None:
    x = np.zeros(100, I)
    for kernel in (scaled, scaled_while):
        text = code(kernel, x, x.copy(), grid=(4, 64))
        assert "for position in range(first * 32, minnum(i64(last * 32), i64(" in text
        assert "below" not in text and "load_if" not in text
    text = code(summed, x, np.zeros(256, I), grid=(4, 64))
    assert "store(total, unit, add(load(total, unit), load(x, " in text
    # who leaves a loop does so alone
    assert "_first" not in code(first_large, x, np.zeros(256, I), grid=(4, 64))
