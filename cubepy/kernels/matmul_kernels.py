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
        kind: what sums are made of: "f32" one by one, or words of "bf16", "i8" or "u8" (see `matmul_words`).
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
    kind: str = "f32"

    @property
    def exact(self) -> bool:
        """Whether sums are in i32, without an epilogue."""
        return self.kind in ("i8", "u8")

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


def pieces_of(panels: int, depth: int) -> int:
    """Into how many pieces of K to cut packing, so that few panels keep all threads busy."""
    return max(1, min(16 // panels, depth // 256))


@cb.kernel
def pack_columns(b: cb.Array, out: cb.Array, pieces, width: cb.Comptime[int], lanes: cb.Comptime[int]):
    """out[batch, panel, k, j] = b[batch, k, panel * width + j]; rows of b are neighbours in memory."""
    panels, depth = out.shape[1], out.shape[2]
    piece = cb.CUBE_POS % pieces
    panel = cb.CUBE_POS // pieces % panels
    batch = cb.CUBE_POS // (pieces * panels)
    for k in range(piece * depth // pieces, (piece + 1) * depth // pieces):
        for j in cb.unroll(range(0, width, lanes)):
            line = b.load((batch, k, panel * width + j), lanes)
            out.store((batch, panel, k, j), cb.cast(line, out.dtype))


@cb.kernel
def pack_rows(b: cb.Array, out: cb.Array, pieces, width: cb.Comptime[int], lanes: cb.Comptime[int]):
    """out[batch, panel, k, j] = b[batch, panel * width + j, k]: B given transposed, as a linear layer's weight."""
    panels, depth = out.shape[1], out.shape[2]
    piece = cb.CUBE_POS % pieces
    panel = cb.CUBE_POS // pieces % panels
    batch = cb.CUBE_POS // (pieces * panels)
    steps = (depth + lanes - 1) // lanes
    for step in range(piece * steps // pieces, (piece + 1) * steps // pieces):
        k = step * lanes
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
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha, columns, first_k, last_k, depth,
    blueprint: cb.Comptime,
):  # fmt: skip
    """out[batch] (+)= a[batch, :, first_k:last_k] @ b for one block of rows and panels; b is packed.

    K is walked in pieces of `depth`, whose sums are added up in out; the epilogue follows the last. With words in
    place of numbers, `bias` is what signed bytes add to each column.
    """
    rows, lines, lanes = blueprint.rows, blueprint.lines, blueprint.lanes
    m = out.shape[1]
    panels, total = b.shape[1], b.shape[2]
    groups = (panels + blueprint.block_panels - 1) // blueprint.block_panels
    row_blocks = (m + blueprint.block_rows * rows - 1) // (blueprint.block_rows * rows)
    row_block = cb.CUBE_POS % row_blocks  # neighbours share their panels, which stay in the second-level cache
    group = cb.CUBE_POS // row_blocks % groups
    batch = cb.CUBE_POS // (groups * row_blocks)
    batch_b = cb.min(batch, b.shape[0] - 1)
    done = cb.local((rows, lines), cb.i32 if blueprint.exact else cb.f32, lanes=lanes)
    first_row = row_block * blueprint.block_rows * rows
    for piece in range((last_k - first_k + depth - 1) // depth):
        start = first_k + piece * depth
        end = cb.min(start + depth, last_k)
        for panel in range(group * blueprint.block_panels, cb.min((group + 1) * blueprint.block_panels, panels)):
            for tile in range(first_row, cb.min(first_row + blueprint.block_rows * rows, m), rows):
                row = cb.min(tile, cb.max(m - rows, 0))  # the last tile does some rows again
                here = cb.min(rows, m - row)
                if here == rows:
                    tile_product(done, a, b, batch, batch_b, row, panel, start, end, 0, blueprint)
                else:
                    for r in range(here):
                        row_product(done, r, a, b, batch, batch_b, row + r, panel, start, end, 0, blueprint)
                for i in range(tile - row, here):
                    tile_row(done, i, out, bias, residual, alpha, batch, batch_b, row + i, panel, columns, start > 0,
                             end == total, blueprint)  # fmt: skip


@cb.func
def number(x, lanes, kind):
    """An element of a, or a word of several, in every lane."""
    if kind == "f32":
        wide = cb.splat(cb.cast(x, cb.f32), lanes)
    elif kind == "i8":  # dot products want one factor unsigned: 128 more
        wide = cb.bitcast(cb.splat(x ^ 0x80808080, lanes), cb.u8)
    elif kind == "u8":
        wide = cb.bitcast(cb.splat(x, lanes), cb.u8)
    else:
        wide = cb.splat(x, lanes)
    return wide


@cb.func
def added(acc, x, line, kind):
    """acc plus the products of x and a line of b."""
    if kind == "f32":
        total = cb.fma(x, line, acc)
    elif kind == "bf16":
        total = cb.dot_bf16(acc, x, line)
    else:
        total = cb.dot_i8(acc, x, cb.bitcast(line, cb.i8))
    return total


@cb.func
def tile_product(done, a, b, batch, batch_b, row, panel, first_k, last_k, origin, blueprint):
    """done = rows of a times one packed panel, which begins with row `origin` of b.

    `acc` is touched by constant loops only, so it stays in registers.
    """
    rows, lines, lanes, kind = blueprint.rows, blueprint.lines, blueprint.lanes, blueprint.kind
    acc = cb.local((rows, lines), done.dtype, lanes=lanes)
    strip = cb.local(lines, b.dtype, lanes=lanes)
    for i in range(rows):
        for j in range(lines):
            acc[i, j] = cb.splat(cb.cast(0, done.dtype), lanes)
    for k in range(first_k, last_k):
        for j in range(lines):
            strip[j] = b.load((batch_b, panel, k - origin, j * lanes), lanes)
        for i in range(rows):
            x = number(a[batch, row + i, k], lanes, kind)
            for j in range(lines):
                acc[i, j] = added(acc[i, j], x, strip[j], kind)
    for i in range(rows):
        for j in range(lines):
            done[i, j] = acc[i, j]


@cb.func
def row_product(done, r, a, b, batch, batch_b, row, panel, first_k, last_k, origin, blueprint):
    """The same for row r alone, where the matrix has fewer rows than a tile."""
    lines, lanes, kind = blueprint.lines, blueprint.lanes, blueprint.kind
    acc = cb.local(lines, done.dtype, lanes=lanes)
    for j in range(lines):
        acc[j] = cb.splat(cb.cast(0, done.dtype), lanes)
    for k in range(first_k, last_k):
        x = number(a[batch, row, k], lanes, kind)
        for j in range(lines):
            acc[j] = added(acc[j], x, b.load((batch_b, panel, k - origin, j * lanes), lanes), kind)
    for j in range(lines):
        done[r, j] = acc[j]


@cb.func
def tile_row(
    done, i, out, bias, residual, alpha, batch, batch_b, row, panel, columns, accumulate, last, blueprint
):  # fmt: skip
    """Write one row of a tile, with the epilogue when K is done."""
    for j in cb.unroll(range(blueprint.lines)):
        at = panel * blueprint.width + j * blueprint.lanes
        if at < columns:
            valid = columns - at
            value = done[i, j]
            if accumulate:
                value = value + cb.cast(out.load((batch, row, at), blueprint.lanes, valid=valid), done.dtype)
            if not last:
                out.store((batch, row, at), cb.cast(value, out.dtype), valid=valid)
            elif blueprint.exact:
                if blueprint.bias:
                    value = value - bias.load((batch_b, panel, j * blueprint.lanes), blueprint.lanes)
                out.store((batch, row, at), value, valid=valid)
            else:
                finish_line(value * alpha, out, bias, residual, batch, row, at, valid, blueprint)
