"""Whole functions of the library on an emulated Hopper GPU: what the host chooses, lays out and
launches, and its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.runtime.memory.device_array import upload

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.backends.cuda.thorough import some
from tests.kernels.convolution.test_conv import defined, gradients

BF16 = np.dtype(ml_dtypes.bfloat16)
Put = Callable[[np.ndarray], Any]


def draw(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 8).astype(dtype)


def near(got: Any, want: np.ndarray, tolerance: float) -> None:
    found = got.numpy().astype(np.float64)
    assert found.shape == want.shape and np.linalg.norm(found - want) <= tolerance * np.linalg.norm(
        want
    )


@pytest.mark.parametrize(
    "dtype", some([np.float16, np.float32, BF16, np.int64, np.uint8, np.float64], 0, 4), ids=str
)
def test_sort_and_topk(dtype: Any) -> None:
    x = np.abs(draw(2, 150)).astype(dtype)
    with emulated() as gpu:
        far = upload(x, gpu)
        np.testing.assert_array_equal(K.sort(far).numpy(), np.sort(x))
        order = np.argsort(x, stable=True)
        np.testing.assert_array_equal(K.argsort(far).numpy(), order)
        values, places = K.topk(far, 5, largest=False)
        np.testing.assert_array_equal(places.numpy(), order[:, :5])
        np.testing.assert_array_equal(values.numpy(), np.sort(x)[:, :5])


def test_copies_of_narrow_floats_keep_every_bit() -> None:
    bits = np.arange(0x7F00, 0x8080, dtype=np.uint16)  # NaN of both kinds are among them
    for dtype in (np.float16, BF16):
        with emulated() as gpu:
            got = K.copy(upload(bits.view(dtype), gpu)).numpy()
        np.testing.assert_array_equal(got.view(np.uint16), bits)


def test_matrix_units_get_f32_rounded_to_nearest() -> None:
    """They would cut off what tf32 does not hold; rows that the copy engine takes, and others."""
    for k in (32, 33):
        x, w = np.zeros((64, k), np.float32), np.eye(64, k, dtype=np.float32)
        x[:, 3] = 1 + 3 * 2.0**-12
        with emulated() as gpu:
            got = K.matmul(upload(x, gpu), upload(w, gpu).T, precision="tf32").numpy()
        assert (got[:, 3] == 1 + 2.0**-10).all() and np.count_nonzero(got) == 64


FILTERS = [  # input, filters, stride, padding, groups; layouts with channels last in memory and first
    ((2, 16, 6, 8), (16, 1, 3, 3), 1, 1, 16),
    ((1, 64, 6, 8), (64, 64, 3, 3), 1, 1, 1),
    ((1, 64, 8, 8), (64, 64, 3, 3), 2, 1, 1),
    ((1, 64, 6, 8), (64, 8, 3, 3), 1, 1, 8),
]


@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding", "groups"), some(FILTERS, 0), ids=str
)
def test_convolutions_and_their_gradients(
    shape: tuple[int, ...], filters: tuple[int, ...], stride: int, padding: int, groups: int
) -> None:
    """Against their definition, tap by tap."""
    x, w = draw(*shape, dtype=np.float16), draw(*filters, dtype=np.float16, seed=1)
    rest = (stride, padding, 1, groups)
    want = defined(x, w, *rest)
    g = draw(*want.shape, dtype=np.float16, seed=2)
    by_input, by_filters = gradients(x, w, g, *rest)
    with emulated() as gpu:
        puts: tuple[Put, ...] = (
            lambda a: upload(a, gpu),
            lambda a: upload(np.ascontiguousarray(a.transpose(0, 2, 3, 1)), gpu).transpose(
                (0, 3, 1, 2)
            ),
        )
        for put in puts:
            near(K.conv2d(put(x), put(w), None, *rest), want, 5e-4)
            near(K.conv_input(shape, put(w), put(g), *rest), by_input, 5e-4)
            near(K.conv_weight(put(x), filters, put(g), *rest), by_filters, 5e-4)


@pytest.mark.parametrize(("precision", "error"), some([(None, 1e-6), ("tf32", 1e-3)], 0))
def test_convolutions_of_f32_and_their_gradients(precision: str | None, error: float) -> None:
    """By plain arithmetic, or rounded for matrix units."""
    x, w, g = draw(2, 3, 5, 32), draw(16, 32, 1, 2, seed=1), draw(2, 3, 4, 16, seed=2)
    first, grad = x.transpose(0, 3, 1, 2), g.transpose(0, 3, 1, 2)
    wanted = defined(first, w), *gradients(first, w, grad)
    with emulated() as gpu:
        a, b = (upload(v, gpu).transpose((0, 3, 1, 2)) for v in (x, g))
        far = upload(w, gpu)
        near(K.conv2d(a, far, precision=precision), wanted[0], error)
        near(K.conv_input(first.shape, far, b, precision=precision), wanted[1], error)
        near(K.conv_weight(a, w.shape, b, precision=precision), wanted[2], error)


def test_softmax_sums_and_gathers() -> None:
    x, index = draw(3, 70), np.random.default_rng(1).integers(0, 70, (3, 9))
    with emulated() as gpu:
        far = upload(x, gpu)
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        near(K.softmax(far), e / e.sum(1, keepdims=True), 1e-6)
        near(K.sum(far[:, ::-1], 0), x.astype(np.float64)[:, ::-1].sum(0), 1e-6)
        np.testing.assert_array_equal(
            K.gather(far, 1, upload(index, gpu)).numpy(), np.take_along_axis(x, index, 1)
        )
        narrow = upload(np.array([0, 32767, 0, 0, 7], np.int16), gpu)  # has no atomics
        places, values = (
            upload(np.array([1, 1, 4]), gpu),
            upload(np.array([3, -4, 5], np.int16), gpu),
        )
        assert K.scatter(narrow, 0, places, values, "add", out=narrow).tolist() == [
            0,
            32766,
            0,
            0,
            12,
        ]
        assert K.index_put(narrow, (places,), values, "add").tolist() == [0, 32765, 0, 0, 17]
        image = draw(2, 3, 4, 4)
        seen = upload(np.ascontiguousarray(image.transpose(0, 2, 3, 1)), gpu).transpose(
            (0, 3, 1, 2)
        )
        means = K.avg_pool2d(seen, 2)
        near(means, image.reshape(2, 3, 2, 2, 2, 2).mean((3, 5), np.float64), 1e-6)
        assert means.transpose((0, 2, 3, 1)).flags.c_contiguous


def test_wide_windows_share_what_the_units_of_a_cube_find() -> None:
    x = draw(3, 2, 22, 19)
    x[0, 0, 3, 4] = np.nan
    around = np.pad(x, ((0, 0), (0, 0), (8, 8), (8, 8)), constant_values=-np.inf)
    want = np.lib.stride_tricks.sliding_window_view(around, (17, 17), (2, 3)).max((4, 5))
    with emulated() as gpu:
        np.testing.assert_array_equal(K.max_pool2d(upload(x, gpu), 17, 1, 8).numpy(), want)
        means = K.adaptive_avg_pool2d(upload(x[1:, :, :20, :18].copy(), gpu), 2)
        near(means, x[1:, :, :20, :18].reshape(2, 2, 2, 10, 2, 9).mean((3, 5)), 1e-6)


def test_weights_of_doubles_are_exact() -> None:
    x = draw(1, 6, 6, 3, dtype=np.float64)
    for mode, scale in (("area", 1 / 3), ("bilinear", 3.0), ("bicubic", 2.0)):
        want = K.interpolate(x, scale_factor=scale, mode=mode, layout="NHWC")
        with emulated() as gpu:
            found = K.interpolate(upload(x, gpu), scale_factor=scale, mode=mode, layout="NHWC")
            near(found, want, 1e-15)
    with emulated() as gpu:
        means = K.avg_pool2d(upload(x, gpu), 3, layout="NHWC")
        near(means, x.reshape(1, 2, 3, 2, 3, 3).mean((2, 4)), 1e-15)


@pytest.mark.parametrize(("channels", "window", "stride"), [(8, 5, 1), (16, 3, 2), (32, 5, 1)])
def test_rows_of_a_window_with_few_channels_are_one_tap(
    channels: int, window: int, stride: int
) -> None:
    """They would fill a part of a step each, even where the copy engine could take the channels as
    they are.
    """
    x, w = (
        draw(2, channels, 7, 9, dtype=np.float16),
        draw(16, channels, window, window, dtype=np.float16, seed=1),
    )
    want = defined(x, w, stride, window // 2)
    with emulated() as gpu:
        far = upload(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), gpu).transpose((0, 3, 1, 2))
        near(K.conv2d(far, upload(w, gpu), None, stride, window // 2), want, 5e-4)
