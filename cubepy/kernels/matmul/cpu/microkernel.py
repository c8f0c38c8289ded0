"""The inner levels of the CPU matmul: packing all of b, the sums of a tile in registers, the
epilogue.

The tile keeps `rows` x `lines` accumulators in vector registers while it walks along K (Goto and
van de Geijn, 2008; BLIS, 2015). A is read where it stands, one broadcast element a row; of b,
`width` columns lie side by side.
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
        activation: a func of the result, or None.
        kind: what sums are made of: "f32", numbers one by one, or words of "bf16", "i8" or "u8"
            (see `matmul.cpu.vnni`).
        source: how b lies: in "panels", or in "rows" or "columns" that are packed piece by piece.
        wide: how many panels are packed at a time, which reads as much more of each row of b.
        channels: with dot products, results that a cube makes side by side.
        matrix: whether a matrix unit makes the sums of words (`cb.tile_dot`).
        once: whether K is one piece, so that a sum is finished when it is first written.
        paired: whether out holds the bits of bf16, and sums of bf16 alone are written: two lines
            are rounded as one.
        streaming: whether whole lines of out are written past the caches.
        ahead: whether to ask for the piece of the panel that comes next while this one is
            multiplied.
        fetched: whether to ask for the part of out that a tile writes before its products, where a
            row of it is a line.
        asks: lines of the next panel that are asked for in an iteration of the inner loop of
            `goto_product`.
        joined: what is done with the residual (see `primitives.epilogue`).
        across: whether a is (batch, K, M), with neighbours along M.
    """

    rows: int
    lines: int
    lanes: int
    activation: Any = None
    kind: str = "f32"
    source: str = "panels"
    wide: int = 1
    channels: int = 1
    matrix: bool = False
    once: bool = False
    paired: bool = False
    streaming: bool = False
    ahead: bool = False
    fetched: bool = False
    asks: int = 1
    joined: str = "residual"
    across: bool = False

    @property
    def exact(self) -> bool:
        """Whether sums are in i32, without an epilogue."""
        return self.kind in ("i8", "u8")

    @property
    def width(self) -> int:
        """Columns of a register tile."""
        return self.lines * self.lanes


@cb.struct
class Piece:
    """A piece of K: its first row and the one behind its last, whether sums of pieces before it are
    in the result, and whether it is the last.
    """

    start: Any
    stop: Any
    more: Any
    last: Any


@cb.func
def sums_of(out):
    """The dtype that sums of a result are in. Those of narrow integers wrap where they are stored,
    which gives the same bits; those of bools become truths there.
    """
    wide = out.dtype.bits > 32
    floats = cb.f64 if wide else cb.f32
    return floats if out.dtype.is_float else (out.dtype if wide or out.dtype.bits == 32 else cb.i32)


@cb.func
def multiply_add(x, y, total):
    """x * y + total; of floats it is rounded once."""
    return cb.fma(x, y, total) if total.dtype.is_float else x * y + total


@cb.func
def number(x, lanes, dtype, kind):
    """An element of a in the dtype of sums, or a word of several, in every lane."""
    return cb.splat(cb.cast(x, dtype), lanes) if kind == "f32" else cb.splat(x, lanes)


@cb.func
def element(a, batch, row, k, across: cb.Comptime[bool]):
    """An element of a, whichever way it lies."""
    return a[batch, k, row] if across else a[batch, row, k]


@cb.func
def added(acc, x, line, kind):
    """acc plus the products of x and a line of b; dot products of bytes want one factor
    unsigned.
    """
    if kind == "f32":
        total = cb.fma(x, line, acc)
    elif kind == "bf16":
        total = cb.dot_bf16(acc, x, line)
    elif kind == "i8":
        total = cb.dot_i8(acc, cb.bitcast(line, cb.u8), cb.bitcast(x, cb.i8))
    else:
        total = cb.dot_i8(acc, cb.bitcast(x, cb.u8), cb.bitcast(line, cb.i8))
    return total


@cb.func
def tile_product(done, a, at_a, b, at_b, piece, step, ask, blueprint):
    """done = a tile of rows of a times a piece of one panel.

    `at_a`: the batch and the first row; `at_b`: the batch, the panel, and the row of K that its
    row 0 is. `acc` is touched by constant loops only, so it stays in registers. `step` is one.
    `ask` is the column of which lines are asked for ahead; behind a panel's last row lies the next
    panel.
    """
    rows, lines, lanes, kind = blueprint.rows, blueprint.lines, blueprint.lanes, blueprint.kind
    batch, row = at_a
    batch_b, panel, origin = at_b
    acc = cb.local((rows, lines), done.dtype, lanes=lanes)
    b_lines = cb.local(lines, b.dtype, lanes=lanes)
    for i in range(rows):
        for j in range(lines):
            acc[i, j] = cb.splat(cb.cast(0, done.dtype), lanes)
    k = cb.cast(piece.start, cb.i64)
    after = k + cb.cast(piece.stop - piece.start, cb.i64)
    while k < piece.stop:  # of unknown step, so that LLVM does not unroll it and spill registers
        if blueprint.ahead:
            b.prefetch((batch_b, panel, after - origin, ask))
            after = after + step
        for j in range(lines):
            b_lines[j] = b.load((batch_b, panel, k - origin, j * lanes), lanes)
        for i in range(rows):
            x = number(element(a, batch, row + i, k, blueprint.across), lanes, acc.dtype, kind)
            for j in range(lines):
                acc[i, j] = added(acc[i, j], x, b_lines[j], kind)
        k = k + step
    for i in range(rows):
        for j in range(lines):
            done[i, j] = acc[i, j]


@cb.func
def row_product(done, r, a, at_a, b, at_b, piece, blueprint):
    """The same for row r of the tile alone, where the matrix has fewer rows than a tile."""
    lines, lanes, kind = blueprint.lines, blueprint.lanes, blueprint.kind
    batch, row = at_a
    batch_b, panel, origin = at_b
    acc = cb.local(lines, done.dtype, lanes=lanes)
    for j in range(lines):
        acc[j] = cb.splat(cb.cast(0, done.dtype), lanes)
    for k in range(piece.start, piece.stop):
        x = number(element(a, batch, row, k, blueprint.across), lanes, acc.dtype, kind)
        for j in range(lines):
            acc[j] = added(acc[j], x, b.load((batch_b, panel, k - origin, j * lanes), lanes), kind)
    for j in range(lines):
        done[r, j] = acc[j]


def upper(lanes: int) -> tuple[int, ...]:
    """The places of the upper halves of the words of two lines."""
    return tuple(range(1, 4 * lanes, 2))


@cb.func
def nearest(line):
    """Bits of f32 whose upper halves are the nearest bf16, to even; of NaN, such whose lower half
    is zero.
    """
    bits = cb.bitcast(line, cb.u32)
    return cb.select((bits & 0x10000) != 0, bits + 0x8000, bits + 0x7FFF)


@cb.func
def paired(one, two, lanes):
    """The bits of two lines of sums, as one line of bf16: a test for NaN and half of the moves less
    than two casts.

    Sums of bf16 are NaN of bf16, whose lower half is zero, so that rounding does not carry into the
    upper one.
    """
    return cb.shuffle(
        cb.bitcast(nearest(one), cb.u16), cb.bitcast(nearest(two), cb.u16), upper(lanes)
    )


@cb.func
def tile_row(done, i, epilogue, at, piece, less, whole, blueprint):
    """Write one row of a tile, with the epilogue when K is done.

    `at`: the batch, the row and the panel; `less`: what sums of bytes are too large by; `whole`:
    whether all columns of the panel are there.
    """
    out, columns = epilogue.out, epilogue.out.shape[2]
    batch, row, panel = at
    if blueprint.paired:
        for j in cb.unroll(range(0, blueprint.lines, 2)):
            column = panel * blueprint.width + j * blueprint.lanes
            bits = paired(
                done[i, j] * epilogue.alpha, done[i, j + 1] * epilogue.alpha, blueprint.lanes
            )
            if whole and blueprint.streaming:
                out.store_stream((batch, row, column), bits)
            elif whole:
                out.store((batch, row, column), bits)
            elif column < columns:
                out.store((batch, row, column), bits, valid=columns - column)
        return
    for j in cb.unroll(range(blueprint.lines)):
        column = panel * blueprint.width + j * blueprint.lanes
        if whole or column < columns:
            valid = blueprint.lanes if whole else columns - column
            value = done[i, j]
            if piece.more:
                value = value + cb.cast(
                    out.load((batch, row, column), blueprint.lanes, valid=valid), done.dtype
                )
            if not piece.last:
                out.store((batch, row, column), cb.cast(value, out.dtype), valid=valid)
            elif blueprint.exact:
                out.store((batch, row, column), value - less, valid=valid)
            else:
                epilogue.finish(value, (batch, row, column), valid, whole and blueprint.streaming)
