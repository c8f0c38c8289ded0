"""The CPU's gradients of depthwise convolutions, channels last: lines lie along the channels.

By the filters: a cube walks rows of pixels and adds what every tap sees to its sums; the taps of a
row of the window stay in registers along a row of pixels. By the input: an output pixel takes the
taps of its phase of the stride (see `convolution.cpu.transposed`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.cpu.depthwise_nhwc import add_row
from cubepy.kernels.convolution.cpu.geometry import some_integers
from cubepy.kernels.convolution.cpu.input_tile import begin_of
from cubepy.kernels.convolution.cpu.transposed_plan import PhaseGeometry, Phases
from cubepy.kernels.convolution.cpu.weight_gradient import fold_sums
from cubepy.kernels.convolution.cpu.weight_gradient_plan import sharers
from cubepy.kernels.convolution.problem import WeightGradient
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.movement.transpose import transpose
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine

SPAN = 8  # columns of a window that are written out
WRITTEN_OUT = 16  # columns of a window whose sums are in registers
TILE = 8  # pixels of a phase that are made at once

Products = tuple[int, tuple[int, ...], tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Sums:
    """What changes the code of the gradient by the filters.

    Attributes:
        window, stride, dilation: along depth, height and width.
        lanes: of a line.
        lines: lines of channels that are summed at once.
    """

    window: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    lanes: int
    lines: int


@cb.func
def row_sums(x, grad, at, see, sums, to, c, lines, edge: cb.Comptime[bool], plan):
    """Add a row of pixels to the sums of a row of the window, for `lines` lines of channels from c
    on.

    `at`: image, depth and height of the pixels, `see`: what pixel 0 sees, `to`: the part and the
    tap. With `edge` there is one line, and not all of its channels may be there.
    """
    n, d, h = at
    part, tap = to
    lanes, span = plan.lanes, plan.window[2]
    stride, dilation = plan.stride[2], plan.dilation[2]
    left = x.shape[4] - c
    acc = cb.local((span, lines), cb.f32, lanes=lanes)
    for v in cb.unroll(range(span)):
        for j in cb.unroll(range(lines)):
            acc[v, j] = sums.load((part, tap + v, c + j * lanes), lanes)
    pixels, width = grad.shape[3], x.shape[3]
    first = cb.min(pixels, cb.max(0, (stride - 1 - see[2]) // stride))
    stop = cb.clamp((width - 1 - see[2] - (span - 1) * dilation) // stride + 1, first, pixels)
    if edge:
        stop = first
    for w in range(first):
        for j in cb.unroll(range(lines)):
            line = cb.cast(
                grad.load((n, d, h, w, c + j * lanes), lanes, valid=left - j * lanes), cb.f32
            )
            for v in cb.unroll(range(span)):
                k = w * stride + see[2] + v * dilation
                if k >= 0 and k < width:
                    seen = x.load(
                        (n, see[0], see[1], k, c + j * lanes), lanes, valid=left - j * lanes
                    )
                    acc[v, j] = cb.fma(cb.cast(seen, cb.f32), line, acc[v, j])
    for w in range(first, stop):
        for j in cb.unroll(range(lines)):
            line = cb.cast(grad.load((n, d, h, w, c + j * lanes), lanes), cb.f32)
            for v in cb.unroll(range(span)):
                seen = x.load(
                    (n, see[0], see[1], w * stride + see[2] + v * dilation, c + j * lanes), lanes
                )
                acc[v, j] = cb.fma(cb.cast(seen, cb.f32), line, acc[v, j])
    for w in range(stop, pixels):
        for j in cb.unroll(range(lines)):
            line = cb.cast(
                grad.load((n, d, h, w, c + j * lanes), lanes, valid=left - j * lanes), cb.f32
            )
            for v in cb.unroll(range(span)):
                k = w * stride + see[2] + v * dilation
                if k >= 0 and k < width:
                    seen = x.load(
                        (n, see[0], see[1], k, c + j * lanes), lanes, valid=left - j * lanes
                    )
                    acc[v, j] = cb.fma(cb.cast(seen, cb.f32), line, acc[v, j])
    for v in cb.unroll(range(span)):
        for j in cb.unroll(range(lines)):
            sums.store((part, tap + v, c + j * lanes), acc[v, j])


@cb.kernel
def sum_channels(
    x: cb.Array, grad: cb.Array, sums: cb.Array, pad_d, pad_h, pad_w, plan: cb.Comptime
):
    """sums[part, tap, c] = the sum over a part of the pixels of x[.., c] * grad[.., c]; a cube does
    a part.
    """
    lanes, lines = plan.lanes, plan.lines
    parts, channels = sums.shape[0], x.shape[4]
    out_d, out_h = grad.shape[1], grad.shape[2]
    units = grad.shape[0] * out_d * out_h
    part = cb.CUBE_POS
    for tap in range(sums.shape[1]):
        for c in range(0, sums.shape[2], lanes):
            sums.store((part, tap, c), cb.cast(cb.splat(0.0, lanes), cb.f32))
    for unit in range(begin_of(part, units, parts), begin_of(part + 1, units, parts)):
        h = unit % out_h
        d = unit // out_h % out_d
        n = unit // (out_h * out_d)
        for t in range(plan.window[0]):
            in_d = d * plan.stride[0] + t * plan.dilation[0] - pad_d
            if in_d >= 0 and in_d < x.shape[1]:
                for u in range(plan.window[1]):
                    in_h = h * plan.stride[1] + u * plan.dilation[1] - pad_h
                    if in_h >= 0 and in_h < x.shape[2]:
                        see = (in_d, in_h, -pad_w)
                        to = (part, (t * plan.window[1] + u) * plan.window[2])
                        many = channels // (lanes * lines) * lanes * lines
                        for c in range(0, many, lanes * lines):
                            row_sums(x, grad, (n, d, h), see, sums, to, c, lines, False, plan)
                        for c in range(many, channels, lanes):
                            row_sums(x, grad, (n, d, h), see, sums, to, c, 1, True, plan)


def channels_last_view(x: Any, already: bool) -> Any:
    """(N, *size, C) of an array (N, C, *size), or of one that is so already, contiguous."""
    if already:
        return contiguous(x)
    order = (0, *range(2, x.ndim), 1)
    view = x.transpose(order)
    return view if view.flags.c_contiguous else transpose(x, order)


class Channels(CpuRoutine):
    """Every channel has one filter, whose sums are in registers: lanes lie along the channels."""

    name = "channels"

    def unfit(self, p: WeightGradient, properties: cb.DeviceProperties) -> str | None:
        """Depthwise, short windows."""
        fits = p.on_host and p.depthwise and p.out.shape[-1] <= WRITTEN_OUT
        return None if fits else "depthwise, short windows, on the host"

    def launch(self, p: WeightGradient, properties: cb.DeviceProperties) -> None:
        """Channels are last."""
        n, channels, problem = p.x.shape[0], p.groups, p.shape
        x = channels_last_view(p.x, False).reshape(n, *problem.size, channels)
        grad = channels_last_view(p.grad, False).reshape(n, *problem.out, channels)
        lanes, result = properties.register_bytes // 4, p.out.reshape(1, channels, -1)
        lines = 2 if problem.window[2] * 2 <= SPAN and channels % (2 * lanes) < lanes else 1
        parts = min(math.prod(grad.shape[:3]), 4 * sharers(properties))
        taps, wide = math.prod(problem.window), -(-channels // lanes) * lanes
        sums = memory.empty((parts, taps, wide), np.float32)
        plan = Sums(problem.window, problem.stride, problem.dilation, lanes, lines)
        sum_channels[parts, 1](x, grad, sums, *problem.pad, plan, mode="unchecked")
        flat = sums.reshape(parts, 1, 1, taps, 1, wide)
        fold_sums[1, 1](flat, result, 1, lanes, mode="unchecked")


@cb.struct
class OutputRow:
    """A row of the output of a transposed depthwise convolution.

    Along depth and height, its pixels see the input at `see` first, by tap `last` of the window, of
    which `counts` reach the row's phase of the stride.
    """

    x: cb.Array
    taps: cb.Array
    bias: Any
    out: cb.Array
    at: Any
    see: Any
    last: Any
    counts: Any
    g: PhaseGeometry

    def pixel(self, w, see, phase, c, edge: cb.Comptime[bool], lanes):
        """An output pixel, which sees the input's column `see` first, for a line of channels;
        `phase`: the last tap along the width, and how many reach the pixel.
        """
        g, x, taps, out = self.g, self.x, self.taps, self.out
        n, d, h = self.at
        left = x.shape[4] - c
        total = cb.cast(cb.splat(0.0, lanes), cb.f32)
        if self.bias is not None:
            total = cb.cast(self.bias.load(c, lanes, valid=left), cb.f32)
        for t in range(self.counts[0]):
            in_d = self.see[0] + t * g.tap_step_d
            if in_d >= 0 and in_d < x.shape[1]:
                for u in range(self.counts[1]):
                    in_h = self.see[1] + u * g.tap_step_h
                    if in_h >= 0 and in_h < x.shape[2]:
                        tap = self.first_tap(t, u)
                        for v in range(phase[1]):
                            in_w = see + v * g.tap_step_w
                            if in_w >= 0 and in_w < x.shape[3]:
                                k = tap * g.window_w + phase[0] - v * g.every_w
                                valid = left if edge else lanes
                                line = x.load((n, in_d, in_h, in_w, c), lanes, valid=valid)
                                weight = taps.load((k, c), lanes, valid=valid)
                                total = cb.fma(cb.cast(line, cb.f32), weight, total)
        out.store((n, d, h, w, c), cb.cast(total, out.dtype), valid=left if edge else lanes)

    def first_tap(self, t, u):
        """The row of the window that is the t-th along depth and the u-th along height."""
        g = self.g
        return (self.last[0] - t * g.every_d) * g.window_h + self.last[1] - u * g.every_h

    def tile(self, w, stride, q, c, products: cb.Comptime, plan):
        """Pixels w, w + stride, .. of one phase, which see input from column q on, for a line of
        channels.
        """
        g, x, out = self.g, self.x, self.out
        n, d, h = self.at
        pixels, lanes = plan.pixels, plan.lanes
        start = cb.cast(cb.splat(0.0, lanes), cb.f32)
        if self.bias is not None:
            start = cb.cast(self.bias.load(c, lanes), cb.f32)
        acc = cb.local(pixels, cb.f32, lanes=lanes)
        for p in cb.unroll(range(pixels)):
            acc[p] = start
        for t in range(self.counts[0]):
            in_d = self.see[0] + t * g.tap_step_d
            if in_d >= 0 and in_d < x.shape[1]:
                for u in range(self.counts[1]):
                    in_h = self.see[1] + u * g.tap_step_h
                    if in_h >= 0 and in_h < x.shape[2]:
                        tap = self.first_tap(t, u)
                        lines = ()
                        for v, columns, pairs in cb.unroll(products):
                            for k in cb.unroll(columns):
                                line = x.load((n, in_d, in_h, q + k, c), lanes)
                                lines = lines + (cb.cast(line, cb.f32),)
                            weight = self.taps.load((tap * g.window_w + v, c), lanes)
                            add_row(acc, lines, weight, pairs)
        for p in cb.unroll(range(pixels)):
            out.store((n, d, h, w + p * stride, c), cb.cast(acc[p], out.dtype))


@cb.func
def row_of(x, taps, bias, out, g):
    """The row of the output that this cube makes."""
    h = cb.CUBE_POS % out.shape[2]
    d = cb.CUBE_POS // out.shape[2] % out.shape[1]
    n = cb.CUBE_POS // (out.shape[2] * out.shape[1])
    last_d, count_d, see_d = g.phase(d % g.stride_d, 0)
    last_h, count_h, see_h = g.phase(h % g.stride_h, 1)
    see = (see_d + d // g.stride_d, see_h + h // g.stride_h)
    return OutputRow(x, taps, bias, out, (n, d, h), see, (last_d, last_h), (count_d, count_h), g)


@cb.kernel
def channel_phases(
    x: cb.Array, taps: cb.Array, bias, out: cb.Array, geometry, lanes: cb.Comptime[int]
):
    """A transposed depthwise convolution: a cube makes a row of the output; `geometry` has the
    fields of `PhaseGeometry`.
    """
    g = PhaseGeometry(*geometry)
    row = row_of(x, taps, bias, out, g)
    stride, channels = g.stride_w, out.shape[4]
    whole = channels // lanes * lanes
    for at in range(cb.min(stride, out.shape[3])):
        last, count, see = g.phase(at, 2)
        for q in range((out.shape[3] - at + stride - 1) // stride):
            for c in range(0, whole, lanes):
                row.pixel(at + q * stride, see + q, (last, count), c, False, lanes)
            for c in range(whole, channels, lanes):
                row.pixel(at + q * stride, see + q, (last, count), c, True, lanes)


@dataclass(frozen=True)
class Rows:
    """What changes the code of a transposed convolution whose columns of the window are written
    out.

    Attributes:
        pixels, lanes: of a tile; its pixels are of one phase of the stride.
        phases: for each phase its products, and the first and the last column that pixel 0 sees.
    """

    pixels: int
    lanes: int
    phases: tuple[tuple[tuple[Products, ...], int, int], ...]


@cb.kernel
def channel_rows(x: cb.Array, taps: cb.Array, bias, out: cb.Array, geometry, plan: cb.Comptime):
    """`channel_phases` with what is known of the columns: tiles of pixels of a phase, which share
    their taps.
    """
    row = row_of(x, taps, bias, out, PhaseGeometry(*geometry))
    lanes, pixels, stride = plan.lanes, plan.pixels, len(plan.phases)
    hang = out.shape[4] - lanes
    for at in cb.unroll(range(stride)):
        products, low, high = plan.phases[at]
        last, count, see = row.g.phase(at, 2)
        many = (out.shape[3] - at + stride - 1) // stride
        begin = cb.min(many, cb.max(0, -low))
        stop = cb.max(begin, cb.min(many, x.shape[3] - high))
        if stop - begin < pixels:
            stop = begin
        for block in range(begin, stop, pixels):
            q = cb.min(block, stop - pixels)
            for c in range(0, out.shape[4], lanes):
                row.tile(at + q * stride, stride, q, cb.min(c, hang), products, plan)
        for k in range(many - (stop - begin)):  # what sees columns outside
            q = k if k < begin else k + stop - begin
            for c in range(0, out.shape[4], lanes):
                w = at + q * stride
                row.pixel(w, see + q, (last, count), cb.min(c, hang), False, lanes)


def products_of(pixels: int, taps: list[tuple[int, int]]) -> tuple[Products, ...]:
    """For each tap and what pixel 0 sees through it: the tap, columns of a row that are seen for
    the first time, and pairs of a pixel and of what it sees, counted in that order.
    """
    known: list[int] = []
    found = []
    for v, first in taps:
        seen = [(p, p + first) for p in range(pixels)]
        more = tuple(k for _, k in seen if k not in known)
        known += more
        found.append((v, more, tuple((p, known.index(k)) for p, k in seen)))
    return tuple(found)


@lru_cache(maxsize=1024)
def rows_of(problem: Phases, channels: int, lanes: int) -> Rows | None:
    """The blueprint with columns written out, or None."""
    window, step, dilation = problem.window[2], problem.stride[2], problem.dilation[2]
    if channels < lanes or window > SPAN or step > 4:
        return None
    phases = []
    for at in range(step):
        reach = at + problem.cut[2]
        taps = [
            (v, (reach - v * dilation) // step)
            for v in range(window)
            if (reach - v * dilation) % step == 0
        ]
        low, high = min((k for _, k in taps), default=0), max((k for _, k in taps), default=0)
        phases.append((products_of(TILE, taps), low, high))
    return Rows(TILE, lanes, tuple(phases))


def channels_by_phases(x: Any, taps: Any, bias: Any, out: Any, problem: Phases, lanes: int) -> None:
    """out (N, *problem.out, C), of x (N, *problem.size, C) and taps (window, C) in f32, all
    contiguous.
    """
    known = {
        f"{name}_{axis}": value
        for name in ("window", "stride", "cut", "dilation", "every", "tap_step")
        for axis, value in zip("dhw", getattr(problem, name), strict=True)
    }
    numbers = some_integers(PhaseGeometry, **known)
    plan = rows_of(problem, out.shape[4], lanes)
    if plan is None:
        channel_phases[math.prod(out.shape[:3]), 1](
            x, taps, bias, out, numbers, lanes, mode="unchecked"
        )
    else:
        channel_rows[math.prod(out.shape[:3]), 1](
            x, taps, bias, out, numbers, plan, mode="unchecked"
        )
