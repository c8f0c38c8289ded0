"""Fourier transforms as products with matrices of cosines and sines, and mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.formats.onnx_schema import DTYPES
from cubepy.models.fourier import dft_of
from cubepy.models.onnx.records import Call, axis_of, operator
from cubepy.tensor import Tensor


@operator("DFT", reads=(1, 2))
def dft(call: Call, x: Tensor, length: Any = None, axis: Any = None) -> Tensor:
    """The discrete Fourier transform along an axis."""
    at = -2 if axis is None else int(axis.reshape(-1)[0])
    at = axis_of(call.get("axis", 1) if call.version < 20 else at, len(x.shape))
    inverse, onesided = bool(call.get("inverse", 0)), bool(call.get("onesided", 0))
    n = x.shape[at]
    if length is not None:
        n = int(length.reshape(-1)[0])
    elif inverse and onesided:
        n = 2 * (n - 1)
    return dft_of(x, at, n, inverse, onesided)


@operator("STFT", reads=(1, 3))
def stft(
    call: Call, x: Tensor, step: Any, window: Tensor | None = None, length: Any = None
) -> Tensor:
    """Fourier transforms of frames: (batch, frames, bins, 2)."""
    hop = int(step.reshape(-1)[0])
    if length is not None:
        n = int(length.reshape(-1)[0])
    else:
        n = x.shape[1] if window is None else window.shape[0]
    if len(x.shape) == 2:
        x = x.unsqueeze(-1)
    count = 1 + (x.shape[1] - n) // hop
    at = np.arange(count)[:, None] * hop + np.arange(n)
    frames = T.take(x, T(at.reshape(-1), device=x.device), axis=1)
    frames = frames.reshape(x.shape[0], count, n, x.shape[2])
    if window is not None:
        frames = frames * window.reshape(1, 1, -1, 1)
    return dft_of(frames, 2, n, False, bool(call.get("onesided", 1)))


@operator("MelWeightMatrix", reads=(0, 1, 2, 3, 4))
def mel_weight_matrix(call: Call, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """Triangles that make mel bands of a spectrum: (length / 2 + 1, bins)."""
    bins, length, rate = (int(v.reshape(-1)[0]) for v in (bins, length, rate))
    ends = [2595 * np.log10(1 + float(v.reshape(-1)[0]) / 700) for v in (low, high)]
    mel = np.arange(bins + 2) * (ends[1] - ends[0]) / (bins + 2) + ends[0]
    at = ((length + 1) * (700 * (10 ** (mel / 2595) - 1)) // rate).astype(int)
    made = np.zeros((length // 2 + 1, bins))
    for k in range(bins):
        left, center, right = at[k : k + 3]
        if center == left:
            made[center, k] = 1
        for j in range(left, center + (center > left)):
            made[j, k] = (j - left) / (center - left)
        for j in range(center, right):
            made[j, k] = (right - j) / (right - center)
    return made.astype(DTYPES[call.get("output_datatype", 1)])
