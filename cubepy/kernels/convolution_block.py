"""The CPU's convolution: an implicit matrix product, whose rows are output places and whose depth is the window.

A cube makes some whole rows of output places for a group of filter panels. It copies the input rows that it needs,
with their padding, into memory of its own (where they stay in the cache), and walks the window with a register tile
of `rows` places x `lines` lines of filters: the place's element is broadcast, the panel is read in order. Nothing is
unrolled into columns in memory, and what lies behind the edge costs no test in the inner loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.matmul_kernels import transpose_lines


@dataclass(frozen=True)
class Plan:
    """What changes the code of a convolution.

    Attributes:
        rows, lines, lanes: of the register tile.
        places: output places of a cube, rounded up to whole tiles.
        room: elements of the cube's copy of the input; 0: the input is read where it is.
        filters_last: whether results of neighbouring filters are neighbours in memory (NHWC).
        bias: whether one is added.
        activation: a func of the result, or None.
    """

    rows: int
    lines: int
    lanes: int
    places: int
    room: int
    filters_last: bool
    bias: bool
    activation: Any

    @property
    def width(self) -> int:
        """Filters of a panel."""
        return self.lines * self.lanes


@cb.kernel
def pack_filters(weight: cb.Array, out: cb.Array, width: cb.Comptime[int]):
    """out[group, panel, tap, c, j] = weight[group, panel * width + j, c, tap], zero where there is no such filter."""
    panels, taps, channels = out.shape[1], out.shape[2], out.shape[3]
    panel = cb.CUBE_POS % panels
    group = cb.CUBE_POS // panels
    for j in range(width):
        f = panel * width + j
        for c in range(channels):
            for t in range(taps):
                out[group, panel, t, c, j] = cb.cast(weight[group, f, c, t], out.dtype)


GEOMETRY = (
    "depth height width sn sd sh sw sc td th tw tc window_d rows_in width_in stride_d stride_h stride_w "
    "pad_d pad_h pad_w out_d out_h out_w channels size groups panels taps filters block_rows block_panels "
    "walk_d walk_h walk_w step_d step_h step_w run run_step"
).split()
"""What the integers of a launch are: sizes and strides of the input (n, d, h, w, c) and of a cube's copy of it (t, h,
w, c), its extent, the convolution's numbers, the packed filters, the cut of the work, and the walk over the window:
three loops with their steps, and an innermost run."""


@cb.func
def number(geometry, name: cb.Comptime[str]):
    """One of the integers of a launch, by its name."""
    return geometry[GEOMETRY.index(name)]


@cb.func
def copy_strip(strip, x, n, channel, first, g, lanes):
    """The input rows of a cube with their padding: strip[t, r, w, c], or strip[c, t, r, w] (the strides say which)."""
    depth, height, width = number(g, "depth"), number(g, "height"), number(g, "width")
    sn, sd, sh = number(g, "sn"), number(g, "sd"), number(g, "sh")
    sw, sc = number(g, "sw"), number(g, "sc")
    td, th, tw, tc = number(g, "td"), number(g, "th"), number(g, "tw"), number(g, "tc")
    window_d, rows_in, width_in = number(g, "window_d"), number(g, "rows_in"), number(g, "width_in")
    channels, size = number(g, "channels"), number(g, "size")
    d0, h0, w0 = first
    zero = cb.cast(cb.splat(0.0, lanes), cb.f32)
    for k in range(0, size, lanes):
        strip.store(k, zero)  # the last line may hang over: there is room for it
    left = cb.max(0, -w0)
    right = cb.min(width_in, width - w0)
    for t in range(window_d):
        at_d = d0 + t
        if at_d >= 0 and at_d < depth:
            for r in range(cb.max(0, -h0), cb.min(rows_in, height - h0)):
                source = n * sn + channel * sc + at_d * sd + (h0 + r) * sh + (w0 + left) * sw
                target = t * td + r * th + left * tw
                if tc == 1:
                    if sc == 1:
                        if sw == channels and tw == channels:
                            copy_run(strip, target, x, source, (right - left) * channels, lanes)
                        else:
                            for w in range(right - left):
                                copy_run(strip, target + w * tw, x, source + w * sw, channels, lanes)
                    else:
                        for w in range(right - left):
                            for c in range(channels):
                                strip[target + w * tw + c] = cb.cast(x[source + w * sw + c * sc], cb.f32)
                else:
                    for c in range(channels):
                        copy_run(strip, target + c * tc, x, source + c * sc, right - left, lanes)


@cb.func
def copy_run(strip, target, x, source, count, lanes):
    """Neighbours to neighbours."""
    whole = count // lanes * lanes
    for k in range(0, whole, lanes):
        strip.store(target + k, cb.cast(x.load(source + k, lanes), cb.f32))
    if whole < count:
        rest = cb.cast(x.load(source + whole, lanes, valid=count - whole), cb.f32)
        strip.store(target + whole, rest, valid=count - whole)


@cb.func
def tile_of(done, source, places, panels, first, g, rows, lines, lanes):
    """done = `rows` output places times the panel that begins at `first`, over the whole window; `acc` stays in
    registers."""
    step_d, step_h, step_w = number(g, "step_d"), number(g, "step_h"), number(g, "step_w")
    run, run_step = number(g, "run"), number(g, "run_step")
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    strip = cb.local(lines, cb.f32, lanes=lanes)
    for i in range(rows):
        for j in range(lines):
            acc[i, j] = cb.splat(0.0, lanes)
    k = first
    for t in range(number(g, "walk_d")):
        for u in range(number(g, "walk_h")):
            for v in range(number(g, "walk_w")):
                at = t * step_d + u * step_h + v * step_w
                stop = at + run * run_step
                while at < stop:  # of unknown step, so that LLVM does not unroll it and run out of registers
                    for j in range(lines):
                        strip[j] = panels.load(k + j * lanes, lanes)
                    for i in cb.unroll(range(rows)):
                        x = cb.splat(cb.cast(source[places[i] + at], cb.f32), lanes)
                        for j in range(lines):
                            acc[i, j] = cb.fma(x, strip[j], acc[i, j])
                    at = at + run_step
                    k = k + lines * lanes
    for i in range(rows):
        for j in range(lines):
            done[i, j] = acc[i, j]


@cb.kernel
def convolve(x: cb.Array, panels: cb.Array, bias, out: cb.Array, g: cb.Array, plan: cb.Comptime):
    """out[n, place, f] (or [n, f, place]) = activation(sum over the window of x * panels + bias).

    x and panels are flat; out is (N, places, filters) or (N, filters, places); g has the numbers of `GEOMETRY`. A cube
    makes `block_rows` rows of places for `block_panels` panels.
    """
    rows, lines, lanes = plan.rows, plan.lines, plan.lanes
    stride_d, stride_h, stride_w = number(g, "stride_d"), number(g, "stride_h"), number(g, "stride_w")
    out_d, out_h, out_w = number(g, "out_d"), number(g, "out_h"), number(g, "out_w")
    n_panels, groups, channels = number(g, "panels"), number(g, "groups"), number(g, "channels")
    filters, depth = number(g, "filters"), number(g, "taps")
    block_rows, block_panels = number(g, "block_rows"), number(g, "block_panels")
    th, tw, sh, sw = number(g, "th"), number(g, "tw"), number(g, "sh"), number(g, "sw")
    panel_blocks = (n_panels + block_panels - 1) // block_panels
    row_blocks = (out_h + block_rows - 1) // block_rows
    first_panel = (cb.CUBE_POS % panel_blocks) * block_panels
    at = cb.CUBE_POS // panel_blocks
    h = (at % row_blocks) * block_rows
    at = at // row_blocks
    d = at % out_d
    at = at // out_d
    group = at % groups
    n = at // groups
    here = cb.min(block_rows, out_h - h) * out_w
    place0 = (d * out_h + h) * out_w
    strip = cb.shared(plan.room + 64 if plan.room else 1, cb.f32)
    if plan.room:
        first = (d * stride_d - number(g, "pad_d"), h * stride_h - number(g, "pad_h"), -number(g, "pad_w"))
        copy_strip(strip, x, n, group * channels, first, g, lanes)
    base = n * number(g, "sn") + group * channels * number(g, "sc") + d * stride_d * number(g, "sd") + h * stride_h * sh
    done = cb.local((rows, lines), cb.f32, lanes=lanes)
    board = cb.shared((1 if plan.filters_last else plan.places, plan.width), cb.f32)
    for panel in range(first_panel, cb.min(first_panel + block_panels, n_panels)):
        f = panel * plan.width
        for q in range(0, here, rows):
            places = ()
            for i in cb.unroll(range(rows)):
                p = cb.min(q + i, here - 1)
                r = p // out_w
                if plan.room:
                    places = places + (r * stride_h * th + (p - r * out_w) * stride_w * tw,)
                else:
                    places = places + (base + r * stride_h * sh + (p - r * out_w) * stride_w * sw,)
            if plan.room:
                tile_of(
                    done, strip, places, panels, (group * n_panels + panel) * depth * plan.width, g, rows, lines, lanes
                )
            else:
                tile_of(done, x, places, panels, (group * n_panels + panel) * depth * plan.width, g, rows, lines, lanes)
            for i in range(cb.min(rows, here - q)):
                for j in cb.unroll(range(lines)):
                    valid = filters - f - j * lanes
                    if valid > 0:
                        value = done[i, j]
                        if plan.bias:
                            value = value + cb.cast(
                                bias.load(group * filters + f + j * lanes, lanes, valid=valid), cb.f32
                            )
                        if plan.activation is not None:
                            value = plan.activation(value)
                        if plan.filters_last:
                            to = (n, place0 + q + i, group * filters + f + j * lanes)
                            out.store(to, cb.cast(value, out.dtype), valid=valid)
                        else:
                            board.store((q + i, j * lanes), value)
        if not plan.filters_last:
            for q in range(0, here, lanes):
                for j in range(0, cb.min(plan.width, filters - f), lanes):
                    turned = ()
                    for i in cb.unroll(range(lanes)):
                        turned = turned + (board.load((q + i, j), lanes),)
                    turned = transpose_lines(turned, lanes)
                    for i in cb.unroll(range(lanes)):
                        if f + j + i < filters:
                            to = (n, group * filters + f + j + i, place0 + q)
                            out.store(to, cb.cast(turned[i], out.dtype), valid=here - q)
