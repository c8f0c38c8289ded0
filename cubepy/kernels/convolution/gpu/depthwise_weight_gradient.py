"""The gradient of a convolution of channels by its filters, on any GPU: a unit adds boxes of
positions.
"""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.gpu.depthwise import (
    BUSY,
    LARGEST_RANGE,
    PIXELS,
    ROWS,
    SUMS,
    UNITS,
    WRITTEN_OUT,
    Box,
    reach,
    seen_rows,
)
from cubepy.kernels.convolution.gpu.in_order import in_order
from cubepy.kernels.convolution.problem import WeightGradient, in_three
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.kernels.reduce.reduce import sum as reduce_sum
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine


@cb.func
def line_at(x, image, row, column, c, edge: cb.Comptime[bool], lanes: cb.Comptime[int]):
    """A line of channels in f32, with zeros where there is none: then it is the one of the nearest
    pixel, not taken.
    """
    if not edge:
        return cb.cast(x.load((image, row, column, c), lanes), cb.f32)
    there = row >= 0 and row < x.shape[1] and column >= 0 and column < x.shape[2]
    near = (image, cb.clamp(row, 0, x.shape[1] - 1), cb.clamp(column, 0, x.shape[2] - 1), c)
    return cb.select(
        there, cb.cast(x.load(near, lanes), cb.f32), cb.cast(cb.splat(0.0, lanes), cb.f32)
    )


@cb.func
def add_box(acc, x, grad, origin, pixel, edge: cb.Comptime[bool], plan: cb.Comptime[Box]):
    """The products of a box of the gradient that starts at `pixel` with what it sees, from `origin`
    on.
    """
    lanes, rows, pixels, wide, step = (
        plan.lanes,
        plan.rows,
        plan.pixels,
        plan.window[2],
        plan.dilation[2],
    )
    image, top, left, c = origin
    given = tuple(
        line_at(grad, pixel[0], pixel[1] + k // pixels, pixel[2] + k % pixels, c, edge, lanes)
        for k in cb.unroll(range(rows * pixels))
    )
    for i, pairs in cb.unroll(seen_rows(plan)):
        seen = tuple(
            line_at(x, image, top + i, left + j, c, edge, lanes)
            for j in cb.unroll(range(reach(plan)))
        )
        for r, below in cb.unroll(pairs):
            for v in cb.unroll(range(wide)):
                for p in cb.unroll(range(pixels)):
                    k = below * wide + v
                    acc[k] = cb.fma(
                        seen[p * plan.stride[2] + v * step], given[r * pixels + p], acc[k]
                    )


@cb.kernel
def channelwise_weight(
    x: cb.Array,
    grad: cb.Array,
    sums: cb.Array,
    per,
    cuts,
    depth,
    pad_d,
    pad_h,
    high: cb.Comptime[int],
    plan: cb.Comptime[Box],
):
    """sums[range, tap, c] = sum over a range's pixels of grad[pixel, c] * x[pixel seen by tap, c],
    channels last.

    x and grad are (N * D, H, W, C), `depth` their two D: with fewer axes the compiler sees that
    lines are aligned. An image has `cuts` ranges, of `per` boxes. A unit does a line of channels
    for all rows of the plan's window, which are all `tall` rows of the window, or one of them.
    """
    if "mma" in cb.device_properties().features:
        cb.resident(3)
    lanes, rows, pixels, wide = plan.lanes, plan.rows, plan.pixels, plan.window[2]
    across = sums.shape[2] // lanes
    parts = high // plan.window[1]  # units for the rows of a window
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    c = multiple(at % across * lanes, lanes)
    at = at // across
    u = at % parts
    t = at // parts % plan.window[0]
    part = at // (parts * plan.window[0])
    if part < sums.shape[0]:
        image = part // cuts
        d, n = image % depth[1], image // depth[1]
        deep = d * plan.stride[0] + t * plan.dilation[0] - pad_d
        acc = cb.local(plan.window[1] * wide, cb.f32, lanes=lanes)
        for k in cb.unroll(range(plan.window[1] * wide)):
            acc[k] = cb.splat(0.0, lanes)
        beside = (grad.shape[2] + pixels - 1) // pixels
        first = part % cuts * per
        stop = cb.min(first + per, (grad.shape[1] + rows - 1) // rows * beside)
        for box in range(first, stop if deep >= 0 and deep < depth[0] else first):
            h, w = box // beside * rows, box % beside * pixels
            top, left = (
                h * plan.stride[1] + u * plan.dilation[1] - pad_h,
                w * plan.stride[2] - plan.pad,
            )
            whole = (
                h + rows <= grad.shape[1] and w + pixels <= grad.shape[2] and top >= 0 and left >= 0
            )
            whole = (
                whole
                and top + seen_rows(plan)[-1][0] < x.shape[1]
                and left + reach(plan) <= x.shape[2]
            )
            origin = (n * depth[0] + deep, top, left, multiple(c, lanes))
            if whole:  # neither clamps nor choices
                add_box(acc, x, grad, origin, (image, h, w), False, plan)
            else:
                add_box(acc, x, grad, origin, (image, h, w), True, plan)
        for k in cb.unroll(range(plan.window[1] * wide)):
            tap = (t * high + u * plan.window[1]) * wide + k
            sums.store((part, tap, multiple(c, lanes)), acc[k])


class ChannelsWeight(GpuRoutine):
    """Every channel has its own filter: units do boxes of pixels, for a line of channels."""

    name = "wide_channels"

    def unfit(self, p: WeightGradient, properties: cb.DeviceProperties) -> str | None:
        """Depthwise, windows that are not too wide."""
        span = (p.shape.window[2] - 1) * p.shape.dilation[2] + PIXELS
        fits = p.depthwise and span <= WRITTEN_OUT // 2
        return None if fits else "depthwise, windows that are not wide"

    def launch(self, p: WeightGradient, properties: cb.DeviceProperties) -> None:
        """Sums of boxes, then a reduction."""
        problem = p.shape
        x, seen = (in_three(in_order(a)) for a in p.last)
        n, c = x.shape[0], x.shape[4]
        x, seen = (a.reshape(-1, *a.shape[2:]) for a in (x, seen))
        lanes = min(line_of(x), line_of(seen))
        lanes = lanes if c % lanes == 0 else 1
        deep, high, wide = problem.window
        below = (
            high if high * wide * min(lanes, 2) <= SUMS else 1
        )  # rows of the window that a unit does
        while lanes > 1 and lanes * below * wide > SUMS:
            lanes //= 2
        rows, pixels = (min(PIXELS, 1 << (k - 1).bit_length()) for k in problem.out[1:])
        rows = (
            min(rows, ROWS // 2) if max(problem.stride) > 1 else rows
        )  # so that lines stay in registers
        how = (problem.stride, problem.dilation, problem.pad[2], 1, None)
        box = Box(rows, pixels, lanes, (deep, below, wide), *how)
        images, boxes = (
            n * problem.out[0],
            -(-problem.out[1] // rows) * -(-problem.out[2] // pixels),
        )
        each = deep * (high // below) * (c // lanes)
        per = max(1, min(LARGEST_RANGE, images * boxes * each // BUSY))
        cuts = -(-boxes // per)
        sums = memory.empty((images * cuts, deep * high * wide, c), np.float32)
        depths = (problem.size[0], problem.out[0])
        channelwise_weight[-(-images * cuts * each // UNITS), UNITS](
            x, seen, sums, per, cuts, depths, *problem.pad[:2], high, box, mode="unchecked"
        )
        total = reduce_sum(sums.reshape(images * cuts, -1), axis=0).reshape(-1, c)
        convert_into(p.out.reshape(c, -1), total.T)
