"""The routine of linear layers with quantized weights: which tiles for how many rows, and the
launches.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.quant.linear.cpu_kernels import Blueprint, int4_product, int8_product, quantize_rows
from cubepy.quant.linear.routines import linear_on_gpu
from cubepy.quant.weights.packing import PANEL
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.pool import empty

# Rows of a cube. Measured on two Zen 5 cores at M=512, K=N=4096, int8: 1976 GOP/s with 64, 1704
# with 512.
_BLOCK_ROWS = 64


@cache
def _tile(backend: str) -> tuple[int, int]:
    """Rows and panels of the register tile: 4 x 4 sums of a whole register, less where registers
    are few.

    Larger tiles spill: 6 x 4 and 8 x 3 run at a quarter of the speed of 4 x 4. With AVX2 (two Zen 3
        cores, int8, M=832,
    K=384, N=1536) 4 x 1 makes 226 GOP/s, 2 x 2 190, 5 x 1 218: a panel's bytes as i16 take four
    registers of 16.
    """
    properties = cb.device_properties_of()
    wide = properties.register_bytes >= 4 * PANEL and properties.vector_registers >= 32
    return (4, 4) if wide else (4, 1)


def quantized_linear(
    x: np.ndarray,
    weight: QuantizedWeight,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
    activation: Any = None,
    dtype: Any = np.float32,
) -> np.ndarray:
    """`activation(x @ weight.T + bias) + residual`, with activations quantized row by row.

    Args: x: float, (..., K). weight: quantized, (N, K). bias: (N,), or None. residual: (..., N), or
        None. activation: a name of `cubepy.kernels.primitives.functions.ACTIVATIONS`, a `@cb.func`,
        or None. dtype: of the result.

    Returns:
        (..., N).
    """
    rows, columns = weight.shape
    if isinstance(x, DeviceArray):
        return linear_on_gpu(x, weight, bias, residual, activation, dtype)
    if weight.scheme.activations == "float":
        dense = weight.dequantize()
        return matmul(x, dense.T, bias=bias, activation=activation, residual=residual, dtype=dtype)
    flat = contiguous(x.reshape(-1, columns))
    m = len(flat)
    out = empty((*x.shape[:-1], rows), dtype)
    if m == 0:
        return out
    signed, group = weight.scheme.bits == 4, weight.scheme.group or 0
    codes = empty((m, -(-columns // 4) * 4), np.int8 if signed else np.uint8)
    facts = empty((m, 2 + (columns // group if group else 0)), np.float32)
    lanes = PANEL if group % PANEL == 0 else PANEL // 2
    quantize_rows[m, 1](
        flat, weight.input_scale, codes, facts, weight.gain, signed, group, lanes, mode="unchecked"
    )

    plan, cubes, block_rows = _plan(m, weight, bias, residual, activation)
    count = weight.codes.shape[0]
    words, packed = codes.view(np.int32), weight.codes.reshape(count, -1)
    out3 = out.reshape(1, m, rows)
    if residual is not None:
        residual = contiguous(residual).reshape(1, m, rows)
    rest = (bias, residual, out3, block_rows, plan)
    if signed:
        minimums = None if weight.minimums is None else weight.minimums.reshape(count, -1)
        int4_product[cubes, 1](
            words,
            facts,
            packed,
            weight.scales.reshape(count, -1),
            minimums,
            weight.sums,
            *rest,
            mode="unchecked",
        )
    else:
        int8_product[cubes, 1](
            words, facts, packed, weight.scales, weight.sums, *rest, mode="unchecked"
        )
    return out


def _plan(
    m: int, weight: QuantizedWeight, bias: Any, residual: Any, activation: Any
) -> tuple[Blueprint, int, int]:
    """The blueprint, how many cubes, and the rows of each."""
    properties = cb.device_properties_of()
    rows, lines = _tile(properties.backend)
    # One row is read from memory: four panels side by side keep more of it on its way.
    lines = 4 if m == 1 else lines
    rows = min(rows, m)
    strips = -(-weight.codes.shape[0] // lines)
    block = _BLOCK_ROWS
    while block > rows and strips * -(-m // block) < 4 * properties.cores:
        block //= 2
    block = max(rows, block // rows * rows)
    function = ACTIVATIONS[activation] if isinstance(activation, str) else activation
    plan = Blueprint(
        rows,
        lines,
        weight.scheme.group or 0,
        weight.scheme.symmetric,
        bias is not None,
        residual is not None,
        function,
    )
    return plan, strips * -(-m // block), block
