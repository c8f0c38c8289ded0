"""Products of floats with the codes of MatMulNBits; what they are: `nbits`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.epilogue import LineEpilogue

CHANNELS = 16
"""Rows of the weight that a cube does."""


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        bits: of a code, 2, 4 or 8.
        elements: of a block.
        lanes: of a line of bytes.
        rows: of activations at once.
        activation: a func of the result, or None.
        table: what the codes of 4 bits mean; None: themselves, less a zero point.
    """

    bits: int
    elements: int
    lanes: int
    rows: int = 1
    activation: Any = None
    table: tuple[float, ...] | None = None


@cb.func
def meant(codes, table):
    """What a line of codes below 16 means, by halves: registers have no table of 16 floats."""
    lanes = codes.lanes
    wide = cb.cast(codes, cb.u32)
    found = tuple(cb.splat(cb.f32(number), lanes) for number in table)
    for bit in cb.unroll(range(4)):
        odd = (wide & (1 << bit)) != 0
        found = tuple(cb.select(odd, found[2 * k + 1], found[2 * k]) for k in range(8 >> bit))
    return found[0]


@cb.func
def weights_at(codes, zeros, n, block, at, high, plan):
    """Codes of a line of bytes at `at` of a block, less the zero point: the first, lowest of each
    byte, or a higher one.
    """
    nbytes = plan.elements * plan.bits // 8
    both = codes.load((n, block * nbytes + at), plan.lanes)
    if plan.bits < 8:
        both = (both >> (high * plan.bits)) & ((1 << plan.bits) - 1)
    if plan.table is not None:
        return meant(both, plan.table)
    return cb.cast(both, cb.f32) - cb.splat(zeros[n, block], plan.lanes)


@cb.kernel
def product(
    x: cb.Array,
    codes: cb.Array,
    scales: cb.Array,
    zeros,
    bias,
    residual,
    out: cb.Array,
    plan: cb.Comptime,
):
    """out[0, m] = activation(x[m] @ weight.T + bias) + residual[0, m]; a cube does 16 rows.

    x (rows, blocks * elements) f32, codes (N, bytes), scales and zeros (N, blocks) f32; with a
    table zeros are None.
    """
    epilogue = LineEpilogue(out, plan.activation, bias, residual)
    lanes, rows, nbytes = plan.lanes, plan.rows, plan.elements * plan.bits // 8
    count, first = codes.shape[0], cb.CUBE_POS * CHANNELS
    sums = cb.shared((rows, CHANNELS), cb.f32)
    acc = cb.local(rows, cb.f32, lanes=lanes)
    part = cb.local(rows, cb.f32, lanes=lanes)
    for r in range(CHANNELS):
        n = cb.min(first + r, count - 1)
        for m in cb.unroll(range(rows)):
            acc[m] = cb.splat(cb.f32(0.0), lanes)
        for block in range(scales.shape[1]):
            for m in cb.unroll(range(rows)):
                part[m] = cb.splat(cb.f32(0.0), lanes)
            for high in cb.unroll(range(8 // plan.bits)):
                for at in cb.unroll(range(0, nbytes, lanes)):
                    weights = weights_at(codes, zeros, n, block, at, high, plan)
                    for m in cb.unroll(range(rows)):
                        line = x.load((m, block * plan.elements + high * nbytes + at), lanes)
                        part[m] = cb.fma(weights, line, part[m])
            scale = cb.splat(scales[n, block], lanes)
            for m in cb.unroll(range(rows)):
                acc[m] = cb.fma(part[m], scale, acc[m])
        for m in cb.unroll(range(rows)):
            sums[m, r] = acc[m].sum()
    for m in cb.unroll(range(rows)):
        epilogue.finish(sums.load((m, 0), CHANNELS), (0, m, first), count - first)


@cb.kernel
def unpack(codes: cb.Array, scales: cb.Array, zeros, out: cb.Array, plan: cb.Comptime):
    """out[n] = row n of the weight in the order of `ordered`; a cube does one row."""
    n, nbytes = cb.CUBE_POS, plan.elements * plan.bits // 8
    for block in range(scales.shape[1]):
        scale = cb.splat(scales[n, block], plan.lanes)
        for high in cb.unroll(range(8 // plan.bits)):
            for at in cb.unroll(range(0, nbytes, plan.lanes)):
                line = weights_at(codes, zeros, n, block, at, high, plan) * scale
                out.store((n, block * plan.elements + high * nbytes + at), line)
