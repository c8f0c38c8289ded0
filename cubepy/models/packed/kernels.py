"""Products and rows of weights in blocks of GGUF; what the blocks are: `formats.dequantize`.

A line of weights is unpacked in registers, scaled, and met by a line of activations at once:
nothing is written but the result. Activations stay floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.epilogue import LineEpilogue

KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
"""The types that kernels unpack."""


AHEAD = 4096
"""Bytes by which memory is asked before it is needed: the processor looks ahead less far, since an
unpacked block is many instructions. Measured on a Xeon: 11.6 GB/s without, 17.9 with 2048, 21.2
with 4096, 20.8 with 32768.
"""


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        kind: the name of the block type.
        elements, nbytes: of a block.
        lanes: of a line, at most 16.
        rows: of activations at once.
        activation: a func of the result, or None.
        together: rows of the weight at once, of products with bytes.
        signed: whether codes are distances from zero there, whose products are summed by pairs.
    """

    kind: str
    elements: int
    nbytes: int
    lanes: int
    rows: int = 1
    activation: Any = None
    together: int = 1
    signed: bool = False


@cb.func
def half_at(halves, n, at):
    """A 16-bit float of a row, as f32."""
    return cb.cast(halves[n, at], cb.f32)


@cb.func
def byte_at(raw, n, at):
    """A byte of a row, as u32."""
    return cb.cast(raw[n, at], cb.u32)


@cb.func
def ask_ahead(raw, n, base, plan):
    """Ask for what comes AHEAD of a block that begins at byte `base`."""
    for at in cb.unroll(range(0, plan.nbytes, 64)):
        raw.prefetch((n, base + AHEAD + at))


@cb.func
def small_line(raw, halves, n, block, at, plan):
    """Weights at to at + lanes of a block of 32."""
    lanes = plan.lanes
    base = block * plan.nbytes
    half = block * (plan.nbytes // 2)
    scale = cb.splat(half_at(halves, n, half), lanes)
    if plan.kind == "Q8_0":
        codes = cb.bitcast(raw.load((n, base + 2 + at), lanes), cb.i8)
        return cb.cast(codes, cb.f32) * scale
    first = plan.nbytes - 16
    both = raw.load((n, base + first + at % 16), lanes)
    nibbles = (both & 15) if at < 16 else (both >> 4)
    codes = cb.cast(nibbles, cb.i32)
    if plan.kind == "Q5_0" or plan.kind == "Q5_1":
        bits = byte_at(raw, n, base + first - 4) | (byte_at(raw, n, base + first - 3) << 8)
        bits = bits | (byte_at(raw, n, base + first - 2) << 16)
        bits = bits | (byte_at(raw, n, base + first - 1) << 24)
        fifth = (cb.splat(bits, lanes) >> (cb.iota(lanes, cb.u32) + at)) & 1
        codes = codes | (cb.cast(fifth, cb.i32) << 4)
    if plan.kind == "Q4_0":
        return cb.cast(codes - 8, cb.f32) * scale
    if plan.kind == "Q5_0":
        return cb.cast(codes - 16, cb.f32) * scale
    minimum = cb.splat(half_at(halves, n, half + 1), lanes)
    return cb.cast(codes, cb.f32) * scale + minimum


@cb.func
def six_bits(raw, n, base, group):
    """Scale and minimum of a group in Q4_K and Q5_K."""
    if group < 4:
        scale = byte_at(raw, n, base + group) & 63
        minimum = byte_at(raw, n, base + group + 4) & 63
    else:
        low = byte_at(raw, n, base + group + 4)
        scale = (low & 15) | ((byte_at(raw, n, base + group - 4) >> 6) << 4)
        minimum = (low >> 4) | ((byte_at(raw, n, base + group) >> 6) << 4)
    return cb.cast(scale, cb.f32), cb.cast(minimum, cb.f32)


@cb.func
def large_line(raw, halves, n, block, at, plan):
    """Weights at to at + lanes of a block of 256."""
    lanes = plan.lanes
    base = block * plan.nbytes
    half = block * (plan.nbytes // 2)
    part, group, inner = at // 128, at // 32, at % 32
    if plan.kind == "Q4_K" or plan.kind == "Q5_K":
        scale, minimum = six_bits(raw, n, base + 4, group)
        first = base + (16 if plan.kind == "Q4_K" else 48)
        both = raw.load((n, first + 32 * (group // 2) + inner), lanes)
        codes = cb.cast((both & 15) if group % 2 == 0 else (both >> 4), cb.i32)
        if plan.kind == "Q5_K":
            bits = cb.cast(raw.load((n, base + 16 + inner), lanes), cb.i32)
            codes = codes | (((bits >> group) & 1) << 4)
        scaled = cb.cast(codes, cb.f32) * (half_at(halves, n, half) * scale)
        return scaled - half_at(halves, n, half + 1) * minimum
    quarter = group % 4
    if plan.kind == "Q6_K":
        both = raw.load((n, base + 64 * part + 32 * (quarter % 2) + inner), lanes)
        low = cb.cast((both & 15) if quarter < 2 else (both >> 4), cb.i32)
        high = cb.cast(raw.load((n, base + 128 + 32 * part + inner), lanes), cb.i32)
        codes = (low | (((high >> (2 * quarter)) & 3) << 4)) - 32
        byte = cb.cast(raw[n, base + 192 + at // 16], cb.i32)
        sign = byte - 256 if byte > 127 else byte
        return cb.cast(codes, cb.f32) * (half_at(halves, n, half + 104) * cb.cast(sign, cb.f32))
    first = base + (16 if plan.kind == "Q2_K" else 32)
    crumbs = cb.cast(raw.load((n, first + 32 * part + inner), lanes), cb.i32)
    codes = (crumbs >> (2 * quarter)) & 3
    index = at // 16
    if plan.kind == "Q2_K":
        both_scales = byte_at(raw, n, base + index)
        scale = half_at(halves, n, half + 40) * cb.cast(both_scales & 15, cb.f32)
        minimum = half_at(halves, n, half + 41) * cb.cast(both_scales >> 4, cb.f32)
        return cb.cast(codes, cb.f32) * scale - minimum
    bits = cb.cast(raw.load((n, base + inner), lanes), cb.i32)
    codes = codes - 4 + (((bits >> group) & 1) << 2)
    low_scale = (byte_at(raw, n, base + 96 + index % 8) >> (4 * (index // 8))) & 15
    high_scale = (byte_at(raw, n, base + 104 + index % 4) >> (2 * (index // 4))) & 3
    scale = cb.cast(cb.cast(low_scale | (high_scale << 4), cb.i32) - 32, cb.f32)
    return cb.cast(codes, cb.f32) * (half_at(halves, n, half + 54) * scale)


@cb.func
def weight_line(raw, halves, n, block, at, plan):
    """Weights at to at + lanes of a block, f32."""
    if plan.elements == 32:
        return small_line(raw, halves, n, block, at, plan)
    return large_line(raw, halves, n, block, at, plan)


@cb.kernel
def product(
    x: cb.Array, raw: cb.Array, halves: cb.Array, bias, residual, out: cb.Array, plan: cb.Comptime
):
    """out[0, m] = activation(x[m] @ weight.T + bias) + residual[0, m]; a cube does `lanes` rows of
    the weight.

    x (rows, K) f32, raw (N, bytes), halves: the same as f16, out (1, rows, N).
    """
    epilogue = LineEpilogue(out, plan.activation, bias, residual)
    lanes, rows = plan.lanes, plan.rows
    count, blocks = raw.shape[0], x.shape[1] // plan.elements
    first = cb.CUBE_POS * lanes
    sums = cb.shared((rows, lanes), cb.f32)
    acc = cb.local(rows, cb.f32, lanes=lanes)
    for r in range(lanes):
        n = cb.min(first + r, count - 1)
        for m in cb.unroll(range(rows)):
            acc[m] = cb.splat(cb.f32(0.0), lanes)
        for block in range(blocks):
            ask_ahead(raw, n, block * plan.nbytes, plan)
            for at in cb.unroll(range(0, plan.elements, lanes)):
                weights = weight_line(raw, halves, n, block, at, plan)
                for m in cb.unroll(range(rows)):
                    line = x.load((m, block * plan.elements + at), lanes)
                    acc[m] = cb.fma(weights, line, acc[m])
        for m in cb.unroll(range(rows)):
            sums[m, r] = acc[m].sum()
    for m in cb.unroll(range(rows)):
        epilogue.finish(sums.load((m, 0), lanes), (0, m, first), count - first)


@cb.kernel
def unpack_rows(
    indices: cb.Array, raw: cb.Array, halves: cb.Array, out: cb.Array, plan: cb.Comptime
):
    """out[i] = row indices[i] of the weight; a cube does one row. Rows that are not there are 0."""
    i = cb.CUBE_POS
    n = cb.cast(indices[i], cb.i64)
    there = n >= 0 and n < raw.shape[0]
    for block in range(out.shape[1] // plan.elements):
        for at in cb.unroll(range(0, plan.elements, plan.lanes)):
            line = cb.splat(cb.f32(0.0), plan.lanes)
            if there:
                line = weight_line(raw, halves, n, block, at, plan)
            out.store((i, block * plan.elements + at), cb.cast(line, out.dtype))


@cb.kernel
def unpack_all(raw: cb.Array, halves: cb.Array, out: cb.Array, plan: cb.Comptime):
    """out[n] = row n of the weight; a cube does one row."""
    n = cb.CUBE_POS
    for block in range(out.shape[1] // plan.elements):
        ask_ahead(raw, n, block * plan.nbytes, plan)
        for at in cb.unroll(range(0, plan.elements, plan.lanes)):
            line = weight_line(raw, halves, n, block, at, plan)
            out.store((n, block * plan.elements + at), line)
