"""What lanes of a load get that are not in memory (`other=`), and which reductions validate mode
refuses.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import DTypeError, KernelAssertionError, KernelTypeError
from cubepy.lang import dtypes as dt

F = np.float32
DTYPES = [d for d in dt.ALL if d.name != "bool_"]


@cb.kernel
def filled(x: cb.Array, out: cb.Array, at, n, other, *, lanes: cb.Comptime[int]):
    out.store(0, x.load(at, lanes, valid=n, other=cb.cast(other, x.dtype)))
    out.store(lanes, x.load(at, lanes, other=cb.cast(other, x.dtype)))


@cb.kernel
def filled_rows(x: cb.Array, out: cb.Array, at, n, other, *, lanes: cb.Comptime[int]):
    out.store(0, x.load((1, at), lanes, valid=n, other=cb.cast(other, x.dtype)))
    out.store(lanes, x.load((1, at), lanes, other=cb.cast(other, x.dtype)))


def there(source: np.ndarray, at: int, lanes: int, n: int, other: Any) -> np.ndarray:
    """What the first n of `lanes` lanes from `at` on are."""
    count = max(0, min(n, lanes, len(source) - at)) if at < len(source) else 0
    line = np.full(lanes, other, source.dtype)
    line[:count] = source[at : at + count]
    return line


@pytest.mark.parametrize("seed", range(2))
def test_lanes_that_are_not_there_are_what_other_says(device: str, seed: int) -> None:
    rng = random.Random(seed)
    for dtype in rng.sample(DTYPES, 6):
        lanes, size = rng.choice([1, 3, 4, 8, 16]), rng.randrange(1, 30)
        at, n, other = rng.randrange(size), rng.randrange(-2, lanes + 3), rng.choice([0, 1, 5])
        base = np.arange(2 * size) % 7
        x = base.astype(np.int8).astype(dtype.numpy)[:: rng.choice([1, 2])]
        out = np.zeros(2 * lanes, dtype.compute.numpy)
        mode = rng.choice(["checked", "validate"])
        filled[1, 1](x, out, at, n, other, lanes=lanes, device=device, mode=mode)
        values = x.astype(out.dtype)
        want = [there(values, at, lanes, count, other) for count in (n, lanes)]
        np.testing.assert_array_equal(
            out, np.concatenate(want), err_msg=f"{dtype} {lanes} {at} {n}"
        )


def test_rows_end_where_their_last_axis_does(device: str) -> None:
    for x in (np.arange(30, dtype=F).reshape(3, 10), np.arange(60, dtype=F).reshape(10, 6).T[:3]):
        for at, n in ((0, 3), (8, 9), (9, 0), (5, 4)):
            out = np.zeros(16, F)
            filled_rows[1, 1](x, out, at, n, -1, lanes=8, device=device)
            want = [there(x[1], at, 8, count, -1) for count in (n, 8)]
            np.testing.assert_array_equal(out, np.concatenate(want))


@cb.kernel
def of_every_kind(x: cb.Array, out: cb.Array, scalar, *, known: cb.Comptime[float]):
    tile = cb.shared(6, cb.f32)
    mine = cb.local(6, cb.f32)
    for k in cb.unroll(range(6)):
        tile[k] = x[k]
        mine[k] = x[k]
    steps = x.load(0, 4)
    out.store(0, x.load(5, 4, other=7))
    out.store(4, x.load(5, 4, other=known))
    out.store(8, x.load(5, 4, other=scalar))
    out.store(12, x.load(5, 4, other=steps * 10))
    out.store(16, tile.load(4, 4, other=-1))
    out.store(20, mine.load(4, 4, valid=1, other=-2))
    out.store(24, x.load(0, 4, valid=4, other=9))


def test_other_is_a_literal_a_number_or_a_line(device: str) -> None:
    x, out = np.arange(6, dtype=F), np.zeros(28, F)
    of_every_kind[1, 1](x, out, 2.5, known=-float("inf"), device=device)
    inf = -np.inf
    want = [
        5,
        7,
        7,
        7,
        5,
        inf,
        inf,
        inf,
        5,
        2.5,
        2.5,
        2.5,
        5,
        10,
        20,
        30,
        4,
        5,
        -1,
        -1,
        4,
        -2,
        -2,
        -2,
        0,
        1,
        2,
        3,
    ]
    assert out.tolist() == want


@cb.kernel
def float_in_ints(x: cb.Array, out: cb.Array):
    out.store(0, x.load(0, 4, other=-float("inf")))


@cb.kernel
def too_short(x: cb.Array, out: cb.Array):
    out.store(0, x.load(0, 4, other=x.load(0, 2)))


@pytest.mark.parametrize(
    ("kernel", "error"), [(float_in_ints, DTypeError), (too_short, KernelTypeError)]
)
def test_other_converts_as_a_store_does(device: str, kernel: Any, error: Any) -> None:
    x = np.arange(4, dtype=np.int32)
    with pytest.raises(error, match="lanes"):
        kernel[1, 1](x, x.copy(), device=device)


@cb.kernel
def extremes(x: cb.Array, out: cb.Array, *, way: cb.Comptime[str]):
    """The largest and the smallest of a row, in ways that take lanes which are not there, and in
    ways that do not.
    """
    top = cb.splat(cb.cast(-1000, cb.f32), 4)
    low = cb.splat(cb.cast(1000, cb.f32), 4)
    for k, valid in cb.lines(0, x.size, 4):
        v = x.load(k, 4, valid=valid)
        if way == "other":
            a = cb.cast(x.load(k, 4, valid=valid, other=0 if x.dtype == cb.u8 else -1000), cb.f32)
            b = cb.cast(x.load(k, 4, valid=valid, other=255 if x.dtype == cb.u8 else 1000), cb.f32)
        elif way == "zero":
            a, b = cb.cast(x.load(k, 4, valid=valid, other=0), cb.f32), low
        elif way == "size":
            a, b = cb.cast(cb.abs(v) * 2, cb.f32), low
        elif way == "square":
            a, b = cb.cast(v * v, cb.f32), low
        elif way == "chosen":
            inside = cb.splat(valid, 4) > 0
            a, b = cb.select(inside, cb.cast(v, cb.f32), -1000.0), low
        elif way == "smallest":
            a, b = top, cb.cast(v, cb.f32)
        else:
            a, b = cb.cast(v, cb.f32) * 2 + 1, low
        top = cb.max(top, a)
        low = cb.min(low, b)
    if way == "sum":
        out[0] = top.sum()
    elif way != "smallest":
        out[0] = top.max()
    out[1] = low.min()


@pytest.mark.parametrize("dtype", [np.uint8, F])
def test_validate_says_when_a_reduction_takes_lanes_that_are_not_there(
    device: str, dtype: Any
) -> None:
    x, out = np.arange(1, 12).astype(dtype), np.zeros(2, F)
    refused = {"largest": "maximum", "smallest": "minimum"}
    if dtype is np.uint8:  # nothing is less than zero
        del refused["largest"]
    for way in ("largest", "smallest", "other", "zero", "size", "square", "chosen", "sum"):
        extremes[1, 1](x[:8], out, way=way, device=device, mode="validate")
        if way not in refused:
            extremes[1, 1](x, out, way=way, device=device, mode="validate")
            continue
        with pytest.raises(
            KernelAssertionError, match=f"a {refused[way]} takes lanes.*'x'"
        ) as caught:
            extremes[1, 1](x, out, way=way, device=device, mode="validate")
        assert "other=" in str(caught.value) and "^" in str(caught.value)


@cb.kernel
def over_the_end(x: cb.Array, out: cb.Array, *, where: cb.Comptime[bool]):
    i = cb.ABSOLUTE_POS * 4
    v = x.load((0, i), 4) if where else x.load(i, 4)
    out[cb.ABSOLUTE_POS] = (-v).max()


@pytest.mark.parametrize("where", [False, True])
def test_the_end_of_an_array_counts_as_valid_does(device: str, where: bool) -> None:
    x, out = np.ones((1, 8), F), np.zeros(2, F)
    over_the_end[1, 2](x, out, where=where, device=device, mode="validate")
    assert out.tolist() == [-1, -1]
    with pytest.raises(KernelAssertionError, match="maximum takes lanes"):
        over_the_end[1, 2](x[:, :7], out, where=where, device=device, mode="validate")


def test_nothing_is_added_where_no_mode_asks_for_it() -> None:
    x, out = np.ones(11, F), np.zeros(2, F)
    codes = [
        extremes.inspect(x, out, way="largest", grid=(1, 1), mode=mode).python
        for mode in ("checked", "unchecked", "validate")
    ]
    assert ["there" in code for code in codes] == [False, False, True]
