"""The outer level of the CPU matmul: a cube does a block of rows times some panels of b.

It packs a piece of a panel on its stack just before it multiplies all its rows with it, so the
inner loop reads b in order and without bounds, and no packed matrix goes through memory.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.matmul.cpu.microkernel import row_product, tile_product, tile_row
from cubepy.kernels.matmul.cpu.packing_on_stack import fill_b_panel

MOST_ROWS = 1024
"""Rows of a cube, at most, where it keeps a sum for each."""


@cb.kernel
def block_product(
    a: cb.Array,
    b: cb.Array,
    out: cb.Array,
    bias,
    residual,
    mask,
    alpha,
    fill,
    row_blocks,
    group,
    depth,
    most: cb.Comptime[int],
    blueprint: cb.Comptime,
):
    """out[batch] = epilogue(a[batch] @ b) for a cube: one of `row_blocks` blocks of rows times
    `group` panels.

    K is walked in pieces of `depth`, at most `most`, whose sums are added up in out; the epilogue
    follows the last. b is (batch, K, N), (batch, N, K) or (batch, panels, K, width), as
    `blueprint.source` says.
    """
    rows, lines, lanes, width, kind = (
        blueprint.rows,
        blueprint.lines,
        blueprint.lanes,
        blueprint.width,
        blueprint.kind,
    )
    m, columns, total = out.shape[1], out.shape[2], a.shape[2]
    panels = (columns + width - 1) // width
    groups = (panels + group - 1) // group
    first = cb.CUBE_POS % groups * group
    block = (
        cb.CUBE_POS // groups % row_blocks
    )  # neighbours share their rows, which stay in the second-level cache
    batch = cb.CUBE_POS // (groups * row_blocks)
    batch_b = cb.min(batch, b.shape[0] - 1)
    tiles = (m + rows - 1) // rows
    step = cb.cast(cb.min(row_blocks, 1), cb.i64)
    first_row = block * tiles // row_blocks * rows
    last_row = cb.min((block + 1) * tiles // row_blocks * rows, m)
    done = cb.local((rows, lines), cb.i32 if blueprint.exact else cb.f32, lanes=lanes)
    wide = blueprint.wide
    room = 1 if blueprint.source == "panels" else most
    b_panel = cb.local((1, wide, room, width), cb.f32 if kind == "f32" else cb.u32)
    sums = cb.local(MOST_ROWS if kind == "i8" else 1, cb.i32)
    if kind == "i8":
        for row in range(first_row, last_row):
            sums[row - first_row] = byte_sum(a, batch, row, lanes)
    last = cb.min(first + group, panels)
    for side in range(first, last, wide):
        for piece in range(1 if blueprint.once else (total + depth - 1) // depth):
            start = 0 if blueprint.once else piece * depth
            end = total if blueprint.once else cb.min(start + depth, total)
            last_piece = blueprint.once or end == total
            if blueprint.source != "panels":
                fill_b_panel(
                    b_panel, b, batch_b, start, end - start, side * width, columns, blueprint
                )
            for panel in range(side, cb.min(side + wide, last)):
                whole = (panel + 1) * width <= columns
                for tile in range(first_row, last_row, rows):
                    row = (
                        tile if blueprint.matrix else cb.min(tile, cb.max(m - rows, 0))
                    )  # some rows are done again
                    here = cb.min(rows, m - row)
                    if blueprint.fetched:
                        for i in cb.unroll(range(rows)):
                            out.prefetch((batch, row + i, panel * width))
                    ask = (
                        cb.min((tile - first_row) // rows, lines - 1) * lanes
                    )  # each tile asks for another line
                    if blueprint.source == "panels":
                        tile_sums(
                            done,
                            a,
                            b,
                            batch,
                            batch_b,
                            row,
                            here,
                            panel,
                            start,
                            end,
                            0,
                            step,
                            ask,
                            blueprint,
                        )
                    else:
                        tile_sums(
                            done,
                            a,
                            b_panel,
                            batch,
                            0,
                            row,
                            here,
                            panel - side,
                            start,
                            end,
                            start,
                            step,
                            ask,
                            blueprint,
                        )
                    for i in range(tile - row, here):
                        less = sums[row + i - first_row] if kind == "i8" else 0
                        if whole:
                            tile_row(
                                done,
                                i,
                                out,
                                bias,
                                residual,
                                mask,
                                alpha,
                                fill,
                                batch,
                                row + i,
                                panel,
                                columns,
                                not blueprint.once and start > 0,
                                last_piece,
                                less,
                                True,
                                blueprint,
                            )
                        else:
                            tile_row(
                                done,
                                i,
                                out,
                                bias,
                                residual,
                                mask,
                                alpha,
                                fill,
                                batch,
                                row + i,
                                panel,
                                columns,
                                not blueprint.once and start > 0,
                                last_piece,
                                less,
                                False,
                                blueprint,
                            )


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
def tile_sums(
    done, a, b, batch, batch_b, row, here, panel, first_k, last_k, origin, step, ask, blueprint
):
    """done = `here` rows of a times one panel, which begins with row `origin` of b."""
    if blueprint.matrix:
        cb.tile_dot(
            done,
            here,
            a,
            (batch, row, first_k),
            b,
            (batch_b, panel, first_k - origin, 0),
            last_k - first_k,
            blueprint.kind,
        )
    elif here == blueprint.rows:
        tile_product(
            done, a, b, batch, batch_b, row, panel, first_k, last_k, origin, step, ask, blueprint
        )
    else:
        for r in range(here):
            row_product(
                done, r, a, b, batch, batch_b, row + r, panel, first_k, last_k, origin, blueprint
            )
