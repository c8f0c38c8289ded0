"""Packing a piece of a panel of b where it is multiplied: on the stack of the thread, line after
line.

The inner loop wants `width` neighbouring columns in order, in numbers, or in words of 32 bits that
hold neighbours along K. Rows of bytes or halves are mixed by two or one shuffle for a register of
words; columns are transposed.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives.register_transpose import transpose_lines

PER_WORD = {"f32": 1, "bf16": 2, "i8": 4, "u8": 4}


def low(lanes: int) -> tuple[int, ...]:
    """The positions of the first halves of two lines, one after the other."""
    return tuple(position for k in range(lanes // 2) for position in (k, lanes + k))


def high(lanes: int) -> tuple[int, ...]:
    """The positions of the second halves of two lines, one after the other."""
    return tuple(position + lanes // 2 for position in low(lanes))


@cb.func
def fill_b_panel(b_panel, b, batch, first, count, column, columns, blueprint):
    """b_panel[0, w, k] = row first + k of the panel of b that begins at `column` + w * width, for k
    < count.

    b is (batch, K, N), as bits where a row of the panel holds words; where its source is columns it
    is (batch, N, K), in numbers or in words. What lies beyond b is zero along K; columns beyond its
    end may hold anything.
    """
    width = blueprint.width
    if blueprint.source == "columns":
        for w in range(blueprint.wide):
            if column + w * width < columns:
                fill_from_columns(
                    b_panel, w, b, batch, first, count, column + w * width, columns, blueprint
                )
    else:
        per = PER_WORD[blueprint.kind]
        whole = cb.min(
            count, b.shape[1] // per - first
        )  # rows of the panel of which all parts are there
        if columns - column < blueprint.wide * width:
            whole = 0
        for k in range(whole):
            for w in range(blueprint.wide):
                put_row(
                    b_panel,
                    w,
                    k,
                    b,
                    batch,
                    (first + k) * per,
                    column + w * width,
                    0,
                    False,
                    blueprint,
                )
        for k in range(cb.max(whole, 0), count):
            for w in range(blueprint.wide):
                at = column + w * width
                put_row(
                    b_panel, w, k, b, batch, (first + k) * per, at, columns - at, True, blueprint
                )


@cb.func
def put_row(b_panel, w, k, b, batch, row, column, left, masked, blueprint):
    """One row of a panel from rows of b; with `masked`, only `left` columns and the rows that b has
    are read.
    """
    width, lanes, kind = blueprint.width, blueprint.lanes, blueprint.kind
    if kind == "f32":
        for j in cb.unroll(range(0, width, lanes)):
            if masked:
                line = b.load((batch, row, column + j), lanes, valid=cb.max(left - j, 0))
            else:
                line = b.load((batch, row, column + j), lanes)
            b_panel.store((0, w, k, j), cb.cast(line, b_panel.dtype))
    elif kind == "bf16":
        one = part(b, batch, row, column, left, masked, blueprint)
        two = part(b, batch, row + 1, column, left, masked, blueprint)
        b_panel.store((0, w, k, 0), cb.bitcast(cb.shuffle(one, two, low(width)), cb.u32))
        b_panel.store((0, w, k, width // 2), cb.bitcast(cb.shuffle(one, two, high(width)), cb.u32))
    else:
        parts = tuple(
            part(b, batch, row + r, column, left, masked, blueprint) for r in cb.unroll(range(4))
        )
        for h in cb.unroll(range(2)):
            half = (low(width), high(width))[h]
            even = cb.shuffle(parts[0], parts[2], half)
            odd = cb.shuffle(parts[1], parts[3], half)
            at = h * (width // 2)
            b_panel.store((0, w, k, at), cb.bitcast(cb.shuffle(even, odd, low(width)), cb.u32))
            b_panel.store(
                (0, w, k, at + width // 4), cb.bitcast(cb.shuffle(even, odd, high(width)), cb.u32)
            )


@cb.func
def part(b, batch, row, column, left, masked, blueprint):
    """The bits of a row of b; signed bytes grow by 128, since dot products want one factor
    unsigned.
    """
    if masked:
        here = cb.select(row < b.shape[1], cb.max(left, 0), 0)
        line = b.load((batch, row, column), blueprint.width, valid=here)
    else:
        line = b.load((batch, row, column), blueprint.width)
    return line ^ 128 if blueprint.kind == "i8" else line


@cb.func
def fill_from_columns(b_panel, w, b, batch, first, count, column, columns, blueprint):
    """`fill_strip` for b (batch, N, K): squares of lines are transposed."""
    width, lanes, depth = blueprint.width, blueprint.lanes, b.shape[2]
    for k in range(0, count, lanes):
        for j in range(0, width, lanes):
            lines = column_lines(
                b_panel.dtype,
                b,
                batch,
                column + j,
                columns,
                first + k,
                depth - first - k,
                blueprint,
            )
            rows = transpose_lines(lines, lanes)
            for r in cb.unroll(range(lanes)):
                b_panel.store((0, w, k + r, j), rows[r])


@cb.func
def column_lines(dtype, b, batch, column, columns, k, left, blueprint):
    """Lines along K of as many columns of b; the last column stands for those beyond the end."""
    lanes = blueprint.lanes
    lines = ()
    for r in cb.unroll(range(lanes)):
        at = (batch, cb.min(column + r, columns - 1), k)
        line = b.load(at, lanes, valid=left)
        if blueprint.kind == "f32":
            lines = lines + (cb.cast(line, dtype),)
        elif blueprint.kind == "i8":
            lines = lines + (line ^ 0x80808080,)
        else:
            lines = lines + (line,)
    return lines
