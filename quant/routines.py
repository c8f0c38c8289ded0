"""Choosing tiles for quantized products and launching them: `int8_linear` and `int4_linear` on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from cubepy.quant.kernels import Blueprint, int4_product, int8_product, quantize_rows

from cubepy.kernels.functions import ACTIVATIONS


def _activations(x: np.ndarray, group: int, unsigned: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows as bytes four to a word, their scales, and their sums by group."""
    m, k = x.shape
    padded = -(-k // 8) * 8
    codes = np.empty((m, padded), np.uint8 if unsigned else np.int8)
    if padded != k:
        codes[:, k:] = 128 if unsigned else 0
    scales = np.empty(m, np.float32)
    sums = np.empty((m, max(1, k // group if group else 1)), np.int32)
    target = codes[:, :k]
    quantize_rows[m, 1](x, target, scales, sums, group, 127, 128 if unsigned else 0, 16, mode="checked")
    return codes.view(np.int32), scales, sums


def _tiles(m: int, small: tuple[int, int], large: tuple[int, int]) -> tuple[int, int, int]:
    """Rows and lines of a register tile, and tiles of a cube."""
    if m == 1:
        return 1, small[1], 1
    if m < large[0]:
        return small[0], small[1], 1
    return large[0], large[1], min(16, -(-m // large[0]))


def _function(activation: Any) -> Any:
    return ACTIVATIONS[activation] if isinstance(activation, str) else activation


def int8_linear(
    x: np.ndarray, weights: np.ndarray, scales: np.ndarray, sums: np.ndarray, columns: int,
    bias: np.ndarray | None = None, activation: Any = None, out: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """x (M, K) f32 times int8 weights of `columns` channels, packed (N/16, ceil(K/4), 64).

    scales, sums: (N padded to 16) f32 and i32, per channel.
    """
    m, k = x.shape
    words, row_scales, _ = _activations(x, 0, unsigned=True)
    rows, lines, tiles = _tiles(m, (2, 4), (6, 4))
    plan = Blueprint(rows, lines, tiles, 0, False, bias is not None, _function(activation))
    result = np.empty((m, columns), np.float32) if out is None else out
    cubes = -(-weights.shape[0] // lines) * -(-m // (rows * tiles))
    int8_product[cubes, 1](
        words[:, : weights.shape[1]], row_scales, weights, scales, sums, bias, result, plan, mode="unchecked"
    )
    return result


def int4_linear(
    x: np.ndarray, weights: np.ndarray, scales: np.ndarray, offsets: np.ndarray | None, group: int, columns: int,
    bias: np.ndarray | None = None, activation: Any = None, out: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """x (M, K) f32 times int4 weights of `columns` channels, packed (N/16, K/8, 64) with scales (N/16, K/group, 16)."""
    m, k = x.shape
    words, row_scales, sums = _activations(x, group, unsigned=False)
    rows, lines, tiles = _tiles(m, (2, 4), (4, 2))
    plan = Blueprint(rows, lines, tiles, group, offsets is not None, bias is not None, _function(activation))
    result = np.empty((m, columns), np.float32) if out is None else out
    cubes = -(-weights.shape[0] // lines) * -(-m // (rows * tiles))
    int4_product[cubes, 1](
        words, row_scales, sums, weights, scales, offsets, bias, result, plan, mode="unchecked"
    )
    return result
