"""Max pooling for devices with planes: which kernel does it, and wide windows as passes one after
another.

The largest value of a window is that of windows which cover it. So a wide window goes axis by axis;
and one with a stride s is a window of whole steps over the largest values of windows of s to 2 s
places, which are much fewer.
"""

from __future__ import annotations

import math
from typing import Any

from cubepy.kernels.pooling.gpu import max_sliding, max_van_herk
from cubepy.kernels.pooling.sm90 import max_tma
from cubepy.kernels.windows import disjoint_gpu
from cubepy.kernels.windows.rows_gpu import TAPS, Steps
from cubepy.runtime import memory

TOGETHER = 13  # places of a window along an axis that are written out, with those along other axes
ALONE = 64  # and alone
TALL = 56  # places of a window along the height, which are done with those along the width
REACH = (
    16,
    32,
)  # of a window with gaps that is written out, with more than 3 places and channels last, and others
STEPS = 4  # of a stride, from which on a window is done in two passes


def run(x: Any, out: Any, settings: Any, least: Any, parts: bool, last: bool) -> bool:
    """Largest values of (batch, depth, height, width, channels) in windows or parts; whether it was
    done.
    """
    if parts:
        kernel = tuple(-(-n // m) for n, m in zip(x.shape[1:4], out.shape[1:4], strict=True))
        same = disjoint_gpu.even(x.shape[1:4], out.shape[1:4], settings, True)
        if not same or max(kernel) > TAPS:
            return disjoint_gpu.run(x, out, settings, True, last, least)
        settings = kernel, kernel, (0, 0, 0), (1, 1, 1)
    elif (
        disjoint_gpu.even(x.shape[1:4], out.shape[1:4], settings, False) and max(settings[0]) > TAPS
    ):
        return disjoint_gpu.run(x, out, settings, False, last, least)
    if by_boxes(x, out, settings, least, last):
        return True
    kernel, stride, _, dilation = settings
    reach, dense = (
        max((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)),
        max(dilation) == 1,
    )
    most = TOGETHER if dense else REACH[not last or max(kernel) <= 3]
    if max(reach, *stride) <= most and (last or stride[2] < TAPS or not dense):
        written_out(x, out, settings, least, last)
        return True
    if (dense and stepped(x, out, settings, least, last)) or by_axes(x, out, settings, least, last):
        return True
    return disjoint_gpu.run(x, out, settings, False, last, least)


def by_boxes(x: Any, out: Any, settings: Any, least: Any, last: bool) -> bool:
    """Windows of images that `pooling.sm90.max_tma` is the fastest for."""
    (deep, *kernel), (_, *stride), (_, *pad), (_, *dilation) = settings
    if deep > 1 or x.shape[1] > 1:
        return False
    down, across = (
        Steps(1, s, (-p,), k, d) for k, s, p, d in zip(kernel, stride, pad, dilation, strict=True)
    )
    images = [a.reshape(a.shape[0], *a.shape[2:5] if last else a.shape[2:4]) for a in (x, out)]
    fits = max_tma.fits(*images, down, across, last)  # type: ignore[call-arg]
    if fits:
        max_tma.run(*images, down, across, least, last)  # type: ignore[call-arg]
    return fits


def written_out(x: Any, out: Any, settings: Any, least: Any, last: bool) -> None:
    """Windows that `pooling.gpu.max_sliding` has code for."""
    kernel, stride, pad, dilation = settings
    walked, down, across = (
        Steps(1, s, (-p,), k, d) for k, s, p, d in zip(kernel, stride, pad, dilation, strict=True)
    )
    flat = (kernel[0], stride[0], pad[0]) == (1, 1, 0)
    sizes = (x.shape[1 + flat], out.shape[1 + flat])
    if flat:  # images: units walk down them
        walked, down = down, Steps(1, 1, (0,), 1)
    views = (
        a.reshape(-1, 1 if flat else a.shape[2], *a.shape[3:] if last else a.shape[3:4])
        for a in (x, out)
    )
    max_sliding.run(*views, sizes, walked, down, across, least, last)  # type: ignore[call-arg]


def stepped(x: Any, out: Any, settings: Any, least: Any, last: bool) -> bool:
    """Windows of several strides, as windows over the largest values of windows of a stride or two."""
    kernel, stride, pad, dilation = settings
    wide = tuple(s > 1 and k >= STEPS * s for k, s in zip(kernel, stride, strict=True))
    if not any(wide):
        return False
    steps = tuple(k // s if w else 1 for k, s, w in zip(kernel, stride, wide, strict=True))
    rest = tuple(k - (n - 1) * s for k, s, n in zip(kernel, stride, steps, strict=True))
    size = tuple(m + n - 1 for m, n in zip(out.shape[1:4], steps, strict=True))
    between = memory.empty((x.shape[0], *size, x.shape[4]), x.dtype)
    # windows that are outside have the value of the place at the end, which is also in the windows
    # over them
    return run(x, between, (rest, stride, pad, dilation), least, False, last) and run(
        between, out, (steps, (1, 1, 1), (0, 0, 0), dilation), least, False, last
    )


def by_axes(x: Any, out: Any, settings: Any, least: Any, last: bool) -> bool:
    """Windows with stride 1 along one axis after the other; with channels first height and width at
    once, unless windows are so tall that shared memory holds few of them.
    """
    kernel, stride, pad, dilation = settings
    axes = [d for d in (1, 2, 3) if kernel[d - 1] > 1]
    plane, gaps = not last and axes[-1] == 3, max(dilation) > 1
    if max(stride) > 1 or (gaps and (plane or max(kernel) > ALONE)):
        return False
    taps, around = kernel[1:], pad[1:]
    high = plane and kernel[1] <= TALL and max_van_herk.fits(_planes(x), _planes(out), taps, around)
    if plane and not high:
        taps, around = (1, kernel[2]), (0, pad[2])
        if not max_van_herk.fits(_planes(x), _planes(out), taps, around):
            return False
    value = x
    for d in axes:
        if not (high and d == 2) and not (plane and d == 3):
            made = out if d == axes[-1] else out.shape[d]
            value = along(value, d, kernel[d - 1], pad[d - 1], made, least, dilation[d - 1])
    if plane:
        max_van_herk.run(_planes(value), _planes(out), taps, around, least)
    return True


def _planes(a: Any) -> Any:
    return a.reshape(-1, *a.shape[2:4])


def along(x: Any, d: int, taps: int, pad: int, made: Any, least: Any, apart: int = 1) -> Any:
    """The largest values of windows along axis d of five, for an array or for how many there are of
    them. What lies behind the axis are lines of channels.
    """
    if isinstance(made, int):
        made = memory.empty((*x.shape[:d], made, *x.shape[d + 1 :]), x.dtype)
    if apart == 1 and taps > ALONE:
        half = -(-taps // 2)
        value = along(x, d, half, pad, made.shape[d] + taps - half, least)
        return along(value, d, 2, 0, made, least, taps - half)
    walked, one = Steps(1, 1, (-pad,), taps, apart), Steps(1, 1, (0,), 1)
    views = (a.reshape(-1, 1, 1, math.prod(a.shape[d + 1 :])) for a in (x, made))
    max_sliding.run(*views, (x.shape[d], made.shape[d]), walked, one, one, least, True)  # type: ignore[call-arg]
    return made
