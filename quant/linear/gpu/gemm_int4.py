"""Linear layers of int4 weights and activations in eight bits for matrix units whose fragments the
device describes: AMD's.

It is the matmul of bytes (`cubepy.kernels.matmul.gpu.mma_buffered`) with two differences. Codes
come packed, as they are stored, and become bytes on their way to shared memory; symmetric ones are
eight less there. And sums of integers are exact to the end of a group of inputs, where they are
scaled and added to floats. What is computed is what `cubepy.quant.weights.weight` says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul.gpu.mma_buffered import fetch, put, run_product, runs
from cubepy.kernels.matmul.gpu.operands import activation_for
from cubepy.kernels.matmul.gpu.simt import tile_start
from cubepy.kernels.primitives.epilogue import Epilogue, epilogue_of
from cubepy.kernels.primitives.fragments import coordinates, instruction_of
from cubepy.kernels.primitives.stages import DEPTH_BYTES, PIECE, PIECES, piece_start
from cubepy.lang.dtypes import as_dtype, i8
from cubepy.quant.linear.gpu.gemm_int8 import quantize_rows
from cubepy.quant.linear.gpu.gemm_mma_int8 import ROW_UNITS
from cubepy.quant.linear.problem import QuantizedLinear
from cubepy.quant.weights.packing import PANEL
from cubepy.runtime.memory.device_array import empty
from cubepy.tune import GpuRoutine

_UNITS = 256
_WORD = 8
"""Codes of a word."""


@dataclass(frozen=True)
class GroupedBytes(Epilogue):
    """What changes the code, beside the epilogue.

    Attributes:
        side: rows and columns of an instruction.
        rows, columns: a cube's tile of the result.
        high, wide: planes below and beside each other.
        group: inputs that share a scale: 32, or a multiple of 64.
        symmetric: there are no minimums.
        whole: the inputs are a multiple of a stage's.
    """

    side: int
    rows: int
    columns: int
    high: int
    wide: int
    group: int = 64
    symmetric: bool = True
    whole: bool = True


@cb.kernel
def group_sums(codes: cb.Array, out: cb.Array, group: cb.Comptime[int]):
    """out[g, m] = the sum of a row's bytes of a group: a unit does one."""
    at = cb.ABSOLUTE_POS
    row, g = at % out.shape[1], at // out.shape[1]
    if g < out.shape[0]:
        total = cb.splat(cb.i32(0), PIECE)
        for k in range(group // PIECE):
            total = total + cb.cast(codes.load((row, g * group + k * PIECE), PIECE), cb.i32)
        out[g, row] = total.sum()


@cb.func
def fetch_codes(held, words, column, k, plan):
    """A stage of packed codes from memory to registers, 16 codes at once."""
    for step in cb.unroll(range(plan.columns * PIECES // cb.CUBE_DIM)):
        n = step * cb.CUBE_DIM + cb.UNIT_POS
        channel = column + n // PIECES
        panel = cb.min(channel // PANEL, words.shape[0] - 1)
        word = cb.min(k // _WORD + n % PIECES * 2, words.shape[1] - 2)  # beyond: times zeros
        first = cb.splat(words[panel, word, channel % PANEL], 1)
        held[step] = cb.concat(first, cb.splat(words[panel, word + 1, channel % PANEL], 1))


@cb.func
def put_codes(held, tiles, at, plan):
    """The stage from registers to shared memory, as bytes: lower halves of a word's bytes are its
    first four codes.
    """
    for step in cb.unroll(range(plan.columns * PIECES // cb.CUBE_DIM)):
        n = step * cb.CUBE_DIM + cb.UNIT_POS
        pair = held[step]
        low, high = pair & cb.splat(cb.u32(0x0F0F0F0F), 2), pair >> cb.splat(cb.u32(4), 2)
        both = cb.interleave(low, high & cb.splat(cb.u32(0x0F0F0F0F), 2))
        if plan.symmetric:  # eight less in each byte, without a carry to the next
            both = (both + cb.splat(cb.u32(0x78787878), 4)) ^ cb.splat(cb.u32(0x80808080), 4)
        to = at + piece_start(n // PIECES, n % PIECES, 1)
        tiles.store(to, cb.bitcast(both, tiles.dtype))


@cb.struct
class Facts:
    """What codes of a group are worth: scales and minimums of the weight, sums of the rows' bytes;
    and where a unit's elements are: row and channel of the first.
    """

    scales: Any
    minimums: Any
    sums: Any
    row: Any
    channel: Any


@cb.func
def close_group(total, part, facts, group, plan, m):
    """total += what the sums of a group are worth, which begin anew."""
    panels, rows = facts.scales.shape[0], plan.rows // plan.high // plan.side
    for j in cb.unroll(range(plan.columns // plan.wide // plan.side)):
        channel = facts.channel + j * plan.side
        at = cb.min(channel // PANEL, panels - 1), group, channel % PANEL
        scale = cb.cast(facts.scales.load(at, m.c.count), cb.f32)
        for i in cb.unroll(range(rows)):
            total[i, j] = cb.fma(cb.cast(part[i, j], cb.f32), scale, total[i, j])
            part[i, j] = cb.splat(cb.i32(0), m.c.count)
        if not plan.symmetric:
            least = cb.cast(facts.minimums.load(at, m.c.count), cb.f32)
            for i in cb.unroll(range(rows)):
                row = cb.min(facts.row + i * plan.side, facts.sums.shape[1] - 1)
                mine = cb.cast(facts.sums[group, row], cb.f32)
                total[i, j] = cb.fma(cb.splat(mine, m.c.count), least, total[i, j])


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def grouped_bytes(
    x: cb.Array,
    words: cb.Array,
    scales: cb.Array,
    minimums,
    sums,
    row_facts: cb.Array,
    weight_sums: cb.Array,
    bias,
    residual,
    out: cb.Array,
    plan: cb.Comptime,
):
    """out = epilogue of bytes times packed weights; a cube for each tile.

    x (1, M, K) bytes as u8, words u32 (panels, K / 8, 16), scales and minimums f16 (panels, groups,
    16), sums i32 (groups, M), row_facts f32 (M, 2): scale and zero point, weight_sums f32 (16
    panels,), out (1, M, N).
    """
    epilogue = epilogue_of(plan, out, bias, residual, cb.f32(1.0))
    m = instruction_of(i8, plan.side)
    rows, columns, depth, units = plan.rows, plan.columns, x.shape[2], cb.CUBE_DIM
    span = (rows + columns) * DEPTH_BYTES
    tiles = cb.shared(2 * span, x.dtype)
    held_x = cb.local(rows * PIECES // units, x.dtype, lanes=PIECE)
    held_w = cb.local(columns * PIECES // units, cb.u32, lanes=2)
    _, row, column = tile_start(out, rows, columns)
    high, wide = rows // plan.high, columns // plan.wide
    top, left = cb.PLANE_POS // plan.wide * high, cb.PLANE_POS % plan.wide * wide
    many = high // plan.side, wide // plan.side
    total, part = cb.local(many, cb.f32, lanes=m.c.count), cb.local(many, cb.i32, lanes=m.c.count)
    for i in cb.unroll(range(many[0])):
        for j in cb.unroll(range(many[1])):
            total[i, j] = cb.splat(cb.f32(0.0), m.c.count)
            part[i, j] = cb.splat(cb.i32(0), m.c.count)
    of_channel, of_row = coordinates(m.c, cb.UNIT_POS_PLANE)
    facts = Facts(scales, minimums, sums, row + top + of_row, column + left + of_channel)
    fetch(held_x, x, 0, row, 0, rows, True, True, plan.whole)
    fetch_codes(held_w, words, column, 0, plan)
    for k in range(0, depth, DEPTH_BYTES):
        at = k // DEPTH_BYTES % 2 * span
        put(held_x, tiles, at, rows, True)
        put_codes(held_w, tiles, at + rows * DEPTH_BYTES, plan)
        cb.sync_cube()
        if k + DEPTH_BYTES < depth:
            fetch(held_x, x, 0, row, k + DEPTH_BYTES, rows, True, True, plan.whole)
            fetch_codes(held_w, words, column, k + DEPTH_BYTES, plan)
        for run in cb.unroll(range(runs(m))):
            end = cb.comptime(DEPTH_BYTES // runs(m) * (run + 1))
            start = (top, left)
            at_w = at + rows * DEPTH_BYTES
            run_product(part, tiles, at, at_w, run, start, (high, wide), m, i8)
            if plan.group < DEPTH_BYTES and end % plan.group == 0:
                if k + end <= depth:
                    close_group(total, part, facts, (k + end - 1) // plan.group, plan, m)
        if plan.group >= DEPTH_BYTES:
            if (k + DEPTH_BYTES) % plan.group == 0:
                close_group(total, part, facts, k // plan.group, plan, m)
    for i in cb.unroll(range(many[0])):
        r = facts.row + i * plan.side
        inside = cb.min(r, out.shape[1] - 1)
        for j in cb.unroll(range(many[1])):
            c = facts.channel + j * plan.side
            zeros = weight_sums.load(cb.min(c, weight_sums.shape[0] - m.c.count), m.c.count)
            whole = cb.fma(zeros, cb.splat(-row_facts[inside, 1], m.c.count), total[i, j])
            epilogue.finish_inside(whole * row_facts[inside, 0], 0, r, c)


TILES = {
    64: ((128, 128, 2, 2), (64, 64, 2, 2), (32, 64, 1, 2)),
    32: ((128, 128, 4, 2), (64, 64, 2, 2), (32, 64, 2, 2)),
}
"""By units of a plane: rows and columns of a tile, planes below and beside each other."""


def plan_for(
    rows: int, channels: int, group: int, symmetric: bool, p: cb.DeviceProperties
) -> GroupedBytes:
    """Large tiles where they fill the device, the smallest for few rows."""
    side = max(m.rows for m in p.matrix_instructions if m.dtype == "i8")
    large, middle, small = TILES[p.plane_size]
    cubes = -(-rows // large[0]) * -(-channels // large[1])
    tile = small if rows <= small[0] else large if cubes >= p.cores else middle
    return GroupedBytes(side, *tile, group=group, symmetric=symmetric)


class GroupedMatmul(GpuRoutine):
    """int4 weights and bytes with signs by the device's matrix units."""

    name = "int4_matmul"

    def unfit(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> str | None:
        """int4 weights that want such activations, on AMD's matrix units."""
        if p.floats or not p.group:
            return "activations stay floats" if p.floats else "the weight has no groups"
        if not {"mfma", "wmma"} & properties.features:
            return "the device has no MFMA or WMMA"
        if p.group != 32 and p.group % DEPTH_BYTES:
            return f"groups of {p.group} do not end with stages of {DEPTH_BYTES}"
        return None

    def launch(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> Any:
        """Rows are rounded by a launch of their own."""
        out, weight = p.result(), p.weight
        x, bias, residual, flat = p.operands(out)
        device, (n, depth) = x.device, weight.shape
        codes, facts = empty(x.shape, np.int8, device), empty((len(x), 2), np.float32, device)
        quantize_rows[len(x), ROW_UNITS](
            x, weight.input_scale, codes, facts, weight.gain, mode="unchecked", device=device
        )
        sums = None
        if weight.minimums is not None:
            sums = empty((depth // p.group, len(x)), np.int32, device)
            group_sums[-(-sums.size // _UNITS), _UNITS](
                codes, sums, p.group, mode="unchecked", device=device
            )
        plan = plan_for(len(x), n, p.group, weight.minimums is None, properties)
        has_bias, has_residual, function = p.epilogue
        plan = replace(
            plan,
            whole=depth % DEPTH_BYTES == 0,
            bias=has_bias,
            residual=has_residual,
            activation=activation_for(function, as_dtype(flat.dtype)),
        )
        panels = weight.codes.shape[0]
        words = weight.codes.view(np.uint32).reshape(panels, -1, PANEL)
        cubes = -(-len(x) // plan.rows) * -(-n // plan.columns)
        residual = residual if residual is None else residual.reshape(1, *flat.shape)
        operands = codes.view(np.uint8).reshape(1, *codes.shape), words
        worth = weight.scales, weight.minimums, sums, facts, weight.sums.reshape(-1)
        ends = bias, residual, flat.reshape(1, *flat.shape)
        grouped_bytes[cubes, plan.high * plan.wide * properties.plane_size](
            *operands, *worth, *ends, plan, mode="unchecked", device=device
        )
        return out
