"""The outer level of the CPU matmul: a cube does a block of rows times some panels of b.

It packs a piece of a panel on its stack just before it multiplies all its rows with it, so the
inner loop reads b in order and without bounds, and no packed matrix goes through memory.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.matmul.cpu.microkernel import (
    Piece,
    row_product,
    sums_of,
    tile_product,
    tile_row,
)
from cubepy.kernels.matmul.cpu.packing_on_stack import fill_b_panel
from cubepy.kernels.primitives.epilogue import LineEpilogue

MOST_ROWS = 1024
"""Rows of a cube, at most, where it keeps a sum for each."""


@cb.kernel
def block_product(
    a: cb.Array,
    b: cb.Array,
    epilogue: LineEpilogue,
    row_blocks,
    group,
    depth,
    most: cb.Comptime[int],
    blueprint: cb.Comptime,
):
    """epilogue(a[batch] @ b) for a cube: one of `row_blocks` blocks of rows times
    `group` panels.

    K is walked in pieces of `depth`, at most `most`, whose sums are added up in out; the epilogue
    follows the last. b is (batch, K, N), (batch, N, K) or (batch, panels, K, width), as
    `blueprint.source` says.
    """
    rows, lines, lanes, width = blueprint.rows, blueprint.lines, blueprint.lanes, blueprint.width
    out = epilogue.out
    m, columns = out.shape[1], out.shape[2]
    total = a.shape[1] if blueprint.across else a.shape[2]
    panels = (columns + width - 1) // width
    groups = (panels + group - 1) // group
    first = cb.CUBE_POS % groups * group
    # neighbours share their rows, which stay in the second-level cache
    block = cb.CUBE_POS // groups % row_blocks
    batch = cb.CUBE_POS // (groups * row_blocks)
    batch_b = cb.min(batch, b.shape[0] - 1)
    tiles = (m + rows - 1) // rows
    step = cb.cast(cb.min(row_blocks, 1), cb.i64)
    first_row = block * tiles // row_blocks * rows
    last_row = cb.min((block + 1) * tiles // row_blocks * rows, m)
    numbers = sums_of(out)
    done = cb.local((rows, lines), cb.i32 if blueprint.exact else numbers, lanes=lanes)
    wide = blueprint.wide
    room = 1 if blueprint.source == "panels" else most
    b_panel = cb.local((1, wide, room, width), numbers if blueprint.kind == "f32" else cb.u32)
    sums = cb.local(MOST_ROWS if blueprint.kind == "i8" else 1, cb.i32)
    if blueprint.kind == "i8":
        for row in range(first_row, last_row):
            sums[row - first_row] = byte_sum(a, batch, row, lanes)
    last = cb.min(first + group, panels)
    for side in range(first, last, wide):
        for k in range(1 if blueprint.once else (total + depth - 1) // depth):
            start = 0 if blueprint.once else k * depth
            stop = total if blueprint.once else cb.min(start + depth, total)
            piece = Piece(
                start, stop, not blueprint.once and start > 0, blueprint.once or stop == total
            )
            if blueprint.source != "panels":
                fill_b_panel(
                    b_panel, b, batch_b, start, stop - start, side * width, columns, blueprint
                )
            for panel in range(side, cb.min(side + wide, last)):
                whole = (panel + 1) * width <= columns
                for tile in range(first_row, last_row, rows):
                    # some rows are done again
                    row = tile if blueprint.matrix else cb.min(tile, cb.max(m - rows, 0))
                    here = cb.min(rows, m - row)
                    if blueprint.fetched:
                        for i in cb.unroll(range(rows)):
                            out.prefetch((batch, row + i, panel * width))
                    # each tile asks for another line
                    ask = cb.min((tile - first_row) // rows, lines - 1) * lanes
                    if blueprint.source == "panels":
                        at_b = (batch_b, panel, 0)
                        tile_sums(done, here, a, (batch, row), b, at_b, piece, step, ask, blueprint)
                    else:
                        at_b = (0, panel - side, start)
                        tile_sums(
                            done, here, a, (batch, row), b_panel, at_b, piece, step, ask, blueprint
                        )
                    for i in range(tile - row, here):
                        less = sums[row + i - first_row] if blueprint.kind == "i8" else 0
                        at = (batch, row + i, panel)
                        if whole:
                            tile_row(done, i, epilogue, at, piece, less, True, blueprint)
                        else:
                            tile_row(done, i, epilogue, at, piece, less, False, blueprint)


@cb.func
def byte_sum(a, batch, row, lanes):
    """128 times the sum of the signed bytes of a row of words: what b + 128 adds to a product with
    b.
    """
    half = cb.splat(cb.cast(128, cb.u8), 4 * lanes)
    total = cb.splat(cb.i32(0), lanes)
    whole = a.shape[2] // lanes * lanes
    for k in range(0, whole, lanes):
        total = cb.dot_i8(total, half, cb.bitcast(a.load((batch, row, k), lanes), cb.i8))
    rest = a.load((batch, row, whole), lanes, valid=a.shape[2] - whole)
    return cb.dot_i8(total, half, cb.bitcast(rest, cb.i8)).sum()


@cb.func
def tile_sums(done, here, a, at_a, b, at_b, piece, step, ask, blueprint):
    """done = `here` rows of a times a piece of one panel; see `tile_product`."""
    batch, row = at_a
    batch_b, panel, origin = at_b
    if blueprint.matrix:
        cb.tile_dot(
            done,
            here,
            a,
            (batch, row, piece.start),
            b,
            (batch_b, panel, piece.start - origin, 0),
            piece.stop - piece.start,
            blueprint.kind,
        )
    elif here == blueprint.rows:
        tile_product(done, a, at_a, b, at_b, piece, step, ask, blueprint)
    else:
        for r in range(here):
            row_product(done, r, a, (batch, row + r), b, at_b, piece, blueprint)
