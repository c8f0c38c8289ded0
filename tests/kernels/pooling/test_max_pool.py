"""Max pooling with indices against a window-by-window definition; gradients are what the indices
say.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from cubepy.kernels.pooling.max_pool import LAYOUTS
from tests.backends.cuda.thorough import some
from tests.staging import DEVICES
from tests.turns import TURN

RNG = np.random.default_rng(0)


def defined(
    x: np.ndarray, k: int, s: int, p: int, d: int, up: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Channels first, any number of axes."""
    size, sizes = x.shape[2:], []
    for n in size:
        m = (math.ceil if up else math.floor)((n + 2 * p - d * (k - 1) - 1) / s) + 1
        sizes.append(m - 1 if up and (m - 1) * s >= n + p else m)
    value, place = (
        np.zeros((*x.shape[:2], *sizes), x.dtype),
        np.zeros((*x.shape[:2], *sizes), np.int64),
    )
    for at in np.ndindex(*x.shape[:2], *sizes):
        best, where = None, -1
        for tap in itertools.product(range(k), repeat=len(size)):
            q = tuple(i * s - p + u * d for i, u in zip(at[2:], tap))
            if all(0 <= a < n for a, n in zip(q, size)):
                v = x[at[:2] + q]
                if best is None or v > best or v != v:
                    best, where = v, int(np.ravel_multi_index(q, size))
        value[at], place[at] = best, where
    return value, place


SETTINGS = [
    (2, None, 0, 1, False),
    (3, 2, 1, 1, True),
    (3, 1, 1, 2, False),
    (5, 2, 2, 2, False),
    (2, 3, 1, 1, True),
]


CASES = list(itertools.product((1, 2, 3), SETTINGS))  # most have machine code of their own


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("axes", "settings"), some(CASES, 0, 4, 5, 6, 7, 8, 9, 11, 12), ids=str)
def test_values_places_and_gradients_in_both_layouts(
    axes: int, settings: tuple, device: str
) -> None:
    k, s, p, d, up = settings
    if device == "python" and (axes == 3 or k == 5):
        pytest.skip("minutes on the python backend")
    shape = {1: (2, 3, 41), 2: (2, 3, 9, 12), 3: (1, 2, 9, 9, 10)}[axes]
    x = np.round(RNG.standard_normal(shape, np.float32) * 4)  # with equals
    x[0, 1, 3] = np.nan
    want, places = defined(x, k, s or k, p, d, up)
    pool, back = getattr(K, f"max_pool{axes}d"), getattr(K, f"max_pool{axes}d_input")
    to, fro = (0, *range(2, axes + 2), 1), (0, axes + 1, *range(1, axes + 1))
    grad = RNG.standard_normal(want.shape, np.float32)
    slope = np.zeros((shape[0] * shape[1], math.prod(shape[2:])))
    for row, places_, g in zip(slope, places.reshape(len(slope), -1), grad.reshape(len(slope), -1)):
        np.add.at(row, places_, g.astype(np.float64))
    with cb.use(device):
        for layout in LAYOUTS[axes]:
            last = layout == LAYOUTS[axes][1]
            turn = (lambda a: np.ascontiguousarray(a.transpose(to))) if last else (lambda a: a)
            first = (lambda a: a.transpose(fro)) if last else (lambda a: a)
            np.testing.assert_array_equal(first(pool(turn(x), *settings, layout=layout)), want)
            value, place = pool(turn(x), *settings, return_indices=True, layout=layout)
            np.testing.assert_array_equal(first(value), want)
            np.testing.assert_array_equal(first(place), places)
            got = back(turn(x).shape, turn(grad), place, *settings, layout=layout)
            np.testing.assert_allclose(first(got), slope.reshape(shape), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "uint8", "int64"])
def test_dtypes_views_and_signals_without_batch(dtype: str) -> None:
    x = (RNG.standard_normal((2, 33, 9, 20)) * 50).astype(dtype)
    want, places = defined(x, 3, 2, 1, 1, False)
    np.testing.assert_array_equal(K.max_pool2d(x, 3, 2, 1), want)
    np.testing.assert_array_equal(K.max_pool2d(x, 3, 2, 1, return_indices=True)[1], places)
    turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(K.max_pool2d(turned, 3, 2, 1), want)
    np.testing.assert_array_equal(K.max_pool2d(x[:, ::2], 3, 2, 1), want[:, ::2])
    np.testing.assert_array_equal(K.max_pool2d(x[0], 3, 2, 1), want[0])
    out = np.zeros(want.shape[::-1], dtype).T
    assert K.max_pool2d(x, 3, 2, 1, out=out) is out
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_parts(axes: int) -> None:
    x = RNG.standard_normal((2, 3, *(7, 5, 6)[:axes]), np.float32)
    pool, back = (
        getattr(K, f"adaptive_max_pool{axes}d"),
        getattr(K, f"adaptive_max_pool{axes}d_input"),
    )
    value, place = pool(x, 3, return_indices=True)
    for at in np.ndindex(*(3,) * axes):
        cut = tuple(slice(i * n // 3, -(-(i + 1) * n // 3)) for i, n in zip(at, x.shape[2:]))
        part = x[(slice(None), slice(None), *cut)]
        np.testing.assert_array_equal(
            value[(slice(None), slice(None), *at)], part.max(tuple(range(2, 2 + axes)))
        )
    flat = np.take_along_axis(x.reshape(2, 3, -1), place.reshape(2, 3, -1), 2)
    np.testing.assert_array_equal(flat, value.reshape(2, 3, -1))
    grad = np.ones_like(value)
    got = back(x.shape, grad, place)
    assert got.shape == x.shape and got.sum() == grad.sum()
    assert ((got != 0) <= (x >= value.min())).all()


def test_rows_with_nan_or_infinity_in_the_middle_of_a_strip() -> None:
    x = RNG.standard_normal((1, 16, 40, 40), np.float32)
    x[0, 3, 20, 7], x[0, 4, 30, 39], x[0, 5] = np.nan, np.inf, -np.inf
    want, _ = defined(x, 5, 1, 2, 1, False)
    np.testing.assert_array_equal(K.max_pool2d(x, 5, 1, 2), want)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(
        K.max_pool2d(last, 5, 1, 2, layout="NHWC").transpose(0, 3, 1, 2), want
    )


def test_what_makes_no_sense_is_refused() -> None:
    x = np.zeros((1, 1, 4, 4), np.float32)
    with pytest.raises(errors.ShapeError, match="more than half"):
        K.max_pool2d(x, 2, padding=2)
    with pytest.raises(errors.ShapeError, match="does not fit"):
        K.max_pool2d(x, 7)
    with pytest.raises(errors.DTypeError):
        K.max_pool2d(x > 0, 2)
    with pytest.raises(errors.ShapeError, match="have shapes"):
        K.max_pool2d_input(x.shape, x, np.zeros((1, 1, 2, 2), np.int64), 2)


@pytest.mark.parametrize("planes", [3, 21, 34])
def test_gradients_of_planes_side_by_side_drop_places_outside(planes: int) -> None:
    x = RNG.standard_normal((1, planes, 11, 13), np.float32)
    grad, place = (
        RNG.standard_normal((1, planes, 11, 13), np.float32),
        K.max_pool2d(x, 5, 1, 2, return_indices=True)[1],
    )
    place = place.astype(np.int32)
    place[0, 0, 0, 0], place[0, -1, 3, 1], place[0, -1, 0, 1] = -1, -7, 143
    want = np.zeros((planes, 144))
    inside = np.where((place < 0) | (place > 142), 143, place).reshape(planes, -1)
    np.add.at(
        want, (np.arange(planes)[:, None], inside), grad.reshape(planes, -1).astype(np.float64)
    )
    got = K.max_pool2d_input(x.shape, grad, place, 5, 1, 2)
    np.testing.assert_allclose(got.reshape(planes, -1), want[:, :143], atol=1e-5)


def test_long_rows_in_parts_are_those_of_windows_one_by_one() -> None:
    """Rows that no cube has room for: values and positions, with NaN, ties, padding and gaps."""
    draw = np.random.default_rng(TURN)
    for _ in range(8):
        k, s, d = int(draw.integers(1, 6)), int(draw.integers(1, 9)), int(draw.integers(1, 4))
        how = {"stride": s, "padding": int(draw.integers(0, k // 2 + 1)), "dilation": d}
        how |= {"ceil_mode": bool(draw.integers(2)), "return_indices": True}
        x = draw.integers(-50, 50, (1, 2, 3, int(draw.integers(3900, 14000)))).astype(np.float32)
        x[:, :, :, draw.integers(0, x.shape[3], 5)] = np.nan
        of_images = how | {n: (1, how[n]) for n in ("stride", "dilation")}
        of_images["padding"] = (0, how["padding"])
        for function, image, size, options in (
            (K.max_pool1d, x[0], k, how),
            (K.max_pool2d, x, (2, k), of_images),
        ):
            value, index = function(image, size, **options)
            with cb.tune.force("max_pool", "naive"):
                wanted, there = function(image, size, **options)
            np.testing.assert_array_equal(value, wanted)
            np.testing.assert_array_equal(index, there)
