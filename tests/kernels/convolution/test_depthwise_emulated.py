"""The depthwise convolution for Hopper and its gradients, run by the emulator, against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.kernels.convolution import problem
from cubepy.kernels.convolution.gradients import CONV_WEIGHT
from cubepy.kernels.convolution.transposed_routines import CONV_TRANSPOSE
from cubepy.runtime.memory import device_array

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")

from tests.backends.cuda.emulator.device import emulated
from tests.properties import choose_as_on

H, B, F = np.float16, ml_dtypes.bfloat16, np.float32
ERRORS = {H: 4e-4, B: 3e-3, F: 1e-6}
# shape (N, C, H, W), window, stride, padding, dilation, dtype
CASES: dict[str, tuple[Any, ...]] = {
    "padding": ((2, 16, 9, 12), (3, 3), (1, 1), (1, 1), (1, 1), H),
    "several images of a tile": ((5, 8, 3, 3), (3, 3), (1, 1), (1, 1), (1, 1), B),
    "more tiles than cubes": ((3, 8, 15, 9), (3, 3), (1, 1), (1, 1), (1, 1), H),
    "stride, two blocks of channels": ((1, 40, 9, 7), (3, 3), (2, 2), (1, 1), (1, 1), F),
    "no padding, dilation, two strides": ((1, 8, 13, 11), (3, 2), (1, 2), (0, 0), (2, 3), F),
    "a wide window": ((1, 8, 9, 9), (7, 7), (1, 1), (3, 3), (1, 1), F),
    "a stride beyond the window": ((1, 8, 9, 8), (2, 1), (3, 2), (0, 0), (1, 1), H),
}


def seen_by_taps(x: np.ndarray, window: Any, stride: Any, pad: Any, dilation: Any) -> np.ndarray:
    """(taps, N, C, *out) in float64."""
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((p, p) for p in pad)])
    out = [
        (n - d * (k - 1) - 1) // s + 1
        for n, d, k, s in zip(wide.shape[2:], dilation, window, stride, strict=True)
    ]
    h, w = (
        [slice(t * d, t * d + (m - 1) * s + 1, s) for t in range(k)]
        for k, d, m, s in zip(window, dilation, out, stride, strict=True)
    )
    return np.stack([wide[:, :, i, j] for i in h for j in w])


def distance(got: Any, want: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(got).astype(np.float64) - want) / np.linalg.norm(want))


FEW = "more tiles than cubes", "stride, two blocks of channels", "a wide window"


@pytest.mark.parametrize(("case", "cores"), [(case, 1 if case in FEW else 132) for case in CASES])
def test_results(case: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both layouts; with one core tiles are large, and cubes do several."""
    for op in (CONV_WEIGHT, CONV_TRANSPOSE):
        choose_as_on(monkeypatch, op, cores=cores)
    usual = problem.device_properties
    monkeypatch.setattr(
        problem, "device_properties", lambda device: replace(usual(device), cores=cores)
    )
    shape, window, stride, pad, dilation, dtype = CASES[case]
    rng = np.random.default_rng(0)
    c = shape[1]
    x, w, b = (rng.standard_normal(s).astype(dtype) for s in (shape, (c, 1, *window), (c,)))
    taps = seen_by_taps(x, window, stride, pad, dilation)
    grad = rng.standard_normal(taps.shape[1:]).astype(dtype)
    scale = w.astype(np.float64).reshape(c, -1)
    wide = np.zeros((*shape[:2], *(n + 2 * p for n, p in zip(shape[2:], pad, strict=True))))
    for k, (i, j) in enumerate(np.ndindex(*window)):
        at = [
            slice(t * d, t * d + (m - 1) * s + 1, s)
            for t, d, m, s in zip((i, j), dilation, grad.shape[2:], stride, strict=True)
        ]
        wide[:, :, at[0], at[1]] += grad.astype(np.float64) * scale[:, k, None, None]
    by_input = wide[:, :, pad[0] : pad[0] + shape[2], pad[1] : pad[1] + shape[3]]
    last = (0, 2, 3, 1)
    with emulated() as device:
        view, given = (
            device_array.upload(np.ascontiguousarray(a.transpose(last)), device) for a in (x, grad)
        )
        filters, more = device_array.upload(w, device), device_array.upload(b, device)
        settings = (stride, pad, dilation, c)
        got = K.conv2d(view, filters, more, *settings, activation="relu", layout="NHWC").numpy()
        by_weight = K.conv_weight(
            view.transpose(0, 3, 1, 2), w.shape, given.transpose(0, 3, 1, 2), *settings
        ).numpy()
        first = device_array.upload(x, device), device_array.upload(grad, device)
        planes = [
            K.conv2d(first[0], filters, more, *settings, activation="relu").numpy(),
            K.conv_input(shape, filters, first[1], *settings).numpy(),
            K.conv_weight(first[0], w.shape, first[1], *settings).numpy().reshape(c, -1),
        ]
        back = K.conv_input(shape, filters, given.transpose(0, 3, 1, 2), *settings).numpy()
    want = np.maximum(
        np.einsum("tnchw,ct->nchw", taps, scale) + b.astype(np.float64)[:, None, None], 0
    )
    assert distance(got.transpose(0, 3, 1, 2), want) < ERRORS[dtype]
    for one, wanted in zip(planes[:2], (want, by_input), strict=True):
        assert distance(one, wanted) < ERRORS[dtype]
    by_tap = np.einsum("tnchw,nchw->ct", taps, grad.astype(np.float64))
    assert distance(planes[2], by_tap) < ERRORS[dtype]
    assert distance(by_weight.reshape(c, -1), by_tap) < ERRORS[dtype]
    assert distance(back, by_input) < ERRORS[dtype]


def test_several_channels_of_a_group_are_not_depthwise() -> None:
    """A transposed convolution with one filter of a group, which sees two channels."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(H) for s in ((1, 16, 5, 6), (16, 1, 3, 3)))
    with emulated() as device:
        given = [device_array.upload(a, device) for a in (x, w)]
        got = K.conv_transpose2d(*given, padding=1, groups=8).numpy()
    want = K.conv_transpose2d(x.astype(F), w.astype(F), padding=1, groups=8)
    assert got.shape == want.shape == (1, 8, 5, 6) and distance(got, want) < ERRORS[H]
