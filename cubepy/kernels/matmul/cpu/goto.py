"""Large products on a CPU with 16 registers: a cube copies a piece of its rows of a, then walks all
panels of b.

The rows of a lie far apart, often a multiple of 4 KB, where they share few sets of the caches.
Copied in the order in which they are multiplied, they stay in the second-level cache while one
panel after the other goes by (Goto and van de Geijn, 2008). The panels come from further away;
while a tile is multiplied, a part of the next panel is asked for.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.matmul.cpu.microkernel import Piece, tile_row
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.kernels.primitives.register_transpose import transpose_lines

MOST_TILES = 12
"""Tiles of a cube along M, at most: with DEEP numbers of each row 220 KB of a second-level cache
of 512.
"""
DEEP = (
    768  # of a piece of K, at most: such a panel has 48 KB, and the next one comes while it is used
)
LINE = 16  # numbers in a line of the caches
SOON = 128  # numbers that a row is asked for ahead while it is copied
UNROLL = (
    4  # steps along K for one question for the next panel: the first four tiles ask for all of it
)


@cb.kernel
def goto_product(
    a: cb.Array,
    b: cb.Array,
    epilogue: LineEpilogue,
    row_blocks,
    groups,
    begin,
    deep,
    depth,
    blueprint: cb.Comptime,
):
    """epilogue(a[batch] @ b) for a cube: one of `row_blocks` blocks of rows, one of
    `groups` of panels.

    a is (batch, M, K), b (batch or 1, panels, rows * width): `deep` rows of K from `begin` on,
    perhaps all, and what is not read. A block has at most `MOST_TILES` tiles. K is walked in pieces
    of `depth`, at most `DEEP`, whose sums are added up in out; the epilogue follows the last.
    """
    rows, lines, lanes, width = blueprint.rows, blueprint.lines, blueprint.lanes, blueprint.width
    out = epilogue.out
    m, columns = out.shape[1], out.shape[2]
    panels = (columns + width - 1) // width
    group = cb.CUBE_POS % groups
    block = cb.CUBE_POS // groups % row_blocks
    batch = cb.CUBE_POS // (groups * row_blocks)
    batch_b = cb.min(batch, b.shape[0] - 1)
    tiles = (m + rows - 1) // rows
    step = cb.cast(cb.min(row_blocks, 1), cb.i64)
    first_row = block * tiles // row_blocks * rows
    last_row = cb.min((block + 1) * tiles // row_blocks * rows, m)
    done = cb.local((rows, lines), cb.f32, lanes=lanes)
    a_panel = cb.local((MOST_TILES, DEEP * rows + lanes), cb.f32)
    for k in range(1 if blueprint.once else (deep + depth - 1) // depth):
        start = 0 if blueprint.once else k * depth
        count = deep if blueprint.once else cb.min(depth, deep - start)
        first_piece = blueprint.once or begin + start == 0
        last_piece = blueprint.once or begin + start + count == a.shape[2]
        piece = Piece(start, start + count, not first_piece, last_piece)
        pack_a_rows(a_panel, a, batch, first_row, last_row, begin + start, count, blueprint)
        for panel in range(group * panels // groups, (group + 1) * panels // groups):
            whole = (panel + 1) * width <= columns
            for tile in range(first_row, last_row, rows):
                here = cb.min(rows, m - tile)
                for i in cb.unroll(range(rows)):
                    out.prefetch((batch, tile + i, panel * width))
                at = ((tile - first_row) // rows, batch_b, panel)
                goto_tile(done, a_panel, b, at, start, count, step, blueprint)
                for i in range(here):
                    at_row = (batch, tile + i, panel)
                    if whole:
                        tile_row(done, i, epilogue, at_row, piece, 0, True, blueprint)
                    else:
                        tile_row(done, i, epilogue, at_row, piece, 0, False, blueprint)


@cb.func
def pack_a_rows(a_panel, a, batch, first_row, last_row, start, count, blueprint):
    """a_panel[t, k * rows + i] = a[batch, first_row + t * rows + i, start + k]; the last row stands
    for those beyond.

    Squares are transposed, and what comes `SOON` is asked for. A line is stored for each k; what is
    too much of it is overwritten by the next.
    """
    rows, lanes = blueprint.rows, blueprint.lanes
    for t in range((last_row - first_row + rows - 1) // rows):
        for k in range(0, count, lanes):
            if k % LINE == 0:
                for r in cb.unroll(range(rows)):
                    a.prefetch(
                        (batch, cb.min(first_row + t * rows + r, last_row - 1), start + k + SOON)
                    )
            square = ()
            for r in cb.unroll(range(lanes)):
                row = cb.min(first_row + t * rows + min(r, rows - 1), last_row - 1)
                square = square + (a.load((batch, row, start + k), lanes, valid=count - k),)
            columns = transpose_lines(square, lanes)
            for c in cb.unroll(range(lanes)):
                a_panel.store((t, (k + c) * rows), columns[c])


@cb.func
def goto_tile(done, a_panel, b, at, start, count, step, blueprint):
    """done = a tile of the panel of a times `count` rows of a panel from row `start` on; `step`
    is one; `at`: the tile, and batch and panel of b.
    """
    tile, batch, panel = at
    rows, lines, lanes = blueprint.rows, blueprint.lines, blueprint.lanes
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    line = cb.local(lines, cb.f32, lanes=lanes)
    for i in range(rows):
        for j in range(lines):
            acc[i, j] = cb.splat(0.0, lanes)
    k, last = cb.cast(0, cb.i64), cb.cast(count, cb.i64)
    whole = last // UNROLL * UNROLL
    pace = step * (blueprint.asks * blueprint.width)
    ask = (start + cb.min(tile * blueprint.asks, UNROLL) * (count // UNROLL)) * (
        step * blueprint.width
    )
    pace = pace if tile * blueprint.asks < UNROLL else 0 * pace
    while k < whole:
        for q in cb.unroll(range(blueprint.asks)):
            b.prefetch((batch, panel + 1, ask + q * blueprint.width))
        ask = ask + pace
        for unrolled in cb.unroll(range(UNROLL)):
            row = start + k + unrolled
            goto_step(acc, line, a_panel, b, at, row, k + unrolled, blueprint)
        k = k + UNROLL * step
    while k < last:
        goto_step(acc, line, a_panel, b, at, start + k, k, blueprint)
        k = k + step
    for i in range(rows):
        for j in range(lines):
            done[i, j] = acc[i, j]


@cb.func
def goto_step(acc, line, a_panel, b, at, row, k, blueprint):
    """Add the products of one row of a panel and of one column of the panel of a."""
    lanes = blueprint.lanes
    tile, batch, panel = at
    for j in range(blueprint.lines):
        line[j] = b.load((batch, panel, row * blueprint.width + j * lanes), lanes)
    for i in range(blueprint.rows):
        x = cb.splat(a_panel[tile, k * blueprint.rows + i], lanes)
        for j in range(blueprint.lines):
            acc[i, j] = cb.fma(x, line[j], acc[i, j])
