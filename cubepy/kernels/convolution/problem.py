"""The convolutions that routines choose between: what describes one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from cubepy.kernels.convolution.cpu.register_tile import tile_for
from cubepy.runtime.device import DeviceProperties, as_device, device_properties, gpu_of
from cubepy.runtime.symbolic.cached import cached


@dataclass(frozen=True)
class Problem:
    """A convolution in three axes; fewer are axes of length 1.

    Attributes:
        size, window, stride, pad, dilation, out: along depth, height, width.
        tf32: whether a GPU may round f32 to tf32.
    """

    size: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    out: tuple[int, ...]
    tf32: bool = False

    @property
    def precision(self) -> str | None:
        """As the matmul's."""
        return "tf32" if self.tf32 else None


def in_three(view: Any) -> Any:
    """(N, *size, C) with three axes of size."""
    return view.reshape(view.shape[0], *(1,) * (5 - view.ndim), *view.shape[1:])


def without_skipped_pixels(view: Any, problem: Problem) -> tuple[Any, Problem]:
    """Where a window is one pixel long, a stride only leaves pixels out: a view without them has a
    stride of 1.
    """
    size, stride, keys = list(problem.size), list(problem.stride), [slice(None)]
    for axis in range(5 - view.ndim, 3):
        alone = problem.window[axis] == 1 and problem.pad[axis] == 0
        keys.append(slice(None, None, stride[axis]) if alone else slice(None))
        if alone:
            size[axis], stride[axis] = problem.out[axis], 1
    if stride == list(problem.stride):
        return view, problem
    return view[tuple(keys)], replace(problem, size=tuple(size), stride=tuple(stride))


def strides_of(size: tuple[int, ...], channels: int, last: bool) -> tuple[int, ...]:
    """Of images one after the other: image, depth, height, width, channel."""
    depth, high, wide = size
    plane = high * wide
    if last:
        image = (depth * plane, plane, wide, 1)
        return (*(n * channels for n in image), 1)
    return (channels * depth * plane, plane, wide, 1, depth * plane)


Layout = Literal["first", "last", "both", "strided"]


class Convolution(NamedTuple):
    """A convolution in three axes; fewer are axes of length 1.

    Attributes:
        device: such as "cpu".
        n: images.
        channels, filters: of a group.
        depth, height, width: of an image.
        groups: how many.
        kd, kh, kw: the window; sd, sh, sw: stride; pd, ph, pw: padding; dd, dh, dw: dilation.
        dtype, weight: names of the dtypes of images and filters.
        layout: whether an image's channels come "first" or "last" in memory ("both" where that is
            the same).
        last: whether the result's channels come last.
        packed: whether filters come from `prepack_filter`.
        add: whether an array is added to the result.
        tf32: whether f32 may be rounded to tf32.
    """

    device: str
    n: int
    channels: int
    filters: int
    depth: int = 1
    height: int = 1
    width: int = 1
    groups: int = 1
    kd: int = 1
    kh: int = 1
    kw: int = 1
    sd: int = 1
    sh: int = 1
    sw: int = 1
    pd: int = 0
    ph: int = 0
    pw: int = 0
    dd: int = 1
    dh: int = 1
    dw: int = 1
    dtype: str = "f32"
    weight: str = "f32"
    layout: Layout = "first"
    last: bool = False
    packed: bool = False
    add: bool = False
    tf32: bool = False

    @property
    def properties(self) -> DeviceProperties:
        """What its device can do."""
        return device_properties(self.device)

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU, or arrays are far away as on one."""
        return self.properties.plane_size > 1 or gpu_of(as_device(self.device)) is not None

    @property
    def all_filters(self) -> int:
        """Filters of all groups."""
        return self.groups * self.filters

    @property
    def depthwise(self) -> bool:
        """Whether every channel has a filter of its own."""
        return self.channels == self.filters == 1

    @property
    def pointwise(self) -> bool:
        """Whether a window is one pixel, and all pixels are seen."""
        shape = shape_of(self)
        return shape.window == shape.stride == (1, 1, 1) and not any(shape.pad)

    @property
    def panel(self) -> int:
        """Filters of a panel."""
        _, lines, lanes = tile_for(self.filters, self.properties)
        return lines * lanes


class WeightGradient(NamedTuple):
    """The gradient by filters, `out` (F, C of a group, *window), of x (N, C, *size) and of the
    gradient of the result, (N, F, *pixels).
    """

    x: Any
    grad: Any
    out: Any
    shape: Problem
    groups: int

    @property
    def depthwise(self) -> bool:
        """Whether every channel has a filter of its own, and sums in f32 are wide enough."""
        return bool(self.out.shape[:2] == (self.groups, 1)) and self.x.itemsize <= 4

    @property
    def by_tap(self) -> Any:
        """The result as (F, C of a group, taps)."""
        return self.out.reshape(*self.out.shape[:2], -1)

    @property
    def last(self) -> tuple[Any, Any]:
        """Image and gradient with channels last."""
        order = (0, *range(2, self.x.ndim), 1)
        return self.x.transpose(order), self.grad.transpose(order)

    @property
    def on_host(self) -> bool:
        """Whether a CPU has kernels for the arrays."""
        return isinstance(self.x, np.ndarray) and self.x.itemsize <= 4


@cached
def shape_of(p: Convolution) -> Problem:
    """Sizes along the axes, with those of the result."""
    size, window, step = (p.depth, p.height, p.width), (p.kd, p.kh, p.kw), (p.sd, p.sh, p.sw)
    edge, dilation = (p.pd, p.ph, p.pw), (p.dd, p.dh, p.dw)
    out = tuple(
        (n + 2 * e - d * (k - 1) - 1) // s + 1
        for n, k, s, e, d in zip(size, window, step, edge, dilation, strict=True)
    )
    return Problem(size, window, step, edge, dilation, out, p.tf32)  # type: ignore[arg-type]


def first_of(view: Any) -> Any:
    """(N, C, *size) of (N, *size, C)."""
    return view.transpose(0, view.ndim - 1, *range(1, view.ndim - 1))


def flat_of(p: Convolution, result: Any) -> Any:
    """(N, pixels, filters) or (N, filters, pixels) of a result."""
    return result.reshape((p.n, -1, p.all_filters) if p.last else (p.n, p.all_filters, -1))
