"""Average pooling and interpolation against their definitions in float64; gradients are the
transposed maps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cubepy import errors
from cubepy import kernels as K

F = np.float32
RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=F)


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=3e-6)


def averages(x: np.ndarray, k: tuple, s: tuple, p: tuple, up: bool, include: bool) -> np.ndarray:
    """Window by window."""
    sizes = []
    for n, kk, ss, pp in zip(x.shape[2:], k, s, p):
        m = (math.ceil if up else math.floor)((n + 2 * pp - kk) / ss) + 1
        sizes.append(m - 1 if up and (m - 1) * ss >= n + pp else m)
    out = np.zeros((*x.shape[:2], *sizes))
    for i, j in np.ndindex(*sizes):
        cut, area = [], 1
        for at, n, kk, ss, pp in zip((i, j), x.shape[2:], k, s, p):
            start, end = at * ss - pp, min(at * ss - pp + kk, n + pp)
            cut.append(slice(max(start, 0), min(end, n)))
            area *= end - start if include else min(end, n) - max(start, 0)
        out[:, :, i, j] = x[:, :, cut[0], cut[1]].astype(np.float64).sum((2, 3)) / area
    return out


POOLS = [((2, 2), (2, 2), (0, 0), False, True), ((3, 3), (2, 2), (1, 1), False, True), ((3, 3), (2, 2), (1, 1), True, False),
         ((5, 5), (3, 3), (2, 2), True, True), ((3, 2), (1, 2), (1, 0), False, False)]  # fmt: skip


@pytest.mark.parametrize("settings", POOLS, ids=str)
def test_avg_pool2d_and_its_gradient(settings: Any) -> None:
    x = draw(2, 3, 13, 17)
    want = averages(x, *settings)
    close(K.avg_pool2d(x, *settings), want)
    close(
        K.avg_pool2d(x.transpose(0, 2, 3, 1), *settings, layout="NHWC").transpose(0, 3, 1, 2), want
    )
    grad = draw(*want.shape)
    back = K.avg_pool2d_input(x.shape, grad, *settings)
    assert abs(float((back.astype(np.float64) * x).sum() - (grad * want).sum())) < 1e-3


def test_adaptive_pooling() -> None:
    x = draw(2, 3, 13, 7)
    close(K.adaptive_avg_pool2d(x, 1), x.astype(np.float64).mean((2, 3), keepdims=True))
    got = K.adaptive_avg_pool2d(x, (5, 3))
    for i in range(5):
        for j in range(3):
            part = x[:, :, i * 13 // 5 : -(-(i + 1) * 13 // 5), j * 7 // 3 : -(-(j + 1) * 7 // 3)]
            close(got[:, :, i, j], part.astype(np.float64).mean((2, 3)))


def cubic(d: float) -> float:
    d, a = abs(d), -0.75
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def interpolated(row: np.ndarray, m: int, mode: str, corners: bool) -> np.ndarray:
    """One axis, place by place."""
    n, out = len(row), np.zeros(m)
    for j in range(m):
        if mode == "nearest":
            out[j] = row[min(int(j * n / m), n - 1)]
            continue
        at = j * (n - 1) / max(m - 1, 1) if corners else (j + 0.5) * n / m - 0.5
        at = max(at, 0.0) if mode == "linear" else at
        low = math.floor(at)
        for k in range(low - 1, low + 3):
            weight = cubic(at - k) if mode == "cubic" else max(0.0, 1 - abs(at - k))
            out[j] += weight * row[min(max(k, 0), n - 1)]
    return out


@pytest.mark.parametrize("size", [(26, 34), (7, 9), (1, 40)], ids=str)
@pytest.mark.parametrize(
    ("mode", "kind"), [("nearest", "nearest"), ("bilinear", "linear"), ("bicubic", "cubic")]
)
@pytest.mark.parametrize("corners", [False, True])
def test_interpolate_and_its_gradient(
    size: tuple[int, int], mode: str, kind: str, corners: bool
) -> None:
    x = draw(1, 2, 13, 17)
    want = np.apply_along_axis(interpolated, 2, x.astype(np.float64), size[0], kind, corners)
    want = np.apply_along_axis(interpolated, 3, want, size[1], kind, corners)
    close(K.interpolate(x, size, mode=mode, align_corners=corners), want)
    last = K.interpolate(
        x.transpose(0, 2, 3, 1), size, mode=mode, align_corners=corners, layout="NHWC"
    )
    close(last.transpose(0, 3, 1, 2), want)
    grad = draw(*want.shape)
    back = K.interpolate_input(x.shape, grad, mode, corners)
    assert (
        back.shape == x.shape
        and abs(float((back.astype(np.float64) * x).sum() - (grad * want).sum())) < 1e-3
    )


def test_gradients_that_are_repeated_go_by_the_size_too() -> None:
    grad = draw(1, 2, 6, 6)
    places = {n: K.max_pool2d(draw(1, 2, n, n), 2, return_indices=True)[1] for n in (12, 13)}
    for mode in ("nearest", "bilinear"):
        for _ in range(4):  # the third call is the first that is repeated
            for size in (8, 12):
                back = K.interpolate_input([1, 2, size, np.int64(size)], grad, mode)
                assert (
                    back.shape == (1, 2, size, size) and abs(float(back.sum() - grad.sum())) < 1e-4
                )
    for size in (12, 13, 12, 13, 12, 13):
        back = K.max_pool2d_input((1, 2, size, size), grad, indices=places[size], kernel_size=2)
        assert back.shape == (1, 2, size, size) and abs(float(back.sum() - grad.sum())) < 1e-4
    with pytest.raises(errors.ArgumentError):
        K.avg_pool2d_input((1, 2, 12.0, 12), grad, 2)


def test_other_axes_factors_and_dtypes() -> None:
    x = draw(2, 3, 10)
    close(
        K.interpolate(x, scale_factor=2, mode="linear"),
        np.apply_along_axis(interpolated, 2, x.astype(float), 20, "linear", False),
    )
    assert K.interpolate(draw(1, 2, 3, 4, 5), 6, mode="trilinear").shape == (1, 2, 6, 6, 6)
    h = x.astype(np.float16)
    assert K.interpolate(h, 5, mode="area").dtype == np.float16
    out = np.zeros((2, 5, 3), F).transpose(0, 2, 1)
    assert K.interpolate(x, 5, mode="area", out=out) is out
    close(out, x.reshape(2, 3, 5, 2).mean(3))


def test_nan_reaches_what_sees_it_only() -> None:
    x = np.ones((1, 1, 8, 8), F)
    x[0, 0, 0, 0] = np.nan
    got = K.avg_pool2d(x, 2)
    assert np.isnan(got[0, 0, 0, 0]) and np.isnan(got).sum() == 1


def test_what_makes_no_sense_is_refused() -> None:
    x = draw(1, 2, 5, 5)
    with pytest.raises(errors.ShapeError, match="more than half"):
        K.avg_pool2d(x, 2, padding=2)
    with pytest.raises(errors.ShapeError, match="does not fit"):
        K.avg_pool2d(x, 7)
    with pytest.raises(errors.ShapeError, match="either size or scale_factor"):
        K.interpolate(x)
    with pytest.raises(errors.ShapeError, match="mode is one of"):
        K.interpolate(x, 3, mode="linear")
    assert K.avg_pool2d(np.zeros((0, 2, 4, 4), F), 2).shape == (0, 2, 2, 2)


def test_nearest_places_are_those_of_whole_numbers() -> None:
    """13 * (30 / 26) is less than 15 in float64, and 13 * 30 // 26 is 15."""
    for n, m in ((30, 26), (45, 33), (58, 50), (7, 49)):
        x = np.arange(n, dtype=np.float32)[None, None]
        want = np.arange(m) * n // m
        np.testing.assert_array_equal(K.interpolate(x, m)[0, 0], want)
        back = K.interpolate_input((1, 1, n), np.ones((1, 1, m), np.float32))
        np.testing.assert_array_equal(back[0, 0], np.bincount(want, minlength=n))
