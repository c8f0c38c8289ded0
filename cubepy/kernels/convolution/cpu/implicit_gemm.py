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

from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.cpu.input_tile import (
    LINE,
    Geometry,
    begin_of,
    copy_patch,
    rows_seen,
    starts_of,
)
from cubepy.kernels.convolution.cpu.register_tile import add_column
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.kernels.primitives.register_transpose import transpose_lines


@cb.struct
class Block:
    """What a cube makes for each panel: `here` pixels of an image from `pixel` of a plane on, where
    the plane's first is `origin` of all.

    `source` is its copy of the input, or the input, whose first element that they see is `base`.
    """

    source: Any
    panels: Any
    acc_tile: Any
    epilogue: LineEpilogue
    n: Any
    group: Any
    origin: Any
    pixel: Any
    here: Any
    base: Any
    g: Geometry
    plan: cb.Comptime[Any]

    def tile(self, q, f, at_panel, piece, last, rows):
        """`rows` output pixels from q on times the panel of filters f and on, over the window or a
        piece of it: to the result, or to the accumulators.

        `acc` is touched by constant loops only, so it stays in registers.
        """
        g, plan, here = self.g, self.plan, self.here
        lines, lanes = plan.lines, plan.lanes
        acc = cb.local((rows, lines), cb.f32, lanes=lanes)
        b_lines = cb.local(lines, cb.f32, lanes=lanes)
        starts = starts_of(self.pixel + q, here - q, rows, self.base, g, plan)
        for i in cb.unroll(range(rows)):
            for j in cb.unroll(range(lines)):
                acc[i, j] = cb.splat(0.0, lanes)
        column = self.group * g.filters + f
        t0, t1, u0, u1 = 0, g.walk_d, 0, g.walk_h
        if plan.pieces:
            t0 = piece // g.walk_h
            u0 = piece - t0 * g.walk_h
            t1, u1 = t0 + 1, u0 + 1
            if piece > 0:
                for i in cb.unroll(range(rows)):
                    for j in cb.unroll(range(lines)):
                        acc[i, j] = self.acc_tile.load((q + i, j * lanes), lanes)
        steps = (t1 - t0) * (u1 - u0) * g.walk_w * g.run
        ahead = at_panel + (t0 * g.walk_h + u0) * g.panel_row
        ahead_step = 0
        if plan.ahead:
            if q // rows * plan.ahead < lines:  # the filters that come next, while these are used
                ahead = ahead + (steps * lines + q // rows * steps * plan.ahead) * lanes
                ahead_step = plan.ahead * lanes
        behind = starts[0] + rows * g.run
        portion = g.run * g.run_step
        if plan.add and plan.filters_last:
            portion = (steps // (rows + 2) + 1) * g.run_step
        asked = q + rows
        if plan.edges:
            low, high = rows_seen(self.pixel + q, self.pixel + cb.min(q + rows, here) - 1, g)
            u0, u1 = cb.max(u0, low), cb.min(u1, high)
        for t in range(t0, t1):
            for u in range(u0, u1):
                row = at_panel + (t * g.walk_h + u) * g.panel_row
                for v in range(g.walk_w):
                    at = t * g.step_d + u * g.step_h + v * g.step_w
                    k = row + v * g.panel_step
                    stop = at + g.run * g.run_step
                    while at < stop:
                        until = cb.min(stop, at + portion)
                        # of unknown step, so that LLVM does not unroll it and run out of registers
                        while at < until:
                            add_column(acc, b_lines, self.panels, k, self.source, starts, at)
                            if plan.ahead:
                                for j in range(plan.ahead):
                                    self.panels.prefetch(ahead + j * lanes)
                                ahead = ahead + ahead_step
                            if plan.follow:
                                self.source.prefetch(behind)
                                behind = behind + rows
                            at = at + g.run_step
                            k = k + g.panel_run
                        # what the next tile adds, a pixel at a time: all at once stalls
                        if plan.add and plan.filters_last:
                            pixel = self.origin + self.pixel + asked
                            for j in range(lines):
                                self.epilogue.residual.prefetch((self.n, pixel, column + j * lanes))
                            asked = asked + 1
        if not plan.filters_last or (plan.pieces and not last):
            for i in cb.unroll(range(rows)):
                for j in cb.unroll(range(lines)):
                    self.acc_tile.store((q + i, j * lanes), acc[i, j])
        if plan.filters_last and last:
            self.write(acc, q, column, g.filters - f, rows)

    def write(self, acc, q, column, left, rows):
        """A tile's sums of `rows` pixels from q on to the result: filters `column` and on, of which
        `left` are there.
        """
        plan, epilogue = self.plan, self.epilogue
        lines, lanes = plan.lines, plan.lanes
        first = self.origin + self.pixel
        if plan.light and plan.width <= left:
            for j in cb.unroll(range(lines)):
                shift = None
                if plan.bias:
                    shift = epilogue.shift((self.n, first, column + j * lanes), lanes)
                for i in cb.unroll(range(rows)):
                    pixel = first + cb.min(q + i, self.here - 1)
                    at = (self.n, pixel, column + j * lanes)
                    epilogue.finish(acc[i, j], at, None, plan.streaming, shift)
        else:
            done = cb.local((rows, lines), cb.f32, lanes=lanes)
            for i in cb.unroll(range(rows)):
                for j in cb.unroll(range(lines)):
                    done[i, j] = acc[i, j]
            for i in range(cb.min(rows, self.here - q)):
                for j in range(lines):
                    valid = left - j * lanes
                    if valid > 0:
                        at = (self.n, first + q + i, column + j * lanes)
                        epilogue.finish(done[i, j], at, valid)

    def transpose(self, begin, stop, f):
        """The accumulated sums of some pixels to the result, whose neighbours are pixels:
        transposed in registers.
        """
        lanes, filters = self.plan.lanes, self.g.filters
        columns = cb.min(self.plan.width, filters - f)
        for q in range(begin, stop, lanes):
            for j in range(0, columns, lanes):
                turned = tuple(
                    self.acc_tile.load((q + i, j), lanes) for i in cb.unroll(range(lanes))
                )
                turned = transpose_lines(turned, lanes)
                if self.plan.add or not self.plan.light:
                    square = cb.local(lanes, cb.f32, lanes=lanes)
                    for i in cb.unroll(range(lanes)):
                        square[i] = turned[i]
                    for i in range(cb.min(lanes, columns - j)):
                        self.finish_plane(square[i], self.group * filters + f + j + i, q)
                else:
                    for i in cb.unroll(range(lanes)):
                        if j + i < columns:
                            self.finish_plane(turned[i], self.group * filters + f + j + i, q)

    def finish_plane(self, sums, f, q):
        """A line of pixels of a filter to the result."""
        at = (self.n, f, self.origin + self.pixel + q)
        self.epilogue.finish(sums, at, self.here - q, self.plan.streaming)
        if not self.plan.streaming:  # a page for each filter: nothing else asks for the next line
            self.epilogue.out.prefetch((at[0], at[1], at[2] + LINE))


@cb.func
def convolve_block(block, first_panel, n_panels):
    """All pixels of a block for some panels, tile by tile; where the window is walked in pieces,
    for one piece after the other.
    """
    g, plan, here, rows = block.g, block.plan, block.here, block.plan.rows
    tiles = (here + rows - 1) // rows
    whole = cb.max(0, tiles - (tiles * rows - here))
    pieces = 1
    if plan.pieces:
        pieces = g.walk_d * g.walk_h
    depth = g.taps * g.channels
    for panel in range(first_panel, cb.min(first_panel + g.block_panels, n_panels)):
        f = panel * plan.width
        at_panel = (block.group * n_panels + panel) * depth * plan.width
        for piece in range(pieces):
            last = piece == pieces - 1
            done: cb.i32 = 0
            for tile in range(tiles):
                q = tile * rows
                following = q + rows
                if tile < whole:
                    block.tile(q, f, at_panel, piece, last, rows)
                else:
                    q = q - (tile - whole)
                    following = q + rows - 1
                    block.tile(q, f, at_panel, piece, last, rows - 1)
                if not plan.filters_last:
                    if last:  # while the sums are near
                        stop = here if tile == tiles - 1 else following // plan.lanes * plan.lanes
                        block.transpose(done, stop, f)
                        done = stop


@cb.kernel
def convolve(x: cb.Array, panels: cb.Array, bias, add, out: cb.Array, geometry, plan: cb.Comptime):
    """out[n, pixel, f] (or [n, f, pixel]) = activation(sum over the window of x * panels + bias +
    add).

    x and panels are flat; out and add are (N, pixels, filters) or (N, filters, pixels); `geometry`
    has the fields of `Geometry`. A cube makes one of `cuts` ranges of pixels (of whole rows where
    it copies its input) for `block_panels` panels.
    """
    g = Geometry(*geometry)
    epilogue = LineEpilogue(
        out, plan.activation, bias, add, axis=2 if plan.filters_last else 1, joined="add"
    )
    panel_blocks = (g.panels + g.block_panels - 1) // g.block_panels
    first_panel = (cb.CUBE_POS % panel_blocks) * g.block_panels
    at = cb.CUBE_POS // panel_blocks
    cut = at % g.cuts
    at = at // g.cuts
    d = at % g.out_d
    at = at // g.out_d
    group = at % g.groups
    n = at // g.groups
    patch = cb.shared(plan.room + 64 if plan.room else 1, cb.f32)
    acc_tile = cb.shared((plan.acc_tile if plan.acc_tile else 1, plan.width), cb.f32)
    origin = d * g.out_h * g.out_w
    if plan.room:
        h = begin_of(cut, g.out_h, g.cuts)
        pixel = h * g.out_w
        here = begin_of(cut + 1, g.out_h, g.cuts) * g.out_w - pixel
        first = (d * g.stride_d - g.pad_d, h * g.stride_h - g.pad_h, -g.pad_w)
        copy_patch(patch, x, n, group * g.channels, first, g, plan)
        base = -h * g.stride_h * g.th
    else:
        pixel = begin_of(cut, g.out_h * g.out_w, g.cuts)
        here = begin_of(cut + 1, g.out_h * g.out_w, g.cuts) - pixel
        base = n * g.sn + group * g.channels * g.sc + d * g.stride_d * g.sd
    source = patch if plan.room else x
    block = Block(source, panels, acc_tile, epilogue, n, group, origin, pixel, here, base, g, plan)
    convolve_block(block, first_panel, g.panels)
