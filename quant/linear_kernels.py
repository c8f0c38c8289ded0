"""Kernels of linear layers with quantized weights; their meaning is that of `cubepy.quant.reference`.

Activations become bytes first, four neighbours to an i32, so that one broadcast feeds 16 channels; the products
then read packed weights as they lie (`cubepy.quant.packing`) and never write a float weight anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul_kernels import finish_line

PANEL = 16


@dataclass(frozen=True)
class Blueprint:
    """What changes the code of a product.

    Attributes:
        rows: rows of activations of a register tile.
        lines: panels of 16 channels of a register tile.
        group: inputs that share a scale (int4), or 0.
        symmetric: whether the minimum is -8 times the scale (int4).
        bias, residual: whether the epilogue adds them.
        activation: a func of the result, or None.
        lanes: channels of a panel.
    """

    rows: int
    lines: int
    group: int = 0
    symmetric: bool = True
    bias: bool = False
    residual: bool = False
    activation: Any = None
    lanes: int = PANEL


@cb.kernel
def quantize_rows(
    x: cb.Array, factors: cb.Array, words: cb.Array, scales: cb.Array, zeros: cb.Array, sums: cb.Array, depth,
    signed: cb.Comptime[bool], group: cb.Comptime[int], lanes: cb.Comptime[int],
):  # fmt: skip
    """One row a cube: words[m] = bytes of x[m] * factors, scales[m], zeros[m], and sums[m, g] of each group.

    Bytes are unsigned around zeros[m], or signed (128 less) where `signed`. A row that holds NaN or infinity
    gets a scale that is not finite, and so results that are not.
    """
    row = cb.CUBE_POS
    low = cb.splat(cb.f32(0.0), lanes)
    high = cb.splat(cb.f32(0.0), lanes)
    for k in range(0, depth, lanes):
        value = x.load((row, k), lanes) * cb.cast(factors.load((k,), lanes), cb.f32)
        low = cb.nan_min(low, value)
        high = cb.nan_max(high, value)
    bottom, top = low.min(), high.max()
    if (low != low).any() or (high != high).any():
        top = cb.f32(math.nan)
    ...
