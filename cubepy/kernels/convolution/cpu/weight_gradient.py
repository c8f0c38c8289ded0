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
from cubepy.kernels.convolution.cpu.register_tile import add_column, tile_for
from cubepy.kernels.convolution.cpu.weight_gradient_plan import (
    PIXELS,
    GradientGeometry,
    plan_of,
    sharers,
)
from cubepy.kernels.convolution.problem import Problem, WeightGradient
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.movement.pad import pad
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine


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


@cb.struct
class Block:
    """Pixels a to b of rows u0 to u1 of all rows of pixels, the lines of the gradient there, and
    whether blocks before it have been summed.
    """

    lines: Any
    u0: Any
    u1: Any
    a: Any
    b: Any
    started: Any


@cb.func
def copy_block(block, grad, group, panel, g, plan):
    """The lines [pixel, f] of a block; what lies behind the last filter or pixel is arbitrary."""
    u0, u1, a, b = block.u0, block.u1, block.a, block.b
    grad_block = block.lines
    width, lanes = plan.width, plan.lanes
    filters, out_w = g.filters, g.out_w
    all_filters = filters * g.groups
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
        rows = g.out_d * g.out_h
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
def tile_sums(x, block, sums, at_sums, run, first, group, rows, g, plan):
    """Add a block's products to the sums of `rows` rows of a run.

    `acc` is touched by constant loops only, so it stays in registers.
    """
    u0, u1, a, b = block.u0, block.u1, block.a, block.b
    lines, lanes, width = plan.lines, plan.lanes, plan.width
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    line = cb.local(lines, cb.f32, lanes=lanes)
    starts = cb.local(rows, cb.i64)
    results = cb.local(rows, cb.i64)
    for r in range(rows):
        row = cb.min(first + r, g.run - 1)
        tap = row // g.channels
        starts[r] = tap * g.dilation_w * g.xw + (row - tap * g.channels) * g.xc
        results[r] = at_sums + (run * g.run + row) * width
        for j in range(lines):
            acc[r, j] = (
                sums.load(results[r] + j * lanes, lanes) if block.started else cb.splat(0.0, lanes)
            )
    t = run // (g.window_h * g.window_w)
    v = run % g.window_w
    see_d = t * g.dilation_d - g.pad_d
    see_h = run // g.window_w % g.window_h * g.dilation_h - g.pad_h
    see_w = v * g.dilation_w - g.pad_w
    low = cb.max(a, (g.stride_w - 1 - see_w) // g.stride_w)
    high = cb.max(low, cb.min(b, (g.width - 1 - see_w) // g.stride_w + 1))
    base = group * g.channels * g.xc + (low * g.stride_w + see_w) * g.xw
    step = g.stride_w * g.xw
    h = u0 % g.out_h
    d = u0 // g.out_h % g.out_d
    n = u0 // (g.out_h * g.out_d)
    for u in range(u0, u1):
        in_d = d * g.stride_d + see_d
        in_h = h * g.stride_h + see_h
        at = base + n * g.xn + in_d * g.xd + in_h * g.xh
        k = ((u - u0) * (b - a) + low - a) * width
        inside = in_d >= 0 and in_d < g.depth and in_h >= 0 and in_h < g.height
        stop = cb.select(inside, at + (high - low) * step, at)
        # of unknown step, so that LLVM does not unroll it and run out of registers
        while at < stop:
            add_column(acc, line, block.lines, k, x, starts, at)
            at = at + step
            k = k + width
        h = h + 1
        if h == g.out_h:
            h = 0
            d = d + 1
            if d == g.out_d:
                d = 0
                n = n + 1
    for r in range(rows):
        for j in range(lines):
            sums.store(results[r] + j * lanes, acc[r, j])


@cb.kernel
def sum_pixels(x: cb.Array, grad: cb.Array, sums: cb.Array, geometry, plan: cb.Comptime):
    """sums[part, group, panel, tap, c, f] = the sum over a part of the pixels of x[.., c] *
    grad[.., f].

    x and grad are flat; `geometry` has the fields of `GradientGeometry`. A run is the channels of a
    tap, or of all taps along the width.
    """
    g = GradientGeometry(*geometry)
    rows = plan.rows
    runs = g.window_d * g.window_h * g.window_w
    chunk = cb.CUBE_POS % g.chunks
    at = cb.CUBE_POS // g.chunks
    panel = at % g.panels
    at = at // g.panels
    group = at % g.groups
    part = at // g.groups
    at_sums = ((part * g.groups + group) * g.panels + panel) * runs * g.run * plan.width
    first = begin_of(chunk, runs * g.run_tiles, g.chunks)
    last = begin_of(chunk + 1, runs * g.run_tiles, g.chunks)
    start, stop = begin_of(part, g.units, g.parts), begin_of(part + 1, g.units, g.parts)
    lines = cb.shared((PIXELS + plan.lanes) * plan.width, cb.f32)
    for u0 in range(start, stop, g.block):
        u1 = cb.min(u0 + g.block, stop)
        for piece in range(g.pieces):
            a, b = begin_of(piece, g.out_w, g.pieces), begin_of(piece + 1, g.out_w, g.pieces)
            block = Block(lines, u0, u1, a, b, u0 > start or piece > 0)
            copy_block(block, grad, group, panel, g, plan)
            for tile in range(first, last):
                of = tile // g.run_tiles
                k = tile - of * g.run_tiles
                if k < g.whole_tiles:
                    tile_sums(x, block, sums, at_sums, of, k * rows, group, rows, g, plan)
                else:
                    r = k * (rows - 1) + g.whole_tiles
                    tile_sums(x, block, sums, at_sums, of, r, group, rows - 1, g, plan)


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
            GradientGeometry(*numbers).parts,
            math.prod(problem.window),
        )
        sums = memory.empty((int(parts), groups, panels, taps, channels, plan.width), np.float32)
        sum_pixels[cubes, 1](
            seen.reshape(-1), lines.reshape(-1), sums.reshape(-1), numbers, plan, mode="unchecked"
        )
        pieces = max(1, min(-(-taps * channels // plan.lanes), 16 // (groups * panels)))
        result = p.out.reshape(groups, filters, -1)
        fold_sums[groups * panels * pieces, 1](sums, result, pieces, plan.lanes, mode="unchecked")
