"""Convolutions that gather tiles of their image, on an emulated GPU: any layout, in one launch."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.backends.cuda.backend import offline
from cubepy.kernels.convolution import routines_gpu
from cubepy.kernels.convolution.problem import Convolution
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated

RNG = np.random.default_rng()
DTYPES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32))
ERRORS = dict(zip(DTYPES, (6e-4, 4e-3, 2e-6), strict=True))
PLANS: tuple[dict[str, int], ...] = ({}, {"rows": 128, "columns": 64, "stages": 3})


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes longer is done by it, too."""
    monkeypatch.setattr(routines_gpu, "ASIDE", math.inf)
    monkeypatch.setattr(routines_gpu, "LAID", {True: math.inf, False: math.inf})


def draw(*shape: int, dtype: Any) -> np.ndarray:
    """Small integers, whose products and sums matrix units hold."""
    return RNG.integers(-3, 4, shape).astype(dtype)


def somehow(a: np.ndarray, gpu: Any) -> Any:
    """With channels first or last in memory."""
    if RNG.random() < 0.3:
        return upload(a, gpu)
    order, back = (0, *range(2, a.ndim), 1), (0, a.ndim - 1, *range(1, a.ndim - 1))
    return upload(np.ascontiguousarray(a.transpose(order)), gpu).transpose(back)


def defined(x: Any, w: Any, stride: Any, pad: Any, dilation: Any) -> np.ndarray:
    """The sum over the window in float64, tap by tap."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((p, p) for p in pad)])
    ways = zip(x.shape[2:], w.shape[2:], stride, dilation, strict=True)
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in ways]
    total = np.zeros((x.shape[0], w.shape[0], *out))
    for tap in itertools.product(*map(range, w.shape[2:])):
        at = zip(tap, dilation, out, stride, strict=True)
        seen = tuple(slice(t * d, t * d + (m - 1) * s + 1, s) for t, d, m, s in at)
        part = np.moveaxis(x[(slice(None), slice(None), *seen)], 1, -1)
        total += np.moveaxis(part @ w[(..., *tap)].astype(np.float64).T, -1, 1)
    return total


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_random_windows_and_layouts(axes: int, dtype: Any) -> None:
    changes = PLANS[RNG.integers(2)]
    n, filters, channels = (int(RNG.integers(1, most)) for most in (4, 40, 40))
    channels = -(-channels // 8) * 8 if RNG.random() < 0.5 else channels
    window, stride, pad, dilation = (
        RNG.integers(low, high, axes).tolist() for low, high in ((1, 4), (1, 4), (0, 3), (1, 3))
    )
    window[-1] = max(window[-1], 2)  # windows of one pixel are products
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, window, strict=True)]
    size = [int(RNG.integers(max(1, r - 2 * p), r + 6)) for r, p in zip(reach, pad, strict=True)]
    x, w = draw(n, channels, *size, dtype=dtype), draw(filters, channels, *window, dtype=dtype)
    want = defined(x, w, stride, pad, dilation)
    bias, more = draw(filters, dtype=dtype), draw(*want.shape, dtype=dtype)
    whole = np.maximum(want + bias.astype(float).reshape(-1, *(1,) * axes) + more, 0)
    conv = (K.conv1d, K.conv2d, K.conv3d)[axes - 1]
    with emulated() as gpu, force("convolution", "mma", **changes):
        given = somehow(x, gpu), somehow(w, gpu)
        how = stride, pad, dilation
        plain = conv(*given, None, *how, precision="tf32").numpy()
        end: Any = {"activation": "relu", "add": somehow(more, gpu), "precision": "tf32"}
        ended = conv(*given, upload(bias, gpu), *how, **end).numpy()
    for got, right in ((plain, want), (ended, whole)):
        off = np.linalg.norm(got.astype(np.float64) - right)
        assert off <= ERRORS[dtype] * max(np.linalg.norm(right), 1)


@pytest.mark.usefixtures("always")
def test_what_lies_around_the_image_is_zero() -> None:
    """Taps outside are not read: neighbours in memory must not come in, infinities least of all."""
    x = np.full((2, 8, 3, 4), np.inf, np.float16)
    x[0] = 1
    with emulated() as gpu, force("convolution", "mma"):
        w = upload(np.ones((4, 8, 3, 3), np.float16), gpu)
        got = K.conv2d(somehow(x, gpu), w, padding=2).numpy()
    assert np.isfinite(got[0]).all() and got[0].max() == 72


def problem(channels: int, filters: int, window: int, size: int, n: int = 1, **more: Any) -> Any:
    pad = window // 2
    shape = {"kh": window, "kw": window, "ph": pad, "pw": pad, "height": size, "width": size}
    options = {"dtype": "f16", "weight": "f16", "layout": "last", "last": True, **shape, **more}
    return Convolution("cuda", n, channels, filters, **options)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (problem(8, 120, 5, 27, 4), None),
        (problem(16, 401, 3, 16, 4), None),
        (problem(3, 56, 3, 28, sh=2, sw=2), None),
        (problem(64, 64, 3, 56, 64), "more to do"),
        (problem(64, 64, 4, 56, 64, sh=4, sw=4), "more to do"),
        (problem(8, 120, 5, 27, 4, layout="first"), "more to do"),
        (problem(8, 120, 1, 27, 4), "several pixels"),
        (problem(8, 60, 5, 27, 4, groups=2), "one group"),
        (problem(8, 120, 5, 27, 4, dtype="f32", weight="f32"), "matrix units"),
    ],
)
def test_it_takes_what_laying_out_would_not_pay_for(what: Any, reason: str | None) -> None:
    found = routines_gpu.MmaOnGpu().supports(what, offline("sm_90a"))
    assert (found is None) if reason is None else (found is not None and reason in found)
    if reason == "more to do":  # before Hopper, what is copied in whole pieces
        there = routines_gpu.MmaOnGpu().supports(what, offline("sm_80"))
        assert (there is None) == (what.layout == "last")
