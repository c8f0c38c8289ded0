"""Sorting against NumPy: every dtype, short, long and strided axes, NaN and zeros of both signs,
stability.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from cubepy.kernels.sort import bucketsort_cpu, mergesort_cpu, quicksort_cpu
from cubepy.runtime import recording
from tests.backends.cuda.thorough import some
from tests.staging import WHERE

F = np.float32
RNG = np.random.default_rng(0)
LENGTHS = [1, 2, 17, 300, 9001]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """What a way is chosen by may be changed: no call is repeated that was recorded before, or will
    be later.
    """
    recording.forget()
    yield monkeypatch
    recording.forget()


def draw(dtype: Any, *shape: int) -> np.ndarray:
    """Numbers with many ties, and for floats with all that is special."""
    x = (RNG.standard_normal(shape) * 40).astype(dtype)
    if x.dtype.kind == "f" or x.dtype == ml_dtypes.bfloat16:
        for special in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
            x[RNG.random(shape) < 0.02] = special
    return x


DTYPES = [np.float32, np.float16, np.float64, np.int8, np.uint32, np.int64]
# By default all lengths of one dtype and one length of all: every dtype and power of two is machine
# code of its own.
KINDS = some(itertools.product(DTYPES, LENGTHS), 0, 1, 2, 3, 4, 8, 13, 14, 18, 23, 28, 29)


@pytest.mark.parametrize(("dtype", "n"), KINDS, ids=lambda v: getattr(v, "__name__", str(v)))
def test_sort_and_argsort_are_numpys(dtype: Any, n: int) -> None:
    x = draw(dtype, 3, n)
    np.testing.assert_array_equal(K.sort(x), np.sort(x))
    np.testing.assert_array_equal(K.argsort(x), np.argsort(x, stable=True))


def test_bfloat16() -> None:
    x = draw(ml_dtypes.bfloat16, 500)
    np.testing.assert_array_equal(K.sort(x).astype(F), np.sort(x.astype(F)))


def test_descending_keeps_the_order_of_equals_and_puts_nan_first() -> None:
    x = draw(F, 400).round()
    got = K.argsort(x, descending=True)
    key = np.where(np.isnan(x), np.inf, x).astype(np.float64)
    key[np.isposinf(x)] = 1e300
    np.testing.assert_array_equal(got, np.argsort(-key, stable=True))
    np.testing.assert_array_equal(K.sort(x, descending=True), x[got])


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_any_axis_and_strides(axis: int | None) -> None:
    x = draw(F, 30, 20, 7)
    for view in (x, x[::-1, ::3], x.transpose(2, 0, 1)):
        np.testing.assert_array_equal(K.sort(view, axis), np.sort(view, axis))
        np.testing.assert_array_equal(K.argsort(view, axis), np.argsort(view, axis, stable=True))


def test_outputs() -> None:
    x = draw(F, 9, 50)
    out = np.zeros((50, 9), F).T
    assert K.sort(x, out=out) is out
    np.testing.assert_array_equal(out, np.sort(x))
    y = x.copy()
    K.sort(y, out=y)
    np.testing.assert_array_equal(y, np.sort(x))


def test_long_rows_do_not_depend_on_the_number_of_threads() -> None:
    x = draw(F, 70000)
    want = np.sort(x), np.argsort(x, stable=True)
    for elements in (0, 1 << 40):
        with cb.config.override(serial_elements=elements):
            np.testing.assert_array_equal(K.sort(x), want[0])
            np.testing.assert_array_equal(K.argsort(x), want[1])


def rows_of_many_kinds(n: int) -> list[np.ndarray]:
    """Rows that fall into buckets evenly, into few, into one, and into some that are too full."""
    one = RNG.standard_normal(n)
    return [
        one, np.sort(one)[::-1], np.maximum(one, 0), np.floor(one), np.zeros(n), np.where(one < 1, np.nan, one),
        np.concatenate([one[1:] * 1e-3, [1e30]]), np.where(one < 0.5, -0.0, 0.0), np.where(one < -2, np.inf, one),
    ]  # fmt: skip


def check_long(dtype: Any, n: int) -> None:
    kinds = rows_of_many_kinds(n)
    with np.errstate(invalid="ignore", over="ignore"):
        x = np.array(
            kinds if np.dtype(dtype).kind == "f" else np.nan_to_num(np.array(kinds) * 50, posinf=7)
        ).astype(dtype)
    for descending in (False, True):
        want = np.sort(x)[:, ::-1] if descending else np.sort(x)
        got = np.array(
            [K.sort(row, descending=descending) for row in x]
        )  # by several units, then by one a row
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(K.sort(x, descending=descending), want)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(K.sort(x, descending=descending)))


def test_keys_that_have_a_bin_each_are_only_counted(ways: pytest.MonkeyPatch) -> None:
    ways.setattr(mergesort_cpu, "MOST", 0)
    ways.setattr(quicksort_cpu, "MOST", 0)
    x = draw(np.float16, 70_000)
    want = np.sort(x.astype(F)).astype(
        np.float16
    )  # NumPy 2.4 misplaces some float16 beside NaN and infinities
    np.testing.assert_array_equal(K.sort(x), want)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_rows_that_no_cache_holds(dtype: Any, ways: pytest.MonkeyPatch) -> None:
    ways.setattr(mergesort_cpu, "MOST", 0)  # by buckets
    ways.setattr(quicksort_cpu, "MOST", 0)
    check_long(dtype, 60_001)


@pytest.mark.parametrize(("dtype", "n"), some([(np.float32, 50_003), (np.int64, 33_000)], 0))
def test_rows_that_a_few_caches_hold(dtype: Any, n: int, ways: pytest.MonkeyPatch) -> None:
    ways.setattr(quicksort_cpu, "quick", lambda properties: False)  # by runs
    check_long(dtype, n)


@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize(
    ("dtype", "n"), [(np.float32, 50_003), (np.float64, 9_000), (np.int64, 33_000)]
)
def test_quicksort(dtype: Any, n: int, levels: int, ways: pytest.MonkeyPatch) -> None:
    """With pivots that are keys, and with those that only halve the range of keys."""
    ways.setattr(quicksort_cpu, "quick", lambda properties: True)
    ways.setattr(quicksort_cpu, "LEVELS", levels)
    check_long(dtype, n)


@pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.uint64])
def test_quicksort_of_the_extreme_keys(dtype: Any, ways: pytest.MonkeyPatch) -> None:
    ways.setattr(quicksort_cpu, "quick", lambda properties: True)
    ends = np.iinfo(dtype)
    for extremes in ([ends.max], [ends.min], [ends.min, ends.max]):
        x = RNG.choice(np.array(extremes, dtype), 20_000)
        np.testing.assert_array_equal(K.sort(x), np.sort(x))
        np.testing.assert_array_equal(K.sort(x, descending=True), np.sort(x)[::-1])


@pytest.mark.skipif(bool(WHERE), reason="for one unit")
@pytest.mark.parametrize("levels", [0, 2])
@pytest.mark.parametrize(
    ("rows", "n", "k"), [(1, 5000, 100), (40, 900, 17), (1, 40_000, 700), (3, 600, 300)]
)
def test_topk_by_quickselect(
    rows: int, n: int, k: int, levels: int, ways: pytest.MonkeyPatch
) -> None:
    ways.setattr(quicksort_cpu, "quick", lambda properties: True)
    ways.setattr(quicksort_cpu, "LEVELS", levels)
    x = draw(F, rows, n)
    for largest in (True, False):
        values, indices = K.topk(x, k, largest=largest)
        order = K.argsort(x, descending=largest)[:, :k]
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize(("most", "quick"), [(0, False), (1 << 18, False), (0, True)])
def test_long_rows_on_the_python_backend(ways: pytest.MonkeyPatch, most: int, quick: bool) -> None:
    """By buckets, by runs that are merged, and by quicksort."""
    ways.setattr(quicksort_cpu, "quick", lambda properties: quick)
    ways.setattr(mergesort_cpu, "FEW", 0)
    ways.setattr(bucketsort_cpu, "ROOM", 1024)
    ways.setattr(mergesort_cpu, "RUN", 1024)
    ways.setattr(mergesort_cpu, "MOST", most)
    x = RNG.standard_normal(700).astype(F)
    x[::3] = x[0]
    with cb.use("python"):
        np.testing.assert_array_equal(K.sort(x), np.sort(x))


@pytest.mark.parametrize(
    ("n", "k"), [(1, 1), (100, 3), (5000, 1), (5000, 100), (300, 200), (10, 0)]
)
@pytest.mark.parametrize("largest", [True, False])
def test_topk(n: int, k: int, largest: bool) -> None:
    x = draw(F, 4, n)
    values, indices = K.topk(x, k, largest=largest)
    order = K.argsort(x, descending=largest)[:, :k]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_topk_of_sorted_rows_and_other_axes() -> None:
    up = np.arange(10000, dtype=np.int32)
    assert K.topk(up, 3)[1].tolist() == [9999, 9998, 9997] and K.topk(up, 3, largest=False)[
        0
    ].tolist() == [0, 1, 2]
    assert K.topk(up[::-1], 2)[1].tolist() == [0, 1]
    assert K.topk(np.zeros(500, F), 4)[1].tolist() == [0, 1, 2, 3]
    x = draw(np.int16, 60, 5)
    np.testing.assert_array_equal(K.topk(x, 2, 0)[0], np.sort(x, 0)[::-1][:2])


def test_empty_arrays_and_errors() -> None:
    assert K.sort(np.zeros((0, 3), F)).shape == (0, 3) and K.argsort(np.zeros((2, 0), F)).shape == (
        2,
        0,
    )
    with pytest.raises(errors.ShapeError, match="rank 1"):
        K.sort(np.float32(3))
    with pytest.raises(errors.ShapeError, match="topk of 5"):
        K.topk(draw(F, 4), 5)
    with pytest.raises(errors.DTypeError, match="fp8"):
        K.sort(np.zeros(3, ml_dtypes.float8_e4m3fn))
