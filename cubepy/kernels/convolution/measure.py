"""The convolutions that routines choose between: what describes one, and what a measurement of one
needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.kernels.convolution.cpu.filters import PackedFilter, has_few, prepack_filter
from cubepy.kernels.convolution.problem import (
    Convolution,
    Layout,
    Problem,
    first_of,
    flat_of,
    in_three,
    shape_of,
)
from cubepy.kernels.matmul.problem import name_of
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.device import as_device, current, gpu_of
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import TunedOp, Work

CHECKED = 24  # pixels of a result that are compared


EXACT = frozenset("kd kh kw sd sh sw pd ph pw dd dh dw".split())


class Convolve(TunedOp):
    """Convolutions, as they are measured."""

    problem = Convolution
    exact = EXACT

    def outputs(self, args: tuple[Any, ...]) -> Sequence[Any]:
        """The result."""
        return args[4:5]

    def make(self, p: Convolution, seed: int) -> tuple[Any, ...]:
        """view, weight, bias, add, out, function, as the routines take them."""
        rng, shape = np.random.default_rng(seed), shape_of(p)
        axes = slice(0 if p.depth > 1 or p.kd > 1 or p.pd else 1, 3)
        size, out_size, c = shape.size[axes], shape.out[axes], p.channels * p.groups
        x, w = as_dtype(p.dtype).numpy, as_dtype(p.weight).numpy
        view: Any
        out: Any
        if p.layout in ("last", "both"):
            view = rng.standard_normal((p.n, *size, c), np.float32).astype(x)
        elif p.layout == "first":
            view = (
                rng.standard_normal((p.n, c, *size), np.float32)
                .astype(x)
                .transpose(0, *range(2, len(size) + 2), 1)
            )
        else:
            view = rng.standard_normal((p.n, *size, 2 * c), np.float32).astype(x)[..., ::2]
        weight: Any = rng.standard_normal(
            (p.all_filters, p.channels, *shape.window[axes]), np.float32
        ).astype(w)
        if p.packed:
            weight = prepack_filter(weight, p.groups)
        made = (p.n, *out_size, p.all_filters) if p.last else (p.n, p.all_filters, *out_size)
        add = rng.standard_normal(made, np.float32).astype(x) if p.add else None
        out = np.zeros(made, x)
        device = as_device(p.device)
        if gpu_of(device) is not None:
            root = (
                view
                if p.layout in ("last", "both")
                else first_of(view)
                if p.layout == "first"
                else view.base
            )
            order = (0, *range(2, root.ndim), 1)
            on_device = upload(root, device)
            view = (
                on_device.transpose(order)
                if p.layout == "first"
                else on_device[..., ::2]
                if p.layout == "strided"
                else on_device
            )
            weight, out = upload(weight, device), upload(out, device)
        return view, weight, None, add, out, None

    def reference(self, p: Convolution, args: tuple[Any, ...]) -> Sequence[np.ndarray]:
        """All filters of some pixels in float64."""
        view, w, _, add, _, _ = args
        shape = shape_of(p)
        view, w = (a if isinstance(a, (np.ndarray, PackedFilter)) else a.numpy() for a in (view, w))
        wide = np.pad(in_three(view), ((0, 0), *((e, e) for e in shape.pad), (0, 0)))
        seen = []
        for image, *pixel in _checked(p):
            span = (
                slice(at * s, at * s + d * (k - 1) + 1, d)
                for at, s, d, k in zip(
                    pixel, shape.stride, shape.dilation, shape.window, strict=True
                )
            )
            seen.append(wide[(image, *span)].astype(np.float64).reshape(-1, p.groups, p.channels))
        columns, filters = (
            np.stack(seen).transpose(2, 0, 3, 1),
            plain(p, w),
        )  # (groups, pixels, channels, window)
        made = columns.reshape(p.groups, len(seen), -1) @ filters.reshape(
            p.groups, p.filters, -1
        ).transpose(0, 2, 1)
        total = made.transpose(1, 0, 2).reshape(len(seen), -1)
        return [total if add is None else total + _at_pixels(p, add)]

    def results(self, p: Convolution, args: tuple[Any, ...]) -> Sequence[np.ndarray]:
        """The same of what a routine wrote."""
        return [_at_pixels(p, args[4])]

    def tolerance(self, p: Convolution) -> tuple[float, float]:
        """Relative and absolute: rounding of sums of products of numbers around one."""
        unit = {"bf16": 1e-2, "f16": 2e-3}.get(p.dtype, 1e-5)
        return unit, unit * (p.channels * math.prod(shape_of(p).window)) ** 0.5

    def work(self, p: Convolution) -> Work:
        """Images and filters are read once, the result is written once."""
        shape, size = shape_of(p), as_dtype(p.dtype).itemsize
        out_pixels, window = p.n * math.prod(shape.out), math.prod(shape.window)
        pixels = p.n * math.prod(shape.size) * p.channels * p.groups
        filters = p.all_filters * p.channels * window * as_dtype(p.weight).itemsize
        computed = "f32" if p.device.startswith("cpu") else p.dtype
        flops = 2 * out_pixels * p.all_filters * p.channels * window
        return Work(size * (pixels + out_pixels * p.all_filters) + filters, flops, computed)

    def typical(self, device: str) -> Sequence[Convolution]:
        """Layers of ResNet-50, and depthwise ones, with channels first and with channels last."""
        layers = [
            (7, 2, 3, 64, 224),
            *((3, 1, c, c, s) for c, s in ((64, 56), (128, 28), (256, 14), (512, 7))),
        ]
        layers += [
            (3, 2, 128, 128, 56),
            (1, 1, 64, 256, 56),
            (1, 1, 256, 64, 56),
            (1, 1, 1024, 256, 14),
            (1, 2, 256, 512, 56),
        ]
        found = []
        for layout, last in (("first", False), ("last", True)):
            for k, s, c, f, size in layers:
                found.append(_image(device, k, s, c, f, size, 1, layout, last))
            found += [
                _image(device, k, 1, 1, 1, size, c, layout, last)
                for k, c, size in ((3, 144, 56), (7, 96, 56))
            ]
        return found


def described(view: Any, w: Any, add: Any, shape: Problem, groups: int, last: bool) -> Convolution:
    """What a convolution of an image (N, *size, C) in any layout is to the routines."""
    in_last, in_first = view.flags.c_contiguous, first_of(view).flags.c_contiguous
    layout: Layout = "last" if in_last else "first" if in_first else "strided"
    layout = "both" if in_last and in_first else layout
    packed = isinstance(w, PackedFilter)
    return Convolution(  # type: ignore[call-arg]
        str(current()),
        view.shape[0],
        w.shape[1],
        w.shape[0] // groups,
        *shape.size,  # type: ignore[arg-type]
        groups,
        *shape.window,
        *shape.stride,
        *shape.pad,
        *shape.dilation,
        name_of(view.dtype),
        "f32" if packed else name_of(w.dtype),
        layout,
        last,
        packed,
        add is not None,
        shape.tf32,
    )


def _checked(p: Convolution) -> np.ndarray:
    """Some pixels of a result, the first and the last among them: image, depth, height, width of
    each.
    """
    shape = (p.n, *shape_of(p).out)
    return np.stack(
        np.unravel_index(
            np.unique(np.linspace(0, math.prod(shape) - 1, CHECKED).astype(int)), shape
        ),
        1,
    )


def plain(p: Convolution, w: Any) -> np.ndarray:
    """Filters as (groups, filters, channels, window), packed or not."""
    if isinstance(w, PackedFilter) and not has_few(p.all_filters, p.groups):
        flat = w.panels.transpose(0, 1, 3, 2).reshape(p.groups, -1, w.panels.shape[2])[
            :, : p.filters
        ]
        w = flat.reshape(p.groups, p.filters, -1, p.channels).transpose(0, 1, 3, 2)
    found = w.panels if isinstance(w, PackedFilter) else w
    return np.asarray(found, np.float64).reshape(p.groups, p.filters, p.channels, -1)


def _at_pixels(p: Convolution, result: Any) -> np.ndarray:
    """(pixels, filters) of the pixels that are compared."""
    image, *pixel = _checked(p).T
    flat = np.ravel_multi_index(tuple(pixel), shape_of(p).out)
    found = flat_of(p, result if isinstance(result, np.ndarray) else result.numpy())
    return found[image, flat] if p.last else found[image, :, flat]


def _image(
    device: str, k: int, s: int, c: int, f: int, size: int, groups: int, layout: Any, last: bool
) -> Convolution:
    """An image with a square window whose padding keeps its size."""
    window: Any = {"kh": k, "kw": k, "sh": s, "sw": s, "ph": k // 2, "pw": k // 2}
    image = Convolution(device, 1, c, f, height=size, width=size, groups=groups, **window)
    return image._replace(layout=layout, last=last)
