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
from cubepy.kernels.convolution.cpu.transposed_plan import ACC_TILE, NUMBERS, ROOM, Phases, plan_of
from cubepy.kernels.movement.copy import contiguous
from cubepy.runtime import memory


@cb.func
def number(numbers, name: cb.Comptime[str]):
    """One of the integers of a launch, by its name."""
    return numbers[NUMBERS.index(name)]


@cb.func
def phase_of(at, g, axis: cb.Comptime[str]):
    """The last tap that reaches a phase, how many do, and where pixel 0 sees the last."""
    stride, dilation = number(g, "stride_" + axis), number(g, "dilation_" + axis)
    taps, every = number(g, "window_" + axis), number(g, "every_" + axis)
    start = at + number(g, "cut_" + axis)
    tap = 0
    while tap < taps and (start - tap * dilation) % stride != 0:
        tap = tap + 1
    count = (taps - 1 - tap) // every + 1
    last = tap + (count - 1) * every
    return last, count, (start - last * dilation) // stride


@cb.func
def copy_input(patch, x, n, channel, first, extent, g, plan):
    """The input of a cube with zeros around it: patch[t, r, w, c], or patch[c, t, r, w].

    It is written in the order of memory, so that a line may hang over its row.
    """
    d0, h0, w0 = first
    depth, height, width = number(g, "depth"), number(g, "height"), number(g, "width")
    sw, tw = number(g, "sw"), number(g, "tw")
    channels = number(g, "channels")
    left = cb.min(extent[2], cb.max(0, -w0))
    right = cb.max(left, cb.min(extent[2], width - w0))
    planes = 1 if plan.input_last else channels
    for c in range(planes):
        for t in range(extent[0]):
            for r in range(extent[1]):
                d, h = d0 + t, h0 + r
                target = c * number(g, "tc") + t * number(g, "td") + r * number(g, "th")
                if d >= 0 and d < depth and h >= 0 and h < height:
                    source = (
                        n * number(g, "sn") + (channel + c) * number(g, "sc") + d * number(g, "sd")
                    )
                    source = source + h * number(g, "sh") + (w0 + left) * sw
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


@cb.func
def phase_tile(
    patch,
    panels,
    bias,
    out,
    acc_tile,
    source,
    at_panel,
    counts,
    above,
    q,
    here,
    columns,
    corner,
    phase,
    span,
    channel,
    left,
    g,
    rows,
    plan,
):
    """`rows` pixels of a phase times one panel, to the result or to the accumulators.

    Pixels of row 0 see row `above` of the input first; taps that all pixels see behind its edges
    are left out. `acc` is touched by constant loops only, so it stays in registers.
    """
    lines, lanes = plan.lines, plan.lanes
    window_h, window_w = number(g, "window_h"), number(g, "window_w")
    run, tc = number(g, "channels") * number(g, "tc"), number(g, "tc")
    tap_w = number(g, "every_w") * number(g, "channels") * plan.width
    tap_h = number(g, "every_h") * window_w * number(g, "channels") * plan.width
    tap_d = number(g, "every_d") * window_h * window_w * number(g, "channels") * plan.width
    step_d, step_h = (
        number(g, "tap_step_d") * number(g, "td"),
        number(g, "tap_step_h") * number(g, "th"),
    )
    step_w = number(g, "tap_step_w") * number(g, "tw")
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    line = cb.local(lines, cb.f32, lanes=lanes)
    seen = pixels_from(q, here, columns, rows)
    starts = tuple(
        source + seen[p][0] * number(g, "th") + seen[p][1] * number(g, "tw")
        for p in cb.unroll(range(rows))
    )
    for j in cb.unroll(range(lines)):
        start = cb.splat(0.0, lanes)
        if plan.bias:
            start = cb.cast(bias.load(channel + j * lanes, lanes, valid=left - j * lanes), cb.f32)
        for p in cb.unroll(range(rows)):
            acc[p, j] = start
    tap_step, high = number(g, "tap_step_h"), above + seen[0][0]
    low = above + seen[rows - 1][0]
    u0 = (cb.max(0, -low) + tap_step - 1) // tap_step
    u1 = cb.min(counts[1], (cb.max(0, number(g, "height") - high) + tap_step - 1) // tap_step)
    for t in range(counts[0]):
        for u in range(u0, u1):
            for v in range(counts[2]):
                at = t * step_d + u * step_h + v * step_w
                k = at_panel - t * tap_d - u * tap_h - v * tap_w
                stop = at + run
                while (
                    at < stop
                ):  # of unknown step, so that LLVM does not unroll it and run out of registers
                    for j in range(lines):
                        line[j] = panels.load(k + j * lanes, lanes)
                    for p in cb.unroll(range(rows)):
                        x = cb.splat(patch[starts[p] + at], lanes)
                        for j in range(lines):
                            acc[p, j] = cb.fma(x, line[j], acc[p, j])
                    at = at + tc
                    k = k + plan.width
    if not plan.output_last:
        for p in cb.unroll(range(rows)):
            to_acc = seen[p][0] * span + seen[p][1] * number(g, "stride_w") + phase[2]
            for j in cb.unroll(range(lines)):
                acc_tile.store((to_acc, j * lanes), acc[p, j])
    elif left >= plan.width:
        for p in cb.unroll(range(rows)):
            h = corner[2] + seen[p][0] * number(g, "stride_h")
            w = corner[3] + seen[p][1] * number(g, "stride_w") + phase[2]
            for j in cb.unroll(range(lines)):
                out.store(
                    (corner[0], corner[1], h, w, channel + j * lanes), cb.cast(acc[p, j], out.dtype)
                )
    else:
        done = cb.local((rows, lines), cb.f32, lanes=lanes)
        for p in cb.unroll(range(rows)):
            for j in cb.unroll(range(lines)):
                done[p, j] = acc[p, j]
        for p in range(cb.min(rows, here - q)):
            r = (q + p) // columns
            w = (q + p - r * columns) * number(g, "stride_w") + phase[2]
            h = corner[2] + r * number(g, "stride_h")
            for j in range(lines):
                if left > j * lanes:
                    to = (corner[0], corner[1], h, corner[3] + w, channel + j * lanes)
                    out.store(to, cb.cast(done[p, j], out.dtype), valid=left - j * lanes)


@cb.func
def transpose_rows(acc_tile, out, corner, rows, span, channel, left, g, plan):
    """The accumulated sums to rows of the result whose neighbours are pixels: transposed in
    registers.
    """
    lanes = plan.lanes
    square = cb.local(lanes, cb.f32, lanes=lanes)
    for j in range(0, cb.min(plan.width, left), lanes):
        for r in range(rows):
            h = corner[2] + r * number(g, "stride_h")
            for q in range(0, span, lanes):
                for i in range(lanes):
                    square[i] = acc_tile.load((r * span + q + i, j), lanes)
                transpose_square(square, lanes)
                for i in range(cb.min(lanes, left - j)):
                    to = (corner[0], channel + j + i, corner[1], h, corner[3] + q)
                    if q + lanes <= span:
                        out.store(to, cb.cast(square[i], out.dtype))
                    else:
                        out.store(to, cb.cast(square[i], out.dtype), valid=span - q)


@cb.kernel
def convolve_phases(x: cb.Array, panels: cb.Array, bias, out: cb.Array, g, plan: cb.Comptime):
    """A transposed convolution: out is (N, D, H, W, C) or (N, C, D, H, W), x and panels are flat, g
    are the `NUMBERS`.

    A cube makes all phases along height and width of a range of pixels and a range of panels.
    """
    rows = plan.rows
    n_panels, block_panels = number(g, "panels"), number(g, "block_panels")
    cuts_h, cuts_w, out_d, groups = (
        number(g, "cuts_h"),
        number(g, "cuts_w"),
        number(g, "out_d"),
        number(g, "groups"),
    )
    stride_d, stride_h, stride_w = (
        number(g, "stride_d"),
        number(g, "stride_h"),
        number(g, "stride_w"),
    )
    out_h, out_w = number(g, "out_h"), number(g, "out_w")
    channels, filters = number(g, "channels"), number(g, "filters")
    window_h, window_w = number(g, "window_h"), number(g, "window_w")
    panel_blocks = (n_panels + block_panels - 1) // block_panels
    first_panel = cb.CUBE_POS % panel_blocks * block_panels
    at = cb.CUBE_POS // panel_blocks
    cut_w = at % cuts_w
    at = at // cuts_w
    cut_h = at % cuts_h
    at = at // cuts_h
    d = at % out_d
    at = at // out_d
    group = at % groups
    n = at // groups
    h0 = begin_of(cut_h, (out_h + stride_h - 1) // stride_h, cuts_h)
    h1 = begin_of(cut_h + 1, (out_h + stride_h - 1) // stride_h, cuts_h)
    w0 = begin_of(cut_w, (out_w + stride_w - 1) // stride_w, cuts_w)
    w1 = begin_of(cut_w + 1, (out_w + stride_w - 1) // stride_w, cuts_w)
    patch = cb.shared(ROOM + 64, cb.f32)
    acc_tile = cb.shared((1 if plan.output_last else ACC_TILE + 32, plan.width), cb.f32)
    last_d, count_d, see_d = phase_of(d % stride_d, g, "d")
    first = (d // stride_d + see_d, h0 + number(g, "low_h"), w0 + number(g, "low_w"))
    extent = (
        cb.max(0, (count_d - 1) * number(g, "tap_step_d") + 1),
        h1 - h0 + number(g, "more_h"),
        w1 - w0 + number(g, "more_w"),
    )
    copy_input(patch, x, n, group * channels, first, extent, g, plan)
    span = cb.min(out_w, w1 * stride_w) - w0 * stride_w
    tap = channels * plan.width
    for panel in range(first_panel, cb.min(first_panel + block_panels, n_panels)):
        left = filters - panel * plan.width
        channel = group * filters + panel * plan.width
        panel_start = (group * n_panels + panel) * number(g, "window_d") * window_h * window_w * tap
        for at_h in range(cb.min(stride_h, out_h)):
            last_h, count_h, see_h = phase_of(at_h, g, "h")
            high = cb.min(h1, (out_h - at_h + stride_h - 1) // stride_h) - h0
            corner = (n, d, h0 * stride_h + at_h, w0 * stride_w)
            for at_w in range(cb.min(stride_w, out_w)):
                last_w, count_w, see_w = phase_of(at_w, g, "w")
                columns = cb.min(w1, (out_w - at_w + stride_w - 1) // stride_w) - w0
                here = high * columns
                source = (see_h - number(g, "low_h")) * number(g, "th") + (
                    see_w - number(g, "low_w")
                ) * number(g, "tw")
                at_panel = panel_start + ((last_d * window_h + last_h) * window_w + last_w) * tap
                counts, above = (count_d, count_h, count_w), h0 + see_h
                phase = (0, at_h, at_w)
                tiles = (here + rows - 1) // rows
                whole = cb.max(0, tiles - (tiles * rows - here)) * rows
                for q in range(0, whole, rows):
                    phase_tile(
                        patch,
                        panels,
                        bias,
                        out,
                        acc_tile,
                        source,
                        at_panel,
                        counts,
                        above,
                        q,
                        here,
                        columns,
                        corner,
                        phase,
                        span,
                        channel,
                        left,
                        g,
                        rows,
                        plan,
                    )
                for q in range(whole, here, rows - 1):
                    phase_tile(
                        patch,
                        panels,
                        bias,
                        out,
                        acc_tile,
                        source,
                        at_panel,
                        counts,
                        above,
                        q,
                        here,
                        columns,
                        corner,
                        phase,
                        span,
                        channel,
                        left,
                        g,
                        rows - 1,
                        plan,
                    )
            if not plan.output_last:
                transpose_rows(acc_tile, out, corner, high, span, channel, left, g, plan)


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
