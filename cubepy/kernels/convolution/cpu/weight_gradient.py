"""The CPU's gradient of a convolution by its filters: products of pixels, tap by tap, without
columns in memory.

For a tap, the gradient's lines of filters times the input's elements at the pixels that the tap
sees are summed over all pixels. A cube makes some taps and channels (the rows of register tiles) of
a panel of filters (their lines). It walks the pixels in blocks: it copies the gradient's lines of a
block into memory of its own, where a cache holds them side by side, and all of its tiles read them
there. The input is read where it is, one broadcast element a row; pixels that lie behind its edge
are left out by the bounds of the loop.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.cpu.filters import transpose_square
from cubepy.kernels.convolution.cpu.implicit_gemm_plan import computed
from cubepy.kernels.convolution.cpu.input_tile import begin_of
from cubepy.kernels.convolution.cpu.register_tile import tile_for
from cubepy.kernels.convolution.cpu.weight_gradient_plan import NUMBERS, PIXELS, plan_of, sharers
from cubepy.kernels.convolution.problem import Problem, WeightGradient
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.movement.pad import pad
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine


@cb.func
def number(numbers, name: cb.Comptime[str]):
    """One of the integers of a launch, by its name."""
    return numbers[NUMBERS.index(name)]


@cb.func
def copy_turned(grad_block, grad, target, source, plane, left, count, plan):
    """Lines of filters of `count` neighbouring pixels, whose filters are planes: transposed in
    registers.
    """
    lanes, width = plan.lanes, plan.width
    whole = source + (cb.min(left, width) - 1) * plane + count + lanes <= grad.size
    square = cb.local(lanes, cb.f32, lanes=lanes)
    for q in range(0, count, lanes):
        for j in range(0, cb.min(width, left), lanes):
            for i in range(lanes):
                at = source + q + cb.min(j + i, left - 1) * plane
                if whole:  # masked loads take a multiple of the time where the caches miss
                    square[i] = grad.load(at, lanes)
                else:
                    square[i] = grad.load(at, lanes, valid=grad.size - at)
            transpose_square(square, lanes)
            for i in range(lanes):
                grad_block.store(target + (q + i) * width + j, square[i])


@cb.func
def copy_block(grad_block, grad, group, panel, u0, u1, a, b, g, plan):
    """grad_block[pixel, f] of pixels a to b of some rows; what lies behind the last filter or pixel
    is arbitrary.
    """
    width, lanes = plan.width, plan.lanes
    filters, out_w = number(g, "filters"), number(g, "out_w")
    all_filters = filters * number(g, "groups")
    f = group * filters + panel * width
    count = b - a if b - a < out_w else (u1 - u0) * out_w
    if plan.last:
        for q in range(count):
            at = (u0 * out_w + a + q) * all_filters + f
            if at + width <= grad.size:
                for j in cb.unroll(range(0, width, lanes)):
                    grad_block.store(q * width + j, grad.load(at + j, lanes))
            else:
                for j in range(0, cb.min(width, grad.size - at), lanes):
                    grad_block.store(
                        q * width + j, grad.load(at + j, lanes, valid=grad.size - at - j)
                    )
    else:
        rows = number(g, "out_d") * number(g, "out_h")
        plane = rows * out_w
        left = filters - panel * width
        u = u0
        done = 0
        while u < u1:  # image by image
            n = u // rows
            stop = cb.min(u1, (n + 1) * rows)
            here = cb.min(count, (stop - u) * out_w)
            source = (n * all_filters + f) * plane + (u - n * rows) * out_w + a
            copy_turned(grad_block, grad, done * width, source, plane, left, here, plan)
            done = done + here
            u = stop


@cb.func
def tile_sums(
    x, grad_block, sums, at_sums, run, first, group, u0, u1, a, b, started, g, rows, plan
):
    """Add a block's products to the sums of `rows` rows of a run.

    `acc` is touched by constant loops only, so it stays in registers.
    """
    lines, lanes, width = plan.lines, plan.lanes, plan.width
    channels, xw = number(g, "channels"), number(g, "xw")
    window_h, window_w = number(g, "window_h"), number(g, "window_w")
    out_d, out_h = number(g, "out_d"), number(g, "out_h")
    stride_w = number(g, "stride_w")
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    line = cb.local(lines, cb.f32, lanes=lanes)
    starts = cb.local(rows, cb.i64)
    results = cb.local(rows, cb.i64)
    for r in range(rows):
        row = cb.min(first + r, number(g, "run") - 1)
        tap = row // channels
        starts[r] = tap * number(g, "dilation_w") * xw + (row - tap * channels) * number(g, "xc")
        results[r] = at_sums + (run * number(g, "run") + row) * width
        for j in range(lines):
            acc[r, j] = (
                sums.load(results[r] + j * lanes, lanes) if started else cb.splat(0.0, lanes)
            )
    t = run // (window_h * window_w)
    v = run % window_w
    see_d = t * number(g, "dilation_d") - number(g, "pad_d")
    see_h = run // window_w % window_h * number(g, "dilation_h") - number(g, "pad_h")
    see_w = v * number(g, "dilation_w") - number(g, "pad_w")
    low = cb.max(a, (stride_w - 1 - see_w) // stride_w)
    high = cb.max(low, cb.min(b, (number(g, "width") - 1 - see_w) // stride_w + 1))
    base = group * channels * number(g, "xc") + (low * stride_w + see_w) * xw
    step = stride_w * xw
    h = u0 % out_h
    d = u0 // out_h % out_d
    n = u0 // (out_h * out_d)
    for u in range(u0, u1):
        in_d = d * number(g, "stride_d") + see_d
        in_h = h * number(g, "stride_h") + see_h
        at = base + n * number(g, "xn") + in_d * number(g, "xd") + in_h * number(g, "xh")
        k = ((u - u0) * (b - a) + low - a) * width
        inside = (
            in_d >= 0 and in_d < number(g, "depth") and in_h >= 0 and in_h < number(g, "height")
        )
        stop = cb.select(inside, at + (high - low) * step, at)
        while (
            at < stop
        ):  # of unknown step, so that LLVM does not unroll it and run out of registers
            for j in range(lines):
                line[j] = grad_block.load(k + j * lanes, lanes)
            for r in range(rows):
                seen = cb.splat(x[starts[r] + at], lanes)
                for j in range(lines):
                    acc[r, j] = cb.fma(seen, line[j], acc[r, j])
            at = at + step
            k = k + width
        h = h + 1
        if h == out_h:
            h = 0
            d = d + 1
            if d == out_d:
                d = 0
                n = n + 1
    for r in range(rows):
        for j in range(lines):
            sums.store(results[r] + j * lanes, acc[r, j])


@cb.kernel
def sum_pixels(x: cb.Array, grad: cb.Array, sums: cb.Array, g, plan: cb.Comptime):
    """sums[part, group, panel, tap, c, f] = the sum over a part of the pixels of x[.., c] *
    grad[.., f].

    x and grad are flat, g are the `NUMBERS`. A run is the channels of a tap, or of all taps along
    the width.
    """
    rows, width = plan.rows, plan.width
    chunks, parts = number(g, "chunks"), number(g, "parts")
    panels, groups = number(g, "panels"), number(g, "groups")
    run, run_tiles, whole_tiles = number(g, "run"), number(g, "run_tiles"), number(g, "whole_tiles")
    runs = number(g, "window_d") * number(g, "window_h") * number(g, "window_w")
    units, block, pieces, out_w = (
        number(g, "units"),
        number(g, "block"),
        number(g, "pieces"),
        number(g, "out_w"),
    )
    chunk = cb.CUBE_POS % chunks
    at = cb.CUBE_POS // chunks
    panel = at % panels
    at = at // panels
    group = at % groups
    part = at // groups
    at_sums = ((part * groups + group) * panels + panel) * runs * run * width
    first, last = (
        begin_of(chunk, runs * run_tiles, chunks),
        begin_of(chunk + 1, runs * run_tiles, chunks),
    )
    start, stop = begin_of(part, units, parts), begin_of(part + 1, units, parts)
    grad_block = cb.shared((PIXELS + plan.lanes) * width, cb.f32)
    for u0 in range(start, stop, block):
        u1 = cb.min(u0 + block, stop)
        for piece in range(pieces):
            a, b = begin_of(piece, out_w, pieces), begin_of(piece + 1, out_w, pieces)
            copy_block(grad_block, grad, group, panel, u0, u1, a, b, g, plan)
            started = u0 > start or piece > 0
            for tile in range(first, last):
                of = tile // run_tiles
                k = tile - of * run_tiles
                if k < whole_tiles:
                    tile_sums(
                        x,
                        grad_block,
                        sums,
                        at_sums,
                        of,
                        k * rows,
                        group,
                        u0,
                        u1,
                        a,
                        b,
                        started,
                        g,
                        rows,
                        plan,
                    )
                else:
                    r = k * (rows - 1) + whole_tiles
                    tile_sums(
                        x,
                        grad_block,
                        sums,
                        at_sums,
                        of,
                        r,
                        group,
                        u0,
                        u1,
                        a,
                        b,
                        started,
                        g,
                        rows - 1,
                        plan,
                    )


@cb.kernel
def fold_sums(sums: cb.Array, out: cb.Array, pieces, lanes: cb.Comptime[int]):
    """out[group, f, c * taps + tap] = the sum over the parts of sums[part, group, panel, tap, c,
    f].
    """
    parts, panels, taps = sums.shape[0], sums.shape[2], sums.shape[3]
    width, filters, total = sums.shape[5], out.shape[1], out.shape[2]
    piece = cb.CUBE_POS % pieces
    panel = cb.CUBE_POS // pieces % panels
    group = cb.CUBE_POS // (pieces * panels)
    blocks = (total + lanes - 1) // lanes
    square = cb.local(lanes, cb.f32, lanes=lanes)
    of_tap = cb.local(lanes, cb.i64)
    of_channel = cb.local(lanes, cb.i64)
    for block in range(begin_of(piece, blocks, pieces), begin_of(piece + 1, blocks, pieces)):
        m = block * lanes
        for i in range(lanes):
            at = cb.min(m + i, total - 1)
            of_channel[i] = at // taps
            of_tap[i] = at % taps
        for j in range(0, cb.min(width, filters - panel * width), lanes):
            for i in range(lanes):
                line = sums.load((0, group, panel, of_tap[i], of_channel[i], j), lanes)
                for part in range(1, parts):
                    line = line + sums.load(
                        (part, group, panel, of_tap[i], of_channel[i], j), lanes
                    )
                square[i] = line
            transpose_square(square, lanes)
            for i in range(cb.min(lanes, filters - panel * width - j)):
                if m + lanes <= total:
                    out.store((group, panel * width + j + i, m), cb.cast(square[i], out.dtype))
                else:
                    out.store(
                        (group, panel * width + j + i, m),
                        cb.cast(square[i], out.dtype),
                        valid=total - m,
                    )


def _laid(a: Any) -> tuple[Any, bool]:
    """(N, C, ...) in f32 in one of two layouts, flat, and whether channels are neighbours."""
    turned = a.transpose(0, *range(2, a.ndim), 1)
    last = bool(turned.flags.c_contiguous) and not a.flags.c_contiguous
    seen = turned if last else contiguous(a)
    if seen.dtype != np.float32:
        wide = memory.empty(seen.shape, np.float32)
        convert_into(wide, seen)
        seen = wide
    return seen, last


class Pixels(CpuRoutine):
    """A product along the pixels: lanes lie along the filters."""

    name = "pixels"

    def unfit(self, p: WeightGradient, properties: cb.DeviceProperties) -> str | None:
        """Floats of up to 32 bits on the host."""
        return None if p.on_host else "for f32 and narrower, on the host"

    def launch(self, p: WeightGradient, properties: cb.DeviceProperties) -> None:
        """Padding and layouts first."""
        seen, x_last = _laid(p.x)
        lines, last = _laid(p.grad)
        n, channels, filters = p.x.shape[0], p.out.shape[1], p.out.shape[0] // p.groups
        problem, groups = p.shape, p.groups
        if problem.window == problem.stride == (1, 1, 1) and not any(
            problem.pad
        ):  # all pixels are alike
            whole = math.prod(problem.out)
            if x_last and last:
                n, whole = 1, n * whole
            problem = Problem(
                (1, 1, whole), (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1), (1, 1, whole)
            )
        rows = tile_for(filters, properties)[0]
        merged = problem.window[2] > 1 and computed(channels, rows) > 1.15 * channels
        if merged and problem.pad[2]:
            inner = (
                p.x.shape[1] if x_last else 1
            )  # the width makes one axis with channels that are neighbours
            seen = pad(seen.reshape(-1, problem.size[2] * inner), (problem.pad[2] * inner,) * 2)
            size = (*problem.size[:2], problem.size[2] + 2 * problem.pad[2])
            problem = Problem(
                size,
                problem.window,
                problem.stride,
                (*problem.pad[:2], 0),
                problem.dilation,
                problem.out,
            )
        cubes, numbers, plan = plan_of(
            problem,
            n,
            groups,
            channels,
            filters,
            x_last,
            last,
            merged,
            sharers(properties),
            properties,
        )
        panels, parts, taps = (
            -(-filters // plan.width),
            numbers[NUMBERS.index("parts")],
            math.prod(problem.window),
        )
        sums = memory.empty((int(parts), groups, panels, taps, channels, plan.width), np.float32)
        sum_pixels[cubes, 1](
            seen.reshape(-1), lines.reshape(-1), sums.reshape(-1), numbers, plan, mode="unchecked"
        )
        pieces = max(1, min(-(-taps * channels // plan.lanes), 16 // (groups * panels)))
        result = p.out.reshape(groups, filters, -1)
        fold_sums[groups * panels * pieces, 1](sums, result, pieces, plan.lanes, mode="unchecked")
