"""Convolutions on the GPU against float64 (with activations: against the CPU in f32): layouts,
strides, edges, dtypes, epilogues.
"""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
import cubepy.kernels as K
from cubepy.kernels.convolution import routines_gpu
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.sm90.implicit_gemm import HopperWindow, hopper_convolution
from cubepy.kernels.convolution.sm90.implicit_gemm_plan import TILES, prepared
from cubepy.kernels.convolution.sm90.operand_layout import laid_out
from cubepy.kernels.matmul.sm90.persistent import UNITS
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

GPU = Device("cuda")
BF16 = ml_dtypes.bfloat16
ERRORS = {np.dtype(BF16): 4e-3, np.dtype(np.float16): 6e-4, np.dtype(np.float32): 2e-6}


def draw(*shape: int, dtype: Any = np.float16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def defined(x: np.ndarray, w: np.ndarray, stride: Any, padding: Any, dilation: Any) -> np.ndarray:
    """The sum over the window in float64, tap by tap; x is (N, C, *size)."""
    axes = x.ndim - 2
    s, p, d = (v if isinstance(v, tuple) else (v,) * axes for v in (stride, padding, dilation))
    x, w = (
        np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((k, k) for k in p)]),
        w.astype(np.float64),
    )
    out = [
        (n - dd * (k - 1) - 1) // ss + 1
        for n, k, ss, dd in zip(x.shape[2:], w.shape[2:], s, d, strict=True)
    ]
    total = np.zeros((x.shape[0], w.shape[0], *out))
    for tap in itertools.product(*map(range, w.shape[2:])):
        at = [
            slice(t * dd, t * dd + (m - 1) * ss + 1, ss)
            for t, dd, m, ss in zip(tap, d, out, s, strict=True)
        ]
        total += np.moveaxis(
            np.moveaxis(x[(slice(None), slice(None), *at)], 1, -1) @ w[(..., *tap)].T, -1, 1
        )
    return total


def close(got: Any, want: np.ndarray, dtype: Any) -> None:
    array = got.numpy().astype(np.float64)
    assert array.shape == want.shape
    error = np.linalg.norm(array - want) / np.linalg.norm(want)
    assert error <= ERRORS[np.dtype(dtype)], error


def last(a: np.ndarray) -> Any:
    """The array on the GPU with channels last in memory, as a view with channels first."""
    order = (0, *range(2, a.ndim), 1)
    back = (0, a.ndim - 1, *range(1, a.ndim - 1))
    return upload(np.ascontiguousarray(a.transpose(order)), GPU).transpose(back)


CASES = [  # input, filters, stride, padding, dilation
    ((4, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    ((3, 128, 28, 28), (136, 128, 3, 3), 1, 1, 1),
    ((33, 72, 7, 7), (264, 72, 3, 3), 1, 1, 1),
    ((2, 64, 57, 33), (128, 64, 3, 3), 2, 1, 1),
    ((2, 64, 30, 41), (64, 64, 3, 5), (2, 1), (1, 4), (1, 2)),
    ((5, 256, 14, 14), (512, 256, 1, 1), 2, 0, 1),
    ((5, 64, 14, 14), (256, 64, 1, 1), 1, 0, 1),
    ((2, 8, 9, 11), (8, 8, 3, 3), 1, 2, 1),
    ((2, 3, 40, 40), (64, 3, 7, 7), 2, 3, 1),
    ((2, 20, 9, 9), (10, 20, 3, 3), 1, 1, 1),
    ((2, 64, 20, 20), (64, 64, 4, 4), 4, 0, 1),
    ((1, 64, 1, 300), (32, 64, 1, 3), 1, (0, 1), 1),
    ((2, 3, 33, 65), (24, 3, 3, 3), 1, 1, 1),
]


@pytest.mark.parametrize("dtype", [np.float16, BF16], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(("shape", "filters", "stride", "padding", "dilation"), CASES, ids=str)
def test_conv2d_in_every_layout(
    shape: Any, filters: Any, stride: Any, padding: Any, dilation: Any, dtype: Any
) -> None:
    x, w, b = (
        draw(*shape, dtype=dtype),
        draw(*filters, dtype=dtype, seed=1),
        draw(filters[0], dtype=dtype, seed=2),
    )
    rest = (stride, padding, dilation)
    plain = defined(x, w, *rest)
    want = np.maximum(plain + b.astype(np.float64)[:, None, None], 0)
    bias = upload(b, GPU)
    close(K.conv2d(last(x), upload(w, GPU), bias, *rest, activation="relu"), want, dtype)
    close(K.conv2d(last(x), last(w), None, *rest), plain, dtype)
    close(K.conv2d(upload(x, GPU), upload(w, GPU), bias, *rest, activation="relu"), want, dtype)
    nhwc = upload(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), GPU)
    out = upload(np.full(want.transpose(0, 2, 3, 1).shape, np.nan, dtype), GPU)
    K.conv2d(nhwc, upload(w, GPU), bias, *rest, activation="relu", layout="NHWC", out=out)
    close(out, want.transpose(0, 2, 3, 1), dtype)


@pytest.mark.parametrize("activation", ["gelu", "silu", "sigmoid", "tanh"])
def test_activations(activation: str) -> None:
    x, w, b = draw(2, 64, 12, 12), draw(64, 64, 3, 3, seed=1) * np.float16(0.05), draw(64, seed=2)
    with cb.use("cpu"):
        want = K.conv2d(
            *(v.astype(np.float32) for v in (x, w, b)), padding=1, activation=activation
        )
    got = K.conv2d(last(x), upload(w, GPU), upload(b, GPU), padding=1, activation=activation)
    close(got, want.astype(np.float64), np.float16)


def test_lines_and_volumes() -> None:
    x, w = draw(3, 64, 200), draw(64, 64, 5, seed=1)
    close(K.conv1d(last(x), upload(w, GPU), padding=2), defined(x, w, 1, 2, 1), x.dtype)
    close(K.conv1d(upload(x, GPU), upload(w, GPU), stride=2), defined(x, w, 2, 0, 1), x.dtype)
    x, w = draw(2, 32, 6, 10, 12), draw(48, 32, 3, 3, 3, seed=1)
    close(K.conv3d(last(x), upload(w, GPU), padding=1), defined(x, w, 1, 1, 1), x.dtype)
    close(
        K.conv3d(last(x), upload(w, GPU), None, (1, 2, 2), 1),
        defined(x, w, (1, 2, 2), 1, 1),
        x.dtype,
    )
    close(K.conv3d(upload(x, GPU), upload(w, GPU), None, 2), defined(x, w, 2, 0, 1), x.dtype)


def test_single_precision_and_groups() -> None:
    x, w = draw(2, 8, 13, 11, dtype=np.float32), draw(12, 8, 3, 3, dtype=np.float32, seed=1)
    close(K.conv2d(upload(x, GPU), upload(w, GPU), padding=1), defined(x, w, 1, 1, 1), x.dtype)
    w = draw(12, 4, 3, 3, dtype=np.float32, seed=1)
    want = np.concatenate(
        [defined(x[:, 4 * g : 4 * g + 4], w[6 * g : 6 * g + 6], 2, 1, 1) for g in range(2)], 1
    )
    close(K.conv2d(last(x), upload(w, GPU), None, 2, 1, groups=2), want, x.dtype)


def test_a_part_of_the_channels_is_read_where_it_is() -> None:
    x, w = draw(2, 96, 10, 10), draw(64, 64, 3, 3, seed=1)
    nhwc = upload(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), GPU)
    got = K.conv2d(nhwc[..., 16:80], upload(w, GPU), padding=1, layout="NHWC")
    close(got, defined(x[:, 16:80], w, 1, 1, 1).transpose(0, 2, 3, 1), x.dtype)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("plan", TILES, ids=lambda p: f"{p.rows}x{p.columns}")
def test_every_tile_walks_over_many_boxes(plan: HopperWindow, stride: int) -> None:
    """As many cubes as a small and as a large device would have; results do not depend on it."""
    if "wgmma" not in cb.device_properties_of().features:
        pytest.skip("the device has no wgmma")
    x, w = draw(40, 15, 15, 136), draw(264, 136, 3, 3, seed=1)
    side = (15 + 2 - 3) // stride + 1
    problem = Problem(
        (1, 15, 15), (1, 3, 3), (1, stride, stride), (0, 1, 1), (1, 1, 1), (1, side, side)
    )
    want = defined(x.transpose(0, 3, 1, 2), w, stride, 1, 1).transpose(0, 2, 3, 1)
    for cores in (3, cb.device_properties_of().cores):
        out = upload(np.full((40, side, side, 264), np.nan, np.float16), GPU)
        given, taps, _ = laid_out(upload(x, GPU), upload(w, GPU), problem)
        cubes, arguments = prepared(given, taps, None, out, problem, None, cores, plan)
        hopper_convolution[cubes, UNITS](*arguments, mode="unchecked")
        close(out, want, np.float16)


GROUPED = [  # input, filters, stride, padding, dilation, groups
    ((3, 128, 14, 15), (128, 4, 3, 3), 1, 1, 1, 32),
    ((2, 128, 14, 15), (256, 64, 3, 3), 2, 1, 1, 2),
    ((3, 32, 30, 56), (32, 1, 3, 3), 1, 1, 1, 32),
    ((2, 24, 31, 28), (48, 1, 5, 3), (2, 1), (1, 2), (1, 2), 24),
    ((2, 17, 9, 7), (17, 1, 7, 7), 1, 3, 1, 17),
    ((2, 6, 12, 12), (9, 2, 3, 3), 1, 1, 1, 3),
]


@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding", "dilation", "groups"), GROUPED, ids=str
)
def test_groups_in_every_layout(
    shape: Any, filters: Any, stride: Any, padding: Any, dilation: Any, groups: int, dtype: Any
) -> None:
    x, w, b = (
        draw(*shape, dtype=dtype),
        draw(*filters, dtype=dtype, seed=1),
        draw(filters[0], dtype=dtype, seed=2),
    )
    rest = (stride, padding, dilation)
    c, f = filters[1], filters[0] // groups
    parts = [
        defined(x[:, g * c : (g + 1) * c], w[g * f : (g + 1) * f], *rest) for g in range(groups)
    ]
    want = np.maximum(np.concatenate(parts, 1) + b.astype(np.float64)[:, None, None], 0)
    for place in (last, lambda a: upload(a, GPU)):
        close(
            K.conv2d(place(x), upload(w, GPU), upload(b, GPU), *rest, groups, activation="relu"),
            want,
            dtype,
        )


GRADIENTS = [  # input, filters, stride, padding, dilation, groups
    ((4, 64, 28, 28), (64, 64, 3, 3), 1, 1, 1, 1),
    ((3, 72, 15, 14), (136, 72, 3, 3), 2, 1, 1, 1),
    ((2, 64, 14, 14), (256, 64, 1, 1), 2, 0, 1, 1),
    ((70, 128, 7, 7), (64, 128, 3, 3), 1, 1, 1, 1),
    ((2, 16, 21, 20), (24, 16, 4, 5), (3, 2), (1, 2), (2, 1), 1),
    ((2, 10, 9, 9), (7, 10, 3, 3), 1, 1, 1, 1),
    ((3, 32, 13, 28), (32, 1, 3, 3), 1, 1, 1, 32),
    ((3, 32, 13, 28), (32, 1, 5, 5), 2, 2, 1, 32),
]


@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding", "dilation", "groups"), GRADIENTS, ids=str
)
def test_gradients_in_every_layout(
    shape: Any, filters: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    x, w = draw(*shape), draw(*filters, seed=1)
    s, p, d = (v if isinstance(v, tuple) else (v, v) for v in (stride, padding, dilation))
    out = [
        (n + 2 * b - e * (k - 1) - 1) // a + 1
        for n, k, a, b, e in zip(shape[2:], filters[2:], s, p, d, strict=True)
    ]
    grad = draw(shape[0], filters[0], *out, seed=2)
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (p[0],) * 2, (p[1],) * 2])
    by_input, by_filter = np.zeros(wide.shape), np.zeros(filters)
    c, f = filters[1], filters[0] // groups
    for g, u, v in itertools.product(range(groups), range(filters[2]), range(filters[3])):
        here, there = slice(g * c, (g + 1) * c), slice(g * f, (g + 1) * f)
        rows, columns = (
            slice(k * e, k * e + (m - 1) * a + 1, a)
            for k, e, m, a in zip((u, v), d, out, s, strict=True)
        )
        given = grad[:, there].astype(np.float64)
        by_input[:, here, rows, columns] += np.einsum(
            "nfhw,fc->nchw", given, w[there, :, u, v].astype(np.float64)
        )
        by_filter[there, :, u, v] = np.einsum("nfhw,nchw->fc", given, wide[:, here, rows, columns])
    by_input = by_input[:, :, p[0] : p[0] + shape[2], p[1] : p[1] + shape[3]]
    for place in (last, lambda a: upload(a, GPU)):
        close(
            K.conv_input(shape, place(w), place(grad), stride, padding, dilation, groups),
            by_input,
            x.dtype,
        )
        close(
            K.conv_weight(place(x), filters, place(grad), stride, padding, dilation, groups),
            by_filter,
            x.dtype,
        )


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("tile", [(64, 64, 4), (128, 128, 3)], ids=str)
def test_tiles_that_are_gathered(
    tile: tuple[int, int, int], dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every layout and dtype, with what follows a sum; also where other routines are quicker."""
    monkeypatch.setattr(routines_gpu, "ASIDE", np.inf)
    monkeypatch.setattr(routines_gpu, "LAID", {True: np.inf, False: np.inf})
    rows, columns, stages = tile
    error = 1.5e-3 if dtype is np.float32 else None
    for shape, filters, *rest in CASES:
        if filters[2:] == (1, 1) and rest[0] == 1:
            continue
        x, w = draw(*shape, dtype=dtype), draw(*filters, dtype=dtype, seed=1)
        plain = defined(x, w, *rest)
        b, more = draw(filters[0], dtype=dtype, seed=2), draw(*plain.shape, dtype=dtype, seed=3)
        whole = np.maximum(plain + b.astype(float)[:, None, None] + more.astype(float), 0)
        end: Any = {"activation": "relu", "precision": "tf32"}
        with force("convolution", "mma", rows=rows, columns=columns, stages=stages):
            for put in (last, lambda a: upload(a, GPU)):
                found = K.conv2d(put(x), last(w), None, *rest, precision="tf32")
                ended = K.conv2d(put(x), put(w), upload(b, GPU), *rest, add=put(more), **end)
                for got, want in ((found, plain), (ended, whole)):
                    off = np.linalg.norm(got.numpy().astype(float) - want) / np.linalg.norm(want)
                    assert off <= (error or ERRORS[np.dtype(dtype)]), (shape, filters, off)
