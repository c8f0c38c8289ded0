"""The levels of the CPU matmul: pack (columns of B side by side), block (a cube), tile (registers).

The tile keeps `rows` x `lines` accumulators in vector registers while it walks along K (Goto and van de Geijn,
2008; BLIS, 2015). B is packed into panels of the tile's width, zero-padded, so the inner loop reads it in order
and without bounds; A is read where it stands, one broadcast element a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb


@dataclass(frozen=True)
class Blueprint:
    """What changes the matmul's code.

    Attributes:
        rows: rows of a register tile.
        lines: lines of a register tile's width.
        lanes: lanes of a line.
        block_rows, block_panels: tiles of a cube along M, panels along N.
        depth: K is walked in pieces of this length, 0 for all at once.
        bias, residual: whether the epilogue adds them.
        activation: a func of the result, or None.
    """

    rows: int
    lines: int
    lanes: int
    block_rows: int
    block_panels: int
    depth: int
    bias: bool = False
    residual: bool = False
    activation: Any = None

    @property
    def width(self) -> int:
        """Columns of a register tile."""
        return self.lines * self.lanes


@cb.func
def transpose_lines(lines, lanes):
    """Lines as the rows of a lanes x lanes matrix, transposed (log2(lanes) rounds of interleaving)."""
    for _ in cb.unroll(range(lanes.bit_length() - 1)):
        mixed = ()
        for k in cb.unroll(range(lanes // 2)):
            both = cb.interleave(lines[k], lines[k + lanes // 2])
            mixed = mixed + (cb.slice_line(both, 0, lanes), cb.slice_line(both, lanes, lanes))
        lines = mixed
    return lines


@cb.kernel
def pack_columns(b: cb.Array, out: cb.Array, width: cb.Comptime[int], lanes: cb.Comptime[int]):
    """out[batch, panel, k, j] = b[batch, k, panel * width + j]; rows of b are neighbours in memory."""
    panels, depth = out.shape[1], out.shape[2]
    panel = cb.CUBE_POS % panels
    batch = cb.CUBE_POS // panels
    for k in range(depth):
        for j in cb.unroll(range(0, width, lanes)):
            line = b.load((batch, k, panel * width + j), lanes)
            out.store((batch, panel, k, j), cb.cast(line, out.dtype))


@cb.kernel
def pack_rows(b: cb.Array, out: cb.Array, width: cb.Comptime[int], lanes: cb.Comptime[int]):
    """out[batch, panel, k, j] = b[batch, panel * width + j, k]: B given transposed, as a linear layer's weight."""
    panels, depth = out.shape[1], out.shape[2]
    panel = cb.CUBE_POS % panels
    batch = cb.CUBE_POS // panels
    for k in range(0, depth, lanes):
        for j in range(0, width, lanes):
            rows = ()
            for r in cb.unroll(range(lanes)):
                rows = rows + (cb.cast(b.load((batch, panel * width + j + r, k), lanes), out.dtype),)
            columns = transpose_lines(rows, lanes)
            for c in cb.unroll(range(lanes)):
                if k + c < depth:
                    out.store((batch, panel, k + c, j), columns[c])


@cb.func
def finish_line(value, out, bias, residual, batch, row, column, valid, blueprint):
    """The epilogue of one line: bias, activation, residual, store."""
    if blueprint.bias:
        value = value + cb.cast(bias.load((column,), blueprint.lanes, valid=valid), cb.f32)
    if blueprint.activation is not None:
        value = blueprint.activation(value)
    if blueprint.residual:
        value = value + cb.cast(residual.load((batch, row, column), blueprint.lanes, valid=valid), cb.f32)
    out.store((batch, row, column), cb.cast(value, out.dtype), valid=valid)


@cb.kernel
def block_product(
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha, columns, first_k, last_k,
    accumulate: cb.Comptime[bool], last: cb.Comptime[bool], blueprint: cb.Comptime,
):  # fmt: skip
    """out[batch] (+)= a[batch, :, first_k:last_k] @ b for one block of rows and panels; b is packed.

    `accumulate`: out holds the sum over earlier k. `last`: the epilogue follows.
    """
    rows, lines, lanes, width = blueprint.rows, blueprint.lines, blueprint.lanes, blueprint.width
    m = out.shape[1]
    panels = b.shape[1]
    groups = (panels + blueprint.block_panels - 1) // blueprint.block_panels
    row_blocks = (m + blueprint.block_rows * rows - 1) // (blueprint.block_rows * rows)
    group = cb.CUBE_POS % groups
    row_block = (cb.CUBE_POS // groups) % row_blocks
    batch = cb.CUBE_POS // (groups * row_blocks)
    batch_b = cb.min(batch, b.shape[0] - 1)
    done = cb.local((rows, lines), cb.f32, lanes=lanes)
    for panel in range(group * blueprint.block_panels, cb.min((group + 1) * blueprint.block_panels, panels)):
        column = panel * width
        first_row = row_block * blueprint.block_rows * rows
        for row in range(first_row, cb.min(first_row + blueprint.block_rows * rows, m), rows):
            here = cb.min(rows, m - row)
            if here == rows:
                tile_product(done, a, b, batch, batch_b, row, panel, first_k, last_k, rows, lines, lanes)
            else:
                for r in range(here):
                    row_product(done, r, a, b, batch, batch_b, row + r, panel, first_k, last_k, lines, lanes)
            for i in range(here):
                tile_row(done, i, out, bias, residual, alpha, batch, row + i, column, columns, accumulate, last,
                         blueprint)  # fmt: skip


@cb.func
def tile_product(done, a, b, batch, batch_b, row, panel, first_k, last_k, rows, lines, lanes):
    """done = rows of a times one packed panel. `acc` is touched by constant loops only, so it stays in registers."""
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    strip = cb.local(lines, cb.f32, lanes=lanes)
    for i in range(rows):
        for j in range(lines):
            acc[i, j] = cb.splat(0.0, lanes)
    for k in range(first_k, last_k):
        for j in range(lines):
            strip[j] = b.load((batch_b, panel, k, j * lanes), lanes)
        for i in range(rows):
            x = cb.splat(cb.cast(a[batch, row + i, k], cb.f32), lanes)
            for j in range(lines):
                acc[i, j] = cb.fma(x, strip[j], acc[i, j])
    for i in range(rows):
        for j in range(lines):
            done[i, j] = acc[i, j]


@cb.func
def row_product(done, r, a, b, batch, batch_b, row, panel, first_k, last_k, lines, lanes):
    """The same for row r alone, where fewer rows than a tile are left."""
    acc = cb.local(lines, cb.f32, lanes=lanes)
    for j in range(lines):
        acc[j] = cb.splat(0.0, lanes)
    for k in range(first_k, last_k):
        x = cb.splat(cb.cast(a[batch, row, k], cb.f32), lanes)
        for j in range(lines):
            acc[j] = cb.fma(x, b.load((batch_b, panel, k, j * lanes), lanes), acc[j])
    for j in range(lines):
        done[r, j] = acc[j]


@cb.func
def tile_row(done, i, out, bias, residual, alpha, batch, row, column, columns, accumulate, last, blueprint):
    """Write one row of a tile, with the epilogue when K is done."""
    for j in cb.unroll(range(blueprint.lines)):
        at = column + j * blueprint.lanes
        if at < columns:
            valid = columns - at
            value = done[i, j]
            if accumulate:
                value = value + out.load((batch, row, at), blueprint.lanes, valid=valid)
            if last:
                finish_line(value * alpha, out, bias, residual, batch, row, at, valid, blueprint)
            else:
                out.store((batch, row, at), value, valid=valid)
