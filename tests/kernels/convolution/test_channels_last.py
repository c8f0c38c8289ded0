"""Images with channels last in whole lines, copies that turn them, and calls that are repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from tests.kernels.interpolate.test_interpolate import interpolated
from tests.staging import DEVICES

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def last(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


CALLS: dict[str, Callable[[Any, str], Any]] = {
    "avg 2x2": lambda x, layout: K.avg_pool2d(x, 2, layout=layout),
    "avg 3x3": lambda x, layout: K.avg_pool2d(x, 3, 2, 1, layout=layout),
    "avg, whole": lambda x, layout: K.avg_pool2d(
        x, x.shape[1:3] if layout == "NHWC" else x.shape[2:], layout=layout
    ),
    "bilinear": lambda x, layout: K.interpolate(x, (9, 4), mode="bilinear", layout=layout),
    "nearest": lambda x, layout: K.interpolate(x, (10, 5), layout=layout),
    "nearest, twice": lambda x, layout: K.interpolate(x, scale_factor=2, layout=layout),
    "max 5x5": lambda x, layout: K.max_pool2d(x, 5, 1, 2, layout=layout),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_both_layouts_agree(name: str, device: str) -> None:
    call, x = CALLS[name], draw(2, 20, 8, 7 if device == "python" else 16)
    with cb.use(device):
        want, got = call(x, "NCHW"), call(last(x), "NHWC")
    np.testing.assert_allclose(np.asarray(got).transpose(0, 3, 1, 2), want, atol=3e-6)


def test_nan_stays_in_its_windows() -> None:
    x = draw(1, 7, 7, 16)
    x[0, 3, 3, 5] = np.nan
    got = K.avg_pool2d(x, 3, 2, 1, layout="NHWC")
    seen = np.zeros(got.shape, bool)
    seen[0, 1:3, 1:3, 5] = True
    np.testing.assert_array_equal(np.isnan(got), seen)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("settings", [(3, 2, 1), (2, 2, 0)], ids=str)
def test_the_gradient_of_largest_values_in_both_layouts(
    settings: tuple[int, int, int], device: str
) -> None:
    x = np.round(draw(2, 20, 7, 6))  # with equals
    with cb.use(device):
        value, place = K.max_pool2d(x, *settings, return_indices=True)
        grad = draw(*value.shape)
        want = K.max_pool2d_input(x.shape, grad, place, *settings)
        got = K.max_pool2d_input(last(x).shape, last(grad), last(place), *settings, layout="NHWC")
    np.testing.assert_array_equal(np.asarray(got).transpose(0, 3, 1, 2), want)


@pytest.mark.parametrize(
    "shape, axes", [((2, 3, 40), (0, 2, 1)), ((2, 40, 4), (0, 2, 1)), ((3, 4, 5, 6), (3, 1, 0, 2))]
)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64])
def test_a_copy_of_a_turned_view(shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any) -> None:
    x = (draw(*shape) * 50).astype(dtype)
    np.testing.assert_array_equal(K.copy(x.transpose(axes)), x.transpose(axes))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_padded_pixels(mode: str) -> None:
    x, widths = draw(2, 4, 9, 3), ((0, 0), (1, 2), (3, 2), (0, 0))
    got = K.pad(x, (0, 0, 3, 2, 1, 2), "replicate" if mode == "edge" else mode)
    np.testing.assert_array_equal(got, np.pad(x, widths, mode))


def test_sums_of_few_columns() -> None:
    x = draw(2, 512, 20)
    np.testing.assert_allclose(K.mean(x, 1), x.astype(np.float64).mean(1), atol=1e-6)
    x[1, 77, 3] = np.nan
    np.testing.assert_array_equal(K.max(x, 1), x.max(1))


def test_repeated_calls_see_new_numbers() -> None:
    calls = [*CALLS.values(), lambda x, layout: K.pad(x, (1, 2, 3, 4))]
    for call in calls:
        x = draw(1, 16, 8, 8)
        for k in range(3):  # the third is repeated
            np.testing.assert_array_equal(call(x + k, "NHWC"), call((x + k).copy(), "NHWC"))
        wide = np.zeros((2, *x.shape), np.float32)
        wide[0] = x
        np.testing.assert_array_equal(call(wide[0], "NHWC"), call(x, "NHWC"))


def test_cubic_places_that_lie_on_places_of_the_input() -> None:
    """A row of one weight stands beside rows of four that begin before it."""
    x = draw(1, 1, 4, 7)
    got = K.interpolate(x, (4, 19), mode="bicubic", align_corners=True)
    want = [interpolated(row, 19, "cubic", True) for row in x[0, 0]]
    np.testing.assert_allclose(got[0, 0], want, atol=3e-6)
