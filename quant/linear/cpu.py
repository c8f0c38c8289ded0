"""Linear layers with quantized weights on a CPU: which tiles for how many rows, and the
launches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul.matmul import matmul
from cubepy.quant.linear.cpu_kernels import Blueprint, int4_product, int8_product, quantize_rows
from cubepy.quant.linear.problem import QuantizedLinear
from cubepy.quant.weights.packing import PANEL
from cubepy.runtime.memory.pool import empty
from cubepy.tune import CpuRoutine

# Rows of a cube. Measured on two Zen 5 cores at M=512, K=N=4096, int8: 1976 GOP/s with 64, 1704
# with 512.
_BLOCK_ROWS = 64


def tile(properties: cb.DeviceProperties) -> tuple[int, int]:
    """Rows and panels of the register tile: 4 x 4 sums of a whole register, less where registers
    are few.

    Larger tiles spill: 6 x 4 and 8 x 3 run at a quarter of the speed of 4 x 4. With AVX2 (two Zen 3
    cores, int8, M=832, K=384, N=1536) 4 x 1 makes 226 GOP/s, 2 x 2 190, 5 x 1 218: a panel's bytes
    as i16 take four registers of 16.
    """
    wide = properties.register_bytes >= 4 * PANEL and properties.vector_registers >= 32
    return (4, 4) if wide else (4, 1)


class Int8(CpuRoutine):
    """Activations as unsigned bytes, codes as signed ones."""

    name = "int8_lines"
    bits = 8

    def unfit(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> str | None:
        """Codes of so many bits, activations that may be rounded."""
        if p.on_device:
            return "for arrays of the host"
        if p.floats:
            return "activations stay floats"
        return None if p.weight.scheme.bits == self.bits else f"for codes of {self.bits} bits"

    def launch(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> Any:
        """Rows are rounded by a launch of their own."""
        weight, group, out = p.weight, p.group, p.result()
        x, bias, residual, flat = p.operands(out)
        (n, k), m = weight.shape, len(x)
        signed = self.bits == 4
        codes = empty((m, -(-k // 4) * 4), np.int8 if signed else np.uint8)
        facts = empty((m, 2 + (k // group if group else 0)), np.float32)
        lanes = PANEL if group % PANEL == 0 else PANEL // 2
        quantize_rows[m, 1](
            x, weight.input_scale, codes, facts, weight.gain, signed, group, lanes, mode="unchecked"
        )
        if residual is not None:
            residual = residual.reshape(1, m, n)
        plan, cubes, block_rows = planned(p, properties)
        rest = (bias, residual, flat.reshape(1, m, n), block_rows, plan)
        self.multiply(cubes, codes.view(np.int32), facts, weight, rest)
        return out

    def multiply(self, cubes: int, words: Any, facts: Any, weight: Any, rest: tuple) -> None:
        """The product of words of activations and a weight."""
        packed = weight.codes.reshape(weight.codes.shape[0], -1)
        int8_product[cubes, 1](
            words, facts, packed, weight.scales, weight.sums, *rest, mode="unchecked"
        )


class Int4(Int8):
    """Activations as signed bytes, codes of four bits in groups with their scales."""

    name = "int4_lines"
    bits = 4

    def multiply(self, cubes: int, words: Any, facts: Any, weight: Any, rest: tuple) -> None:
        """The product of words of activations and a weight."""
        count = weight.codes.shape[0]
        packed, scales = weight.codes.reshape(count, -1), weight.scales.reshape(count, -1)
        minimums = None if weight.minimums is None else weight.minimums.reshape(count, -1)
        int4_product[cubes, 1](
            words, facts, packed, scales, minimums, weight.sums, *rest, mode="unchecked"
        )


class Dense(CpuRoutine):
    """A dense copy of the weight, and a product of matrices."""

    name = "dense_lines"

    def unfit(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> str | None:
        """Activations that stay floats."""
        if p.on_device:
            return "for arrays of the host"
        return None if p.floats else "activations are bytes"

    def launch(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> Any:
        """The copy lives for one call."""
        dense = p.weight.dequantize()
        return matmul(
            p.x, dense.T, bias=p.bias, activation=p.function, residual=p.residual, dtype=p.dtype
        )


def planned(p: QuantizedLinear, properties: cb.DeviceProperties) -> tuple[Blueprint, int, int]:
    """The blueprint, how many cubes, and the rows of each."""
    m = p.m
    rows, lines = tile(properties)
    # One row is read from memory: four panels side by side keep more of it on its way.
    lines = 4 if m == 1 else lines
    rows = min(rows, m)
    panel_groups = -(-p.weight.codes.shape[0] // lines)
    block = _BLOCK_ROWS
    while block > rows and panel_groups * -(-m // block) < 4 * properties.cores:
        block //= 2
    block = max(rows, block // rows * rows)
    plan = Blueprint(rows, lines, p.group, p.weight.scheme.symmetric, p.function)
    return plan, panel_groups * -(-m // block), block
