"""What is to be transposed, and the routines of transposed convolutions in order of preference."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.convolution.conv import LAYOUTS, convolve_into, orders
from cubepy.kernels.convolution.cpu.depthwise_gradients import (
    channels_by_phases,
    channels_last_view,
)
from cubepy.kernels.convolution.cpu.filters import FEW, PackedFilter, turned_panels
from cubepy.kernels.convolution.cpu.register_tile import tile_for
from cubepy.kernels.convolution.cpu.transposed import by_phases
from cubepy.kernels.convolution.cpu.transposed_plan import Phases, plan_of
from cubepy.kernels.convolution.gpu.depthwise_nchw import by_planes_on_gpu, takes_back
from cubepy.kernels.convolution.gpu.depthwise_strip import problem_back
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.sm90 import depthwise_nhwc
from cubepy.kernels.convolution.sm90.transposed import by_remainders, unfit_remainders
from cubepy.kernels.convolution.spread import spread_out
from cubepy.kernels.entry.arguments import rounds_to_tf32
from cubepy.kernels.entry.shapes import as_new
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.movement.pad import pad
from cubepy.kernels.movement.transpose import transpose
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, GpuRoutine, Op, Routine

NARROW = 16  # filters of a group that the tiles of phases are too wide for


class Transposed(NamedTuple):
    """A transposed convolution of x, (N, C, *size) or channels last by `layout`, with filters (C,
    F of a group, *window), to `out` if that is given.

    Attributes:
        cut: what the padding takes away.
        more: how much longer the output is.
    """

    x: Any
    w: Any
    bias: Any
    out: Any
    layout: str
    stride: tuple[int, ...]
    cut: tuple[int, ...]
    more: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    precision: str | None

    @property
    def axes(self) -> int:
        """Of size."""
        return self.x.ndim - 2  # type: ignore[no-any-return]

    @property
    def last(self) -> bool:
        """Whether channels are the last axis."""
        return self.layout == LAYOUTS[self.axes][1]

    @property
    def view(self) -> Any:
        """(N, *size, C)."""
        return self.x if self.last else self.x.transpose(orders(self.axes)[0])

    @property
    def result_last(self) -> bool:
        """Whether results have channels last in memory, as the input has."""
        view, c = self.view, self.w.shape[0]
        return self.last or bool(view.flags.c_contiguous and c > 1 and view.size > len(view) * c)

    @property
    def filters(self) -> int:
        """Of all groups."""
        return self.w.shape[1] * self.groups  # type: ignore[no-any-return]

    @property
    def depthwise(self) -> bool:
        """Whether every channel has a filter of its own."""
        return bool(self.w.shape[:2] == (self.groups, 1))

    @property
    def around(self) -> tuple[int, ...]:
        """What the convolution that it is would pad, were its stride 1."""
        sides = zip(self.dilation, self.w.shape[2:], self.cut, strict=True)
        return tuple(d * (k - 1) - p for d, k, p in sides)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the result."""
        sides = zip(
            self.view.shape[1:-1], self.stride, self.cut, self.more, self.around, strict=True
        )
        return tuple((n - 1) * s - p + m + a + 1 for n, s, p, m, a in sides)

    @property
    def settings(self) -> tuple[Any, ...]:
        """Sizes of the result, stride, what is cut, dilation."""
        return self.sizes, self.stride, self.cut, self.dilation

    @property
    def problem(self) -> Problem:
        """The convolution of which it is the gradient, as kernels of GPUs take it."""
        return problem_back(self.view.shape[1:-1], self.w.shape[2:], *self.settings)  # type: ignore[call-arg]

    @property
    def phases(self) -> Phases:
        """In three axes."""
        ones, zeros = (1,) * (3 - self.axes), (0,) * (3 - self.axes)
        size, window = self.view.shape[1:-1], self.w.shape[2:]
        return Phases(
            ones + size,
            ones + window,
            ones + self.stride,  # type: ignore[arg-type]
            zeros + self.cut,  # type: ignore[arg-type]
            ones + self.dilation,  # type: ignore[arg-type]
            ones + self.sizes,  # type: ignore[arg-type]
        )

    @property
    def on_host(self) -> bool:
        """Whether a CPU has kernels for the arrays, which are not empty."""
        there = bool(self.x.size and self.w.size)
        return there and isinstance(self.x, np.ndarray) and self.x.itemsize <= 4

    def convolved(self, w: Any) -> Any:
        """As a convolution with other filters."""
        how = (self.bias, 1, self.around, self.dilation, self.groups, self.layout, None, None)
        return convolve_into(self.x, w, *how, self.out, self.axes, self.precision)

    def room(self, last: bool) -> Any:
        """The output as an array in C order, with channels `last` or not, where it can be written;
        else None.
        """
        inputs = (a for a in (self.x, self.w, self.bias) if a is not None)
        if self.out is None or any(np.may_share_memory(self.out, a) for a in inputs):
            return None
        turned = last and not self.last
        return as_new(self.out, orders(self.axes)[0] if turned else None)

    def delivered(self, made: Any, last: bool) -> Any:
        """A result with channels `last` or not, as it was asked for."""
        if last and not self.last:
            made = made.transpose(orders(self.axes)[1])
        if self.out is not None and np.may_share_memory(self.out, made):
            return self.out
        if self.out is None and last == self.result_last:
            return made
        return transpose(made, tuple(range(made.ndim)), out=self.out)


class Remainders(GpuRoutine):
    """Results with one remainder by the stride are a convolution, by the kernels for Hopper."""

    name = "remainders"

    def unfit(self, p: Transposed, properties: cb.DeviceProperties) -> str | None:
        """One group, channels that the copy engine takes."""
        if p.groups > 1 or math.prod(p.w.shape[2:]) * math.prod(p.stride) == 1 or not p.w.size:
            return "for one group, and windows of several pixels"
        return unfit_remainders(p.view, p.w, p.bias, p.settings, properties)

    def launch(self, p: Transposed, properties: cb.DeviceProperties) -> Any:
        """Up to four in a launch."""
        tf32 = rounds_to_tf32(p.precision)
        made = by_remainders(p.view, p.w, p.bias, p.settings, tf32, properties.cores)
        return p.delivered(made, True)


class PlanesBack(GpuRoutine):
    """Every channel has one filter, and planes come as they lie."""

    name = "planes"

    def unfit(self, p: Transposed, properties: cb.DeviceProperties) -> str | None:
        """Depthwise, channels first."""
        first = p.depthwise and not p.last and bool(p.x.size)
        takes = first and takes_back(p.x, p.w, p.problem, properties.cores)
        return None if takes else "depthwise, short windows, channels first"

    def launch(self, p: Transposed, properties: cb.DeviceProperties) -> Any:
        """A cube does whole planes."""
        made = memory.empty((*p.x.shape[:2], *p.sizes), p.x.dtype)
        how = (p.problem, None, properties.cores)
        by_planes_on_gpu(p.x, p.w, p.bias, made, *how, back=True)
        return made


class ChannelsBack(GpuRoutine):
    """Every channel has one filter, and boxes of channels come by the copy engine."""

    name = "boxes"

    def unfit(self, p: Transposed, properties: cb.DeviceProperties) -> str | None:
        """Depthwise, channels last, or a stride."""
        lies = p.depthwise and (p.view.flags.c_contiguous or any(s > 1 for s in p.stride))
        known = (p.view, p.w, p.problem, properties)
        takes = lies and p.x.size and depthwise_nhwc.takes_back(*known)
        return None if takes else "depthwise, channels last, by the copy engine"

    def launch(self, p: Transposed, properties: cb.DeviceProperties) -> Any:
        """A cube does a tile of pixels."""
        made = memory.empty((p.x.shape[0], *p.sizes, p.groups), p.x.dtype)
        how = (p.problem, None, properties)
        depthwise_nhwc.by_boxes_of_channels(p.view, p.w, p.bias, made, *how, back=True)
        return p.delivered(made, True)


class Convolution(Routine):
    """A convolution with padding, whose windows are reversed."""

    name = "convolution"

    def supports(self, p: Transposed, properties: cb.DeviceProperties) -> str | None:
        """Stride 1; on a CPU not of groups that the phases are better for."""
        if any(s > 1 for s in p.stride) or any(p.more) or min(p.around) < 0 or not p.x.size:
            return "for stride 1"
        if properties.plane_size > 1:
            return None
        few = p.groups == 1 or p.w.shape[1] > FEW or p.w.shape[1] < NARROW
        return None if p.on_host and few else "for f32 and narrower on the host, and few filters"

    def launch(self, p: Transposed, properties: cb.DeviceProperties) -> Any:
        """On a CPU filters are packed at once."""
        w, shape = p.w, (p.filters, p.w.shape[0] // p.groups, *p.w.shape[2:])
        if properties.plane_size > 1:
            return p.convolved(_turned(w, p.groups))
        if p.groups == 1 or w.shape[1] > FEW:  # what a convolution takes in panels
            _, lines, lanes = tile_for(w.shape[1], properties)
            panels = turned_panels(w, p.groups, True, lines * lanes, lanes)
            return p.convolved(PackedFilter(panels, shape, p.groups))
        taps = w[(slice(None),) * 2 + (slice(None, None, -1),) * p.axes]
        taps = taps.reshape(p.groups, shape[1], w.shape[1], -1).transpose(0, 2, 1, 3)
        return p.convolved(PackedFilter(taps, shape, p.groups))


class Channels(CpuRoutine):
    """Every channel has one filter: lanes lie along the channels."""

    name = "channels"

    def unfit(self, p: Transposed, properties: cb.DeviceProperties) -> str | None:
        """Depthwise."""
        return None if p.on_host and p.depthwise else "depthwise, on the host"

    def launch(self, p: Transposed, properties: cb.DeviceProperties) -> Any:
        """A cube does a row."""
        phases, n, c = p.phases, p.x.shape[0], p.groups
        made = p.room(True)
        made = memory.empty((n, *p.sizes, c), p.x.dtype) if made is None else made
        taps = memory.empty((math.prod(p.w.shape[2:]), c), np.float32)
        convert_into(taps, p.w.reshape(c, -1).T)
        seen = channels_last_view(p.x, p.last).reshape(n, *phases.size, c)
        flat, lanes = made.reshape(n, *phases.out, c), properties.register_bytes // 4
        channels_by_phases(seen, taps, p.bias, flat, phases, lanes)
        return p.delivered(made, True)


class ByPhases(CpuRoutine):
    """Pixels of one phase of the stride are a convolution of their own, all in one launch."""

    name = "phases"

    def unfit(self, p: Transposed, properties: cb.DeviceProperties) -> str | None:
        """What a cube has the memory for."""
        if not p.on_host:
            return "for f32 and narrower, on the host"
        counts = (p.x.shape[0], p.groups, p.w.shape[0] // p.groups, p.w.shape[1])
        how = (True, p.result_last, p.bias is not None, properties)
        return None if plan_of(p.phases, *counts, *how) else "a cube has no memory for it"

    def launch(self, p: Transposed, properties: cb.DeviceProperties) -> Any:
        """Without zeros between the elements of x."""
        last, n = p.result_last, p.x.shape[0]
        how = (p.phases, p.groups, last, p.room(last), properties)
        made = by_phases(p.view, p.w, p.bias, *how)
        shape = (n, *p.sizes, p.filters) if last else (n, p.filters, *p.sizes)
        return p.delivered(made.reshape(shape), last)


class Spread(Routine):
    """A convolution of x with zeros between its elements."""

    name = "spread"

    def launch(self, p: Transposed, properties: cb.DeviceProperties) -> Any:
        """Any arrays."""
        spread, lasts = p.view, LAYOUTS[p.axes][1]
        if any(s > 1 for s in p.stride):
            spread = spread_out(spread, p.stride)
        widths: list[int] = []
        for a, m in zip(p.around, p.more, strict=True):
            widths = [a, a + m, *widths]
        spread = pad(contiguous(spread), (0, 0, *widths)) if any(widths) else spread
        how = (p.bias, 1, 0, p.dilation, p.groups, lasts, None, None, None, p.axes, p.precision)
        result = convolve_into(spread, _turned(p.w, p.groups), *how)
        if p.last:
            return result
        result = result.transpose(orders(p.axes)[1])
        return result if p.view.flags.c_contiguous else contiguous(result)


def _turned(w: Any, groups: int) -> Any:
    """Filters (in, out / groups, *window) as (out, in / groups, *window), with every window
    reversed.
    """
    axes = w.ndim - 2
    parts = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    back = parts[(slice(None),) * 3 + (slice(None, None, -1),) * axes]
    swapped = contiguous(back.transpose(0, 2, 1, *range(3, 3 + axes)))
    return swapped.reshape(groups * w.shape[1], w.shape[0] // groups, *w.shape[2:])


CONV_TRANSPOSE = Op(
    "conv_transpose",
    [Remainders(), PlanesBack(), ChannelsBack(), Convolution(), Channels(), ByPhases(), Spread()],
)
