"""The routines of max pools and of their gradients, in order of preference; and wide windows on
GPUs as passes one after another.

The largest value of a window is that of windows which cover it. So a wide window goes axis by axis;
and one with a stride s is a window of whole steps over the largest values of windows of s to 2 s
positions, which are much fewer.
"""

from __future__ import annotations

import math
from typing import Any

import cubepy as cb
from cubepy.kernels.pooling import naive
from cubepy.kernels.pooling.cpu.max_gradient_nhwc import AddWindows
from cubepy.kernels.pooling.cpu.max_indices import AddChosen, Indices
from cubepy.kernels.pooling.cpu.max_separable_plan import Separable
from cubepy.kernels.pooling.gpu import max_indices, max_sliding, max_van_herk
from cubepy.kernels.pooling.gpu.naive import Images
from cubepy.kernels.pooling.problem import MaxPool
from cubepy.kernels.pooling.sm90 import max_tma_routine
from cubepy.kernels.windows import disjoint_gpu
from cubepy.kernels.windows.rows_gpu import TAPS, Steps
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine, Op

TOGETHER = (
    13  # positions of a window along an axis that are written out, with those along other axes
)
ALONE = 64  # and alone
MOST_ROWS = 56  # positions of a window along the height, which are done with those along the width
REACH = (16, 32)
"""Of a window with gaps that is written out, with more than 3 positions and channels last, and
others.
"""
STEPS = 4  # of a stride, from which on a window is done in two passes
Cubes = cb.DeviceProperties


class Windows(GpuRoutine):
    """Values of windows that are not long parts."""

    def unfit(self, p: MaxPool, properties: Cubes) -> str | None:
        """What is wrong with the windows."""
        if p.index is not None:
            return "for values alone"
        return "windows are parts" if p.wide_parts else self.unfit_windows(p, properties)

    def unfit_windows(self, p: MaxPool, properties: Cubes) -> str | None:
        """What else is."""
        raise NotImplementedError


class Boxes(Windows):
    """Rows of images come by the copy engine, blocks as high as a window (van Herk)."""

    name = "boxes"

    def unfit_windows(self, p: MaxPool, properties: Cubes) -> str | None:
        """Images for which this is the fastest."""
        if p.windows[0][0] > 1 or p.x.shape[1] > 1:
            return "for images"
        fits = max_tma_routine.fits(*self.steps(p), p.last, properties)  # type: ignore[call-arg]
        return None if fits else "for tall windows of large images, by the copy engine"

    def launch(self, p: MaxPool, properties: Cubes) -> None:
        """A cube walks down a band of columns."""
        max_tma_routine.run(*self.steps(p), p.least, p.last, properties)  # type: ignore[call-arg]

    def steps(self, p: MaxPool) -> tuple[Any, ...]:
        """Both images, and the steps down and across."""
        settings = (part[1:] for part in p.windows)
        down, across = (Steps(1, s, (-r,), k, d) for k, s, r, d in zip(*settings, strict=True))
        images = (
            a.reshape(a.shape[0], *a.shape[2:5] if p.last else a.shape[2:4]) for a in (p.x, p.out)
        )
        return (*images, down, across)


class Sliding(Windows):
    """Windows whose positions are written out; units walk along the images."""

    name = "sliding"

    def unfit_windows(self, p: MaxPool, properties: Cubes) -> str | None:
        """Windows that are not wide."""
        kernel, stride, _, dilation = p.windows
        reach = max((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
        dense = max(dilation) == 1
        most = TOGETHER if dense else REACH[not p.last or max(kernel) <= 3]
        small = max(reach, *stride) <= most and (p.last or stride[2] < TAPS or not dense)
        return None if small else f"windows reach over more than {most} places"

    def launch(self, p: MaxPool, properties: Cubes) -> None:
        """Along the depth, or down images."""
        x, out, (kernel, stride, pad, dilation) = p.x, p.out, p.windows
        walked, down, across = (
            Steps(1, s, (-p,), k, d)
            for k, s, p, d in zip(kernel, stride, pad, dilation, strict=True)
        )
        flat = (kernel[0], stride[0], pad[0]) == (1, 1, 0)
        sizes = (x.shape[1 + flat], out.shape[1 + flat])
        if flat:  # images: units walk down them
            walked, down = down, Steps(1, 1, (0,), 1)
        views = (
            a.reshape(-1, 1 if flat else a.shape[2], *a.shape[3:] if p.last else a.shape[3:4])
            for a in (x, out)
        )
        max_sliding.run(*views, sizes, walked, down, across, p.least, p.last, properties)  # type: ignore[call-arg]


class Strides(Windows):
    """Windows of several strides, as windows over the largest values of windows of a stride
    or two.
    """

    name = "strides"

    def unfit_windows(self, p: MaxPool, properties: Cubes) -> str | None:
        """Windows of some strides, without gaps."""
        kernel, stride, _, dilation = p.windows
        some = max(dilation) == 1 and any(self.wide(kernel, stride))
        return None if some else f"for windows of {STEPS} strides and more, without gaps"

    def launch(self, p: MaxPool, properties: Cubes) -> None:
        """Windows that are outside have the value of the position at the end, which is also in the
        windows over them.
        """
        kernel, stride, pad, dilation = p.windows
        wide = self.wide(kernel, stride)
        steps = tuple(k // s if w else 1 for k, s, w in zip(kernel, stride, wide, strict=True))
        rest = tuple(k - (n - 1) * s for k, s, n in zip(kernel, stride, steps, strict=True))
        size = tuple(m + n - 1 for m, n in zip(p.out.shape[1:4], steps, strict=True))
        between = memory.empty((p.x.shape[0], *size, p.x.shape[4]), p.x.dtype)
        first = (rest, stride, pad, dilation)
        second = (steps, (1, 1, 1), (0, 0, 0), dilation)
        MAX_POOL.run(p._replace(out=between, settings=first, parts=False))
        MAX_POOL.run(p._replace(x=between, settings=second, parts=False))

    def wide(self, kernel: tuple[int, ...], stride: tuple[int, ...]) -> tuple[bool, ...]:
        """Along which axes a window has many strides."""
        return tuple(s > 1 and k >= STEPS * s for k, s in zip(kernel, stride, strict=True))


class Axes(Windows):
    """Windows with stride 1 along one axis after the other; with channels first height and width at
    once, unless windows are so tall that shared memory holds few of them.
    """

    name = "axes"

    def unfit_windows(self, p: MaxPool, properties: Cubes) -> str | None:
        """Stride 1, and few gaps."""
        kernel, stride, _, dilation = p.windows
        gaps = max(dilation) > 1
        plane = self.planar(p)
        if max(stride) > 1 or (gaps and (plane or max(kernel) > ALONE)):
            return "for windows with stride 1"
        fits = not plane or self.window(p, properties) is not None
        return None if fits else "windows do not fit shared memory"

    def planar(self, p: MaxPool) -> bool:
        """Whether windows go along the width of images with channels first."""
        return not p.last and p.windows[0][2] > 1

    def window(self, p: MaxPool, properties: Cubes) -> Any:
        """The part of a window, and padding, that is done along height and width at once: both, or
        the width alone; None where neither fits.
        """
        (_, high, wide), _, (_, above, beside), _ = p.windows
        x, out = planes(p.x), planes(p.out)
        both, across = ((high, wide), (above, beside)), ((1, wide), (0, beside))
        if high <= MOST_ROWS and max_van_herk.fits(x, out, *both, properties):
            return both
        return across if max_van_herk.fits(x, out, *across, properties) else None

    def launch(self, p: MaxPool, properties: Cubes) -> None:
        """A launch for each axis."""
        kernel, _, pad, dilation = p.windows
        x, out, plane = p.x, p.out, self.planar(p)
        axes = [d for d in (1, 2, 3) if kernel[d - 1] > 1]
        at_once = self.window(p, properties) if plane else None
        high = at_once is not None and at_once[0] == kernel[1:]
        value = x
        for d in axes:
            if not (high and d == 2) and not (plane and d == 3):
                made = out if d == axes[-1] else out.shape[d]
                value = along(
                    value, d, kernel[d - 1], pad[d - 1], made, p.least, properties, dilation[d - 1]
                )
        if at_once is not None:
            taps, around = at_once
            max_van_herk.run(planes(value), planes(out), taps, around, p.least, properties)


class Disjoint(GpuRoutine):
    """Windows of any size without gaps, each by a unit or by reductions."""

    name = "disjoint"

    def unfit(self, p: MaxPool, properties: Cubes) -> str | None:
        """Values, of rows that are not too long."""
        if p.index is not None:
            return "for values alone"
        settings = p.settings if p.wide_parts else p.windows
        fits = disjoint_gpu.fits(p.x, settings, p.last)
        return None if fits else "for windows without gaps, and rows that shared memory holds"

    def launch(self, p: MaxPool, properties: Cubes) -> None:
        """A unit does a result, or an axis a reduction."""
        settings, parts = (p.settings, p.parts) if p.wide_parts else (p.windows, False)
        disjoint_gpu.run(p.x, p.out, settings, parts, p.last, p.least)


def planes(a: Any) -> Any:
    """Images with channels first."""
    return a.reshape(-1, *a.shape[2:4])


def along(
    x: Any, d: int, taps: int, pad: int, made: Any, least: Any, properties: Cubes, spacing: int = 1
) -> Any:
    """The largest values of windows along axis d of five, for an array or for how many there are of
    them. What lies behind the axis are lines of channels.
    """
    if isinstance(made, int):
        made = memory.empty((*x.shape[:d], made, *x.shape[d + 1 :]), x.dtype)
    if spacing == 1 and taps > ALONE:
        half = -(-taps // 2)
        value = along(x, d, half, pad, made.shape[d] + taps - half, least, properties)
        return along(value, d, 2, 0, made, least, properties, taps - half)
    walked, one = Steps(1, 1, (-pad,), taps, spacing), Steps(1, 1, (0,), 1)
    views = (a.reshape(-1, 1, 1, math.prod(a.shape[d + 1 :])) for a in (x, made))
    sizes = (x.shape[d], made.shape[d])
    max_sliding.run(*views, sizes, walked, one, one, least, True, properties)  # type: ignore[call-arg]
    return made


MAX_POOL = Op(
    "max_pool",
    [
        max_indices.Indices(),
        Boxes(),
        Sliding(),
        Strides(),
        Axes(),
        Disjoint(),
        Images(),
        Separable(),
        Indices(),
        naive.Naive(),
    ],
)
MAX_POOL_INPUT = Op(
    "max_pool_input", [max_indices.IndicesBack(), AddWindows(), AddChosen(), naive.NaiveBack()]
)
