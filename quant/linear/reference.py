"""What a linear layer with a quantized weight computes, in plain NumPy: the meaning that kernels
are tested on.

It also serves where no kernel can. The weight is unpacked some panels at a time, never as a whole.
"""

from __future__ import annotations

import numpy as np

from cubepy.errors import ShapeError
from cubepy.quant.weights.packing import PANEL
from cubepy.quant.weights.weight import QuantizedWeight

_PANELS_AT_ONCE = 4


def quantize_rows(
    x: np.ndarray, input_scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quantize activations to unsigned bytes, a scale and zero point for each row.

    Args:
        x: float32, (M, K).
        input_scale: float16, (K,).

    Returns:
        `u` uint8 (M, K), `scale` float32 (M,), `zero` int32 (M,), so that `x * input_scale` is
        about `scale * (u - zero)`. A row of zeros has scale 0; a row that is not finite has scale
        NaN.

    Example:
        >>> u, scale, zero = quantize_rows(np.float32([[-1, 0, 1.5]]), np.ones(3, np.float16))
        >>> u.tolist(), zero.tolist()
        ([[0, 102, 255]], [102])
    """
    scaled = x * input_scale.astype(np.float32)
    low = np.minimum(scaled.min(axis=1, initial=0.0), np.float32(0))
    high = np.maximum(scaled.max(axis=1, initial=0.0), np.float32(0))
    scale = (high - low) * np.float32(1 / 255)
    usable = np.isfinite(scale) & (scale > 0)
    inverse = np.where(usable, 1 / np.where(usable, scale, np.float32(1)), np.float32(0)).astype(
        np.float32
    )
    zero = np.rint(-np.where(usable, low, np.float32(0)) * inverse)
    finite = np.where(usable[:, None], scaled, np.float32(0))
    u = np.clip(np.rint(finite * inverse[:, None]) + zero[:, None], 0, 255).astype(np.uint8)
    return u, np.where(np.isfinite(scale), scale, np.float32(np.nan)), zero.astype(np.int32)


def linear(x: np.ndarray, weight: QuantizedWeight, bias: np.ndarray | None = None) -> np.ndarray:
    """`x @ weight.T + bias` with quantized activations.

    Args:
        x: float, (..., K).
        weight: quantized, (N, K).
        bias: float, (N,), or None.

    Returns:
        float32, (..., N).

    Raises:
        ShapeError: the last axis of `x` is not K.
    """
    rows, columns = weight.shape
    if x.ndim == 0 or x.shape[-1] != columns:
        raise ShapeError(f"a linear layer with {columns} inputs got an array of shape {x.shape}")
    flat = np.ascontiguousarray(x, dtype=np.float32).reshape(-1, columns)
    u, scale, zero = quantize_rows(flat, weight.input_scale)
    # Integers below 2^53 and their sums are exact in float64.
    centred = u.astype(np.float64) - zero[:, None]
    out = np.empty((len(flat), rows), np.float32)
    step = _PANELS_AT_ONCE * PANEL
    for at in range(0, rows, step):
        part = weight.even_rows(at, at + step)
        out[:, at : at + step] = (
            centred @ part.T.astype(np.float64) * (scale[:, None] * weight.gain)
        )
    if bias is not None:
        out += bias
    return out.reshape(*x.shape[:-1], rows)
