"""The CPU's convolution: an implicit matrix product, whose rows are output pixels and whose depth
is the window.

A cube makes a range of output pixels for a group of filter panels. It copies the input rows that it
needs, with their padding, into memory of its own (where they stay in the cache), and walks the
window with a register tile of `rows` pixels x `lines` lines of filters: the pixel's element is
broadcast, the panel is read in order. Nothing is unrolled into columns in memory, and what lies
behind the edge costs no test in the inner loop. Tiles of `rows` and of `rows - 1` pixels cover any
range but the shortest without a rest.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.convolution.cpu.input_tile import (
    LINE,
    begin_of,
    copy_patch,
    number,
    rows_seen,
    starts_of,
)
from cubepy.kernels.primitives.register_transpose import transpose_lines


@cb.func
def tile_of(
    source,
    bias,
    add,
    out,
    acc_tile,
    panels,
    base,
    pixel,
    origin,
    q,
    here,
    at_panel,
    f,
    group,
    n,
    piece,
    last,
    g,
    rows,
    plan,
):
    """`rows` output pixels times one panel, over the window or a piece of it: to the result, or to
    the accumulators.

    `acc` is touched by constant loops only, so it stays in registers.
    """
    lines, lanes = plan.lines, plan.lanes
    step_d, step_h, step_w = number(g, "step_d"), number(g, "step_h"), number(g, "step_w")
    run, run_step, panel_run = number(g, "run"), number(g, "run_step"), number(g, "panel_run")
    walk_d, walk_h, walk_w = number(g, "walk_d"), number(g, "walk_h"), number(g, "walk_w")
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    b_lines = cb.local(lines, cb.f32, lanes=lanes)
    starts = starts_of(pixel + q, here - q, rows, base, g, plan)
    for i in cb.unroll(range(rows)):
        for j in cb.unroll(range(lines)):
            acc[i, j] = cb.splat(0.0, lanes)
    filters = number(g, "filters")
    column = group * filters + f
    t0, t1, u0, u1 = 0, walk_d, 0, walk_h
    if plan.pieces:
        t0 = piece // walk_h
        u0 = piece - t0 * walk_h
        t1, u1 = t0 + 1, u0 + 1
        if piece > 0:
            for i in cb.unroll(range(rows)):
                for j in cb.unroll(range(lines)):
                    acc[i, j] = acc_tile.load((q + i, j * lanes), lanes)
    steps = (t1 - t0) * (u1 - u0) * walk_w * run
    ahead = at_panel + (t0 * walk_h + u0) * number(g, "panel_row")
    ahead_step = 0
    if plan.ahead:
        if q // rows * plan.ahead < lines:  # the filters that come next, while these are used
            ahead = ahead + (steps * lines + q // rows * steps * plan.ahead) * lanes
            ahead_step = plan.ahead * lanes
    behind = starts[0] + rows * run
    portion = run * run_step
    if plan.add and plan.filters_last:
        portion = (steps // (rows + 2) + 1) * run_step
    asked = q + rows
    if plan.edges:
        low, high = rows_seen(pixel + q, pixel + cb.min(q + rows, here) - 1, g)
        u0, u1 = cb.max(u0, low), cb.min(u1, high)
    for t in range(t0, t1):
        for u in range(u0, u1):
            row = at_panel + (t * walk_h + u) * number(g, "panel_row")
            for v in range(walk_w):
                at = t * step_d + u * step_h + v * step_w
                k = row + v * number(g, "panel_step")
                stop = at + run * run_step
                while at < stop:
                    until = cb.min(stop, at + portion)
                    while (
                        at < until
                    ):  # of unknown step, so that LLVM does not unroll it and run out of registers
                        for j in range(lines):
                            b_lines[j] = panels.load(k + j * lanes, lanes)
                        for i in cb.unroll(range(rows)):
                            x = cb.splat(cb.cast(source[starts[i] + at], cb.f32), lanes)
                            for j in range(lines):
                                acc[i, j] = cb.fma(x, b_lines[j], acc[i, j])
                        if plan.ahead:
                            for j in range(plan.ahead):
                                panels.prefetch(ahead + j * lanes)
                            ahead = ahead + ahead_step
                        if plan.follow:
                            source.prefetch(behind)
                            behind = behind + rows
                        at = at + run_step
                        k = k + panel_run
                    if (
                        plan.add and plan.filters_last
                    ):  # what the next tile adds, a pixel at a time: all at once stalls
                        for j in range(lines):
                            add.prefetch((n, origin + pixel + asked, column + j * lanes))
                        asked = asked + 1
    if not plan.filters_last or (plan.pieces and not last):
        for i in cb.unroll(range(rows)):
            for j in cb.unroll(range(lines)):
                acc_tile.store((q + i, j * lanes), acc[i, j])
    if plan.filters_last and last:
        start = (n, origin + pixel, column)
        write_tile(acc, bias, add, out, start, q, filters - f, here, rows, plan)


@cb.func
def write_tile(acc, bias, add, out, start, q, left, here, rows, plan):
    """A tile's sums of some pixels, from `q` of `here` on, to the result, of which `left` filters
    are there; `start`: the image, the first pixel of all, and the first filter.
    """
    lines, lanes = plan.lines, plan.lanes
    n, first, column = start
    if plan.light and plan.width <= left:
        for j in cb.unroll(range(lines)):
            more = cb.splat(0.0, lanes)
            if plan.bias:
                more = cb.cast(bias.load(column + j * lanes, lanes), cb.f32)
            for i in cb.unroll(range(rows)):
                to = (n, first + cb.min(q + i, here - 1), column + j * lanes)
                value = acc[i, j]
                if plan.bias:
                    value = value + more
                if plan.add:
                    value = value + cb.cast(add.load(to, lanes), cb.f32)
                if plan.activation is not None:
                    value = plan.activation(value)
                if plan.streaming:
                    out.store_stream(to, cb.cast(value, out.dtype))
                else:
                    out.store(to, cb.cast(value, out.dtype))
    else:
        done = cb.local((rows, lines), cb.f32, lanes=lanes)
        for i in cb.unroll(range(rows)):
            for j in cb.unroll(range(lines)):
                done[i, j] = acc[i, j]
        for i in range(cb.min(rows, here - q)):
            for j in range(lines):
                valid = left - j * lanes
                if valid > 0:
                    value = done[i, j]
                    if plan.bias:
                        shift = bias.load(column + j * lanes, lanes, valid=valid)
                        value = value + cb.cast(shift, cb.f32)
                    to = (n, first + q + i, column + j * lanes)
                    if plan.add:
                        value = value + cb.cast(add.load(to, lanes, valid=valid), cb.f32)
                    if plan.activation is not None:
                        value = plan.activation(value)
                    out.store(to, cb.cast(value, out.dtype), valid=valid)


@cb.func
def transpose_acc_tile(acc_tile, bias, add, out, n, origin, begin, stop, here, f, group, g, plan):
    """The accumulated sums of some pixels to the result, whose neighbours are pixels: transposed in
    registers.
    """
    lanes = plan.lanes
    filters = number(g, "filters")
    columns = cb.min(plan.width, filters - f)
    for q in range(begin, stop, lanes):
        for j in range(0, columns, lanes):
            turned = tuple(acc_tile.load((q + i, j), lanes) for i in cb.unroll(range(lanes)))
            turned = transpose_lines(turned, lanes)
            if plan.add or not plan.light:
                square = cb.local(lanes, cb.f32, lanes=lanes)
                for i in cb.unroll(range(lanes)):
                    square[i] = turned[i]
                for i in range(cb.min(lanes, columns - j)):
                    finish_line(
                        square[i],
                        bias,
                        add,
                        out,
                        n,
                        group * filters + f + j + i,
                        origin + q,
                        here - q,
                        plan,
                    )
            else:
                for i in cb.unroll(range(lanes)):
                    if j + i < columns:
                        at = group * filters + f + j + i
                        finish_line(turned[i], bias, add, out, n, at, origin + q, here - q, plan)


@cb.func
def finish_line(value, bias, add, out, n, f, pixel, valid, plan):
    """A line of pixels of a filter to the result."""
    lanes = plan.lanes
    if plan.bias:
        value = value + cb.cast(bias[f], cb.f32)
    if plan.add:
        value = value + cb.cast(add.load((n, f, pixel), lanes, valid=valid), cb.f32)
    if plan.activation is not None:
        value = plan.activation(value)
    if plan.streaming:
        out.store_stream((n, f, pixel), cb.cast(value, out.dtype))
    else:
        out.store((n, f, pixel), cb.cast(value, out.dtype), valid=valid)
        out.prefetch(
            (n, f, pixel + LINE)
        )  # a page for each filter: nothing else asks for the next line in time


@cb.kernel
def convolve(x: cb.Array, panels: cb.Array, bias, add, out: cb.Array, g, plan: cb.Comptime):
    """out[n, pixel, f] (or [n, f, pixel]) = activation(sum over the window of x * panels + bias +
    add).

    x and panels are flat; out and add are (N, pixels, filters) or (N, filters, pixels); g has the
    numbers of `GEOMETRY`. A cube makes one of `cuts` ranges of pixels (of whole rows where it
    copies its input) for `block_panels` panels.
    """
    rows = plan.rows
    stride_d, stride_h = number(g, "stride_d"), number(g, "stride_h")
    out_d, out_h, out_w = number(g, "out_d"), number(g, "out_h"), number(g, "out_w")
    n_panels, groups, channels = number(g, "panels"), number(g, "groups"), number(g, "channels")
    depth, block_panels, cuts = (
        number(g, "taps") * channels,
        number(g, "block_panels"),
        number(g, "cuts"),
    )
    panel_blocks = (n_panels + block_panels - 1) // block_panels
    first_panel = (cb.CUBE_POS % panel_blocks) * block_panels
    at = cb.CUBE_POS // panel_blocks
    cut = at % cuts
    at = at // cuts
    d = at % out_d
    at = at // out_d
    group = at % groups
    n = at // groups
    patch = cb.shared(plan.room + 64 if plan.room else 1, cb.f32)
    acc_tile = cb.shared((plan.acc_tile if plan.acc_tile else 1, plan.width), cb.f32)
    base = 0
    origin = d * out_h * out_w
    if plan.room:
        h = begin_of(cut, out_h, cuts)
        pixel = h * out_w
        here = begin_of(cut + 1, out_h, cuts) * out_w - pixel
        first = (
            d * stride_d - number(g, "pad_d"),
            h * stride_h - number(g, "pad_h"),
            -number(g, "pad_w"),
        )
        copy_patch(patch, x, n, group * channels, first, g, plan)
        base = -h * stride_h * number(g, "th")
    else:
        pixel = begin_of(cut, out_h * out_w, cuts)
        here = begin_of(cut + 1, out_h * out_w, cuts) - pixel
        base = (
            n * number(g, "sn")
            + group * channels * number(g, "sc")
            + d * stride_d * number(g, "sd")
        )
    tiles = (here + rows - 1) // rows
    whole = cb.max(0, tiles - (tiles * rows - here))
    source = patch if plan.room else x
    pieces = 1
    if plan.pieces:
        pieces = number(g, "walk_d") * number(g, "walk_h")
    for panel in range(first_panel, cb.min(first_panel + block_panels, n_panels)):
        f = panel * plan.width
        at_panel = (group * n_panels + panel) * depth * plan.width
        for piece in range(pieces):
            last = piece == pieces - 1
            done = 0
            for tile in range(tiles):
                q = tile * rows
                following = q + rows
                if tile < whole:
                    tile_of(
                        source,
                        bias,
                        add,
                        out,
                        acc_tile,
                        panels,
                        base,
                        pixel,
                        origin,
                        q,
                        here,
                        at_panel,
                        f,
                        group,
                        n,
                        piece,
                        last,
                        g,
                        rows,
                        plan,
                    )
                else:
                    q = q - (tile - whole)
                    following = q + rows - 1
                    tile_of(
                        source,
                        bias,
                        add,
                        out,
                        acc_tile,
                        panels,
                        base,
                        pixel,
                        origin,
                        q,
                        here,
                        at_panel,
                        f,
                        group,
                        n,
                        piece,
                        last,
                        g,
                        rows - 1,
                        plan,
                    )
                if not plan.filters_last:
                    if last:  # while the sums are near
                        stop = here if tile == tiles - 1 else following // plan.lanes * plan.lanes
                        transpose_acc_tile(
                            acc_tile,
                            bias,
                            add,
                            out,
                            n,
                            origin + pixel,
                            done,
                            stop,
                            here,
                            f,
                            group,
                            g,
                            plan,
                        )
                        done = stop
