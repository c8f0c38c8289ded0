"""The CPU's transposed convolution: each phase of the stride is a dense convolution with some of
the taps.

An output pixel at + stride * q sees only the taps t whose at + padding - t * dilation is a multiple
of the stride. So the outputs of one phase `at` are a convolution of stride 1 with every so many
taps, in reverse, and no zeros are put between the elements of the input. A cube makes all phases of
a range of pixels: it copies the input that they share, with zeros around it, into memory of its
own, and multiplies as `convolution.cpu.implicit_gemm` does.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.convolution.cpu.filters import transpose_square, turned_panels
from cubepy.kernels.convolution.cpu.input_tile import begin_of, copy_run, fill_zero
from cubepy.kernels.convolution.cpu.register_tile import add_column
from cubepy.kernels.convolution.cpu.transposed_plan import (
    ACC_TILE,
    ROOM,
    PhaseGeometry,
    Phases,
    plan_of,
)
from cubepy.kernels.movement.copy import contiguous
from cubepy.runtime import memory


@cb.func
def copy_input(patch, x, n, channel, first, extent, g, plan):
    """The input of a cube with zeros around it: patch[t, r, w, c], or patch[c, t, r, w].

    It is written in the order of memory, so that a line may hang over its row.
    """
    d0, h0, w0 = first
    depth, height, width = g.depth, g.height, g.width
    sw, tw = g.sw, g.tw
    channels = g.channels
    left = cb.min(extent[2], cb.max(0, -w0))
    right = cb.max(left, cb.min(extent[2], width - w0))
    planes = 1 if plan.input_last else channels
    for c in range(planes):
        for t in range(extent[0]):
            for r in range(extent[1]):
                d, h = d0 + t, h0 + r
                target = c * g.tc + t * g.td + r * g.th
                if d >= 0 and d < depth and h >= 0 and h < height:
                    source = n * g.sn + (channel + c) * g.sc + d * g.sd
                    source = source + h * g.sh + (w0 + left) * sw
                    fill_zero(patch, target, left * tw, plan.lanes)
                    if not plan.input_last or sw == channels:
                        copy_run(
                            patch, target + left * tw, x, source, (right - left) * tw, plan.lanes
                        )
                    else:
                        for w in range(right - left):
                            copy_run(
                                patch,
                                target + (left + w) * tw,
                                x,
                                source + w * sw,
                                channels,
                                plan.lanes,
                            )
                    fill_zero(patch, target + right * tw, (extent[2] - right) * tw, plan.lanes)
                else:
                    fill_zero(patch, target, extent[2] * tw, plan.lanes)


@cb.func
def pixels_from(q, here, columns, rows: cb.Comptime[int]):
    """Row and column of `rows` pixels of a phase from q on; the last of `here` is repeated."""
    r = q // columns
    w = q - r * columns
    found = ((r, w),)
    for i in cb.unroll(range(1, rows)):
        w = cb.select(q + i < here, w + 1, w)
        over = w == columns
        r = cb.select(over, r + 1, r)
        w = cb.select(over, 0, w)
        found = found + ((r, w),)
    return found


@cb.struct
class Phase:
    """Pixels of a phase of the stride, and a panel.

    They are `here`, in rows of `columns`, from `corner` (image, d, h, w) of the result on, `beside`
    columns further. Pixel 0 sees `source` of the cube's copy first, and row `above` of the input.
    Of the window `counts` taps reach the phase, the last at `at_panel`. `left` filters are there
    from `channel` on.
    """

    corner: Any
    beside: Any
    here: Any
    columns: Any
    source: Any
    above: Any
    counts: Any
    at_panel: Any
    channel: Any
    left: Any


@cb.struct
class Block:
    """What a cube has for all phases: its copy of the input, panels, its tile of sums, of which
    rows are `span` apart, and the result.
    """

    patch: Any
    panels: Any
    bias: Any
    out: Any
    acc_tile: Any
    span: Any
    g: PhaseGeometry
    plan: cb.Comptime[Any]

    def tile(self, phase, q, rows):
        """`rows` pixels of a phase times its panel, to the result or to the accumulators.

        Taps that all pixels see behind the input's edges are left out. `acc` is touched by constant
        loops only, so it stays in registers.
        """
        g, plan = self.g, self.plan
        lines, lanes = plan.lines, plan.lanes
        tap_w = g.every_w * g.channels * plan.width
        tap_h = g.every_h * g.window_w * g.channels * plan.width
        tap_d = g.every_d * g.window_h * g.window_w * g.channels * plan.width
        acc = cb.local((rows, lines), cb.f32, lanes=lanes)
        line = cb.local(lines, cb.f32, lanes=lanes)
        seen = pixels_from(q, phase.here, phase.columns, rows)
        starts = tuple(
            phase.source + seen[p][0] * g.th + seen[p][1] * g.tw for p in cb.unroll(range(rows))
        )
        for j in cb.unroll(range(lines)):
            start = cb.splat(0.0, lanes)
            if plan.bias:
                valid = phase.left - j * lanes
                start = cb.cast(
                    self.bias.load(phase.channel + j * lanes, lanes, valid=valid), cb.f32
                )
            for p in cb.unroll(range(rows)):
                acc[p, j] = start
        step, high, low = g.tap_step_h, phase.above + seen[0][0], phase.above + seen[rows - 1][0]
        u0 = (cb.max(0, -low) + step - 1) // step
        u1 = cb.min(phase.counts[1], (cb.max(0, g.height - high) + step - 1) // step)
        for t in range(phase.counts[0]):
            for u in range(u0, u1):
                for v in range(phase.counts[2]):
                    at = t * (g.tap_step_d * g.td) + u * (step * g.th) + v * (g.tap_step_w * g.tw)
                    k = phase.at_panel - t * tap_d - u * tap_h - v * tap_w
                    stop = at + g.channels * g.tc
                    # of unknown step, so that LLVM does not unroll it and run out of registers
                    while at < stop:
                        add_column(acc, line, self.panels, k, self.patch, starts, at)
                        at = at + g.tc
                        k = k + plan.width
        self.write(acc, phase, seen, q, rows)

    def write(self, acc, phase, seen, q, rows):
        """The sums of a tile of pixels, which are `seen` in their phase."""
        g, plan, out, left = self.g, self.plan, self.out, phase.left
        lines, lanes = plan.lines, plan.lanes
        n, d, top, side = phase.corner
        if not plan.output_last:
            for p in cb.unroll(range(rows)):
                to = seen[p][0] * self.span + seen[p][1] * g.stride_w + phase.beside
                for j in cb.unroll(range(lines)):
                    self.acc_tile.store((to, j * lanes), acc[p, j])
        elif left >= plan.width:
            for p in cb.unroll(range(rows)):
                h = top + seen[p][0] * g.stride_h
                w = side + seen[p][1] * g.stride_w + phase.beside
                for j in cb.unroll(range(lines)):
                    to = (n, d, h, w, phase.channel + j * lanes)
                    out.store(to, cb.cast(acc[p, j], out.dtype))
        else:
            done = cb.local((rows, lines), cb.f32, lanes=lanes)
            for p in cb.unroll(range(rows)):
                for j in cb.unroll(range(lines)):
                    done[p, j] = acc[p, j]
            for p in range(cb.min(rows, phase.here - q)):
                r = (q + p) // phase.columns
                w = (q + p - r * phase.columns) * g.stride_w + phase.beside
                h = top + r * g.stride_h
                for j in range(lines):
                    if left > j * lanes:
                        to = (n, d, h, side + w, phase.channel + j * lanes)
                        out.store(to, cb.cast(done[p, j], out.dtype), valid=left - j * lanes)

    def transpose(self, corner, rows, channel, left):
        """The accumulated sums to rows of the result whose neighbours are pixels: transposed in
        registers.
        """
        out, lanes, span = self.out, self.plan.lanes, self.span
        square = cb.local(lanes, cb.f32, lanes=lanes)
        for j in range(0, cb.min(self.plan.width, left), lanes):
            for r in range(rows):
                h = corner[2] + r * self.g.stride_h
                for q in range(0, span, lanes):
                    for i in range(lanes):
                        square[i] = self.acc_tile.load((r * span + q + i, j), lanes)
                    transpose_square(square, lanes)
                    for i in range(cb.min(lanes, left - j)):
                        to = (corner[0], channel + j + i, corner[1], h, corner[3] + q)
                        if q + lanes <= span:
                            out.store(to, cb.cast(square[i], out.dtype))
                        else:
                            out.store(to, cb.cast(square[i], out.dtype), valid=span - q)


@cb.kernel
def convolve_phases(
    x: cb.Array, panels: cb.Array, bias, out: cb.Array, geometry, plan: cb.Comptime
):
    """A transposed convolution: out is (N, D, H, W, C) or (N, C, D, H, W), x and panels are flat;
    `geometry` has the fields of `PhaseGeometry`.

    A cube makes all phases along height and width of a range of pixels and a range of panels.
    """
    g = PhaseGeometry(*geometry)
    rows = plan.rows
    panel_blocks = (g.panels + g.block_panels - 1) // g.block_panels
    first_panel = cb.CUBE_POS % panel_blocks * g.block_panels
    at = cb.CUBE_POS // panel_blocks
    cut_w = at % g.cuts_w
    at = at // g.cuts_w
    cut_h = at % g.cuts_h
    at = at // g.cuts_h
    d = at % g.out_d
    at = at // g.out_d
    group = at % g.groups
    n = at // g.groups
    h0 = begin_of(cut_h, (g.out_h + g.stride_h - 1) // g.stride_h, g.cuts_h)
    h1 = begin_of(cut_h + 1, (g.out_h + g.stride_h - 1) // g.stride_h, g.cuts_h)
    w0 = begin_of(cut_w, (g.out_w + g.stride_w - 1) // g.stride_w, g.cuts_w)
    w1 = begin_of(cut_w + 1, (g.out_w + g.stride_w - 1) // g.stride_w, g.cuts_w)
    patch = cb.shared(ROOM + 64, cb.f32)
    acc_tile = cb.shared((1 if plan.output_last else ACC_TILE + 32, plan.width), cb.f32)
    last_d, count_d, see_d = g.phase(d % g.stride_d, 0)
    first = (d // g.stride_d + see_d, h0 + g.low_h, w0 + g.low_w)
    extent = (cb.max(0, (count_d - 1) * g.tap_step_d + 1), h1 - h0 + g.more_h, w1 - w0 + g.more_w)
    copy_input(patch, x, n, group * g.channels, first, extent, g, plan)
    span = cb.min(g.out_w, w1 * g.stride_w) - w0 * g.stride_w
    block = Block(patch, panels, bias, out, acc_tile, span, g, plan)
    tap = g.channels * plan.width
    for panel in range(first_panel, cb.min(first_panel + g.block_panels, g.panels)):
        left = g.filters - panel * plan.width
        channel = group * g.filters + panel * plan.width
        panel_start = (group * g.panels + panel) * g.window_d * g.window_h * g.window_w * tap
        for at_h in range(cb.min(g.stride_h, g.out_h)):
            last_h, count_h, see_h = g.phase(at_h, 1)
            high = cb.min(h1, (g.out_h - at_h + g.stride_h - 1) // g.stride_h) - h0
            corner = (n, d, h0 * g.stride_h + at_h, w0 * g.stride_w)
            for at_w in range(cb.min(g.stride_w, g.out_w)):
                last_w, count_w, see_w = g.phase(at_w, 2)
                columns = cb.min(w1, (g.out_w - at_w + g.stride_w - 1) // g.stride_w) - w0
                here = high * columns
                source = (see_h - g.low_h) * g.th + (see_w - g.low_w) * g.tw
                at_panel = (
                    panel_start + ((last_d * g.window_h + last_h) * g.window_w + last_w) * tap
                )
                phase = Phase(
                    corner,
                    at_w,
                    here,
                    columns,
                    source,
                    h0 + see_h,
                    (count_d, count_h, count_w),
                    at_panel,
                    channel,
                    left,
                )
                tiles = (here + rows - 1) // rows
                whole = cb.max(0, tiles - (tiles * rows - here)) * rows
                for q in range(0, whole, rows):
                    block.tile(phase, q, rows)
                for q in range(whole, here, rows - 1):
                    block.tile(phase, q, rows - 1)
            if not plan.output_last:
                block.transpose(corner, high, channel, left)


def by_phases(
    view: Any,
    w: Any,
    bias: Any,
    problem: Phases,
    groups: int,
    channels_last: bool,
    out: Any,
    properties: cb.DeviceProperties,
) -> Any:
    """The transposed convolution (N, *problem.out, C) or (N, C, *problem.out) of a view (N, *size,
    C) in any layout.

    `out` is an array in C order to write, or None; there is a plan.
    """
    order = (0, view.ndim - 1, *range(1, view.ndim - 1))
    last = bool(view.flags.c_contiguous)
    if not last and not view.transpose(order).flags.c_contiguous:
        view, last = contiguous(view), True
    n, c, filters = view.shape[0], view.shape[-1], w.shape[1] * groups
    shape = (n, *problem.out, filters) if channels_last else (n, filters, *problem.out)
    out = memory.empty(shape, view.dtype) if out is None else out.reshape(shape)
    sizes = (n, groups, c // groups, w.shape[1])
    made = plan_of(problem, *sizes, last, channels_last, bias is not None, properties)
    assert made is not None
    cubes, numbers, plan = made
    flat = (view if last else view.transpose(order)).reshape(-1)
    panels = turned_panels(w, groups, False, plan.width, plan.lanes).reshape(-1)
    convolve_phases[cubes, 1](flat, panels, bias, out, numbers, plan, mode="unchecked")
    return out
