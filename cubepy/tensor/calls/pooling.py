"""Pools and interpolation of tensors: channels last is channels first of a view, an image alone is
a batch of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import number_of, per_axis, wholes
from cubepy.kernels.pooling.max_pool import LAYOUTS
from cubepy.runtime.replay.standing import one_tuple
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.convolution import as_it_was, channels_first
from cubepy.tensor.calls.table import call_of
from cubepy.tensor.ops.pooling import SMOOTH

INTS = {int}
KNOWN = {int, type(None)}
"""Types of lengths that are looked at once, besides tuples of ints."""


def _images(axes: int, layout: str, *given: Any) -> tuple[list[Tensor], Callable[[Tensor], Tensor]]:
    """Tensors with a batch and channels first, and what makes a result like them."""
    tensors = [as_tensor(x) for x in given]
    alone = tensors[0].ndim == axes + 1
    seen = [channels_first(x.unsqueeze(0) if alone else x, layout, axes) for x in tensors]

    def back(y: Tensor) -> Tensor:
        y = as_it_was(y, layout, axes)
        return y.squeeze(0) if alone else y

    return seen, back


def _size(input_size: Any, layout: str, axes: int) -> tuple[int, ...]:
    """The size in an input's shape."""
    shape = wholes(input_size, "input_size")
    return shape[-axes:] if layout == LAYOUTS[axes][0] else shape[-axes - 1 : -1]


def _windows(axes: int, *given: Any) -> dict[str, Any]:
    """The lengths along axes by name, of kernel, stride, padding and perhaps dilation; each tuple
    is the one that stands for all equal ones.
    """
    known = all(type(v) in KNOWN or (type(v) is tuple and {*map(type, v)} == INTS) for v in given)
    return dict(_found(axes, *given) if known else _found.__wrapped__(axes, *given))


@lru_cache(1024)
def _found(
    axes: int, kernel_size: Any, stride: Any, padding: Any, *dilation: Any
) -> tuple[tuple[str, Any], ...]:
    kernel = one_tuple(per_axis(kernel_size, axes, "kernel_size", 1))
    stride = kernel if stride is None else one_tuple(per_axis(stride, axes, "stride", 1))
    found = {"kernel": kernel, "stride": stride}
    found["padding"] = one_tuple(per_axis(padding, axes, "padding", 0))
    for given in dilation:
        found["dilation"] = one_tuple(per_axis(given, axes, "dilation", 1))
    return tuple(found.items())


def _largest(op: str, x: Tensor, back: Any, return_indices: bool, **attrs: Any) -> Any:
    wanted = return_indices or x.requires_grad  # gradients go to where the largest were
    made = apply(op, x, **attrs, indices=wanted)
    if not wanted:
        return back(made)
    return (back(made[0]), back(made[1])) if return_indices else back(made[0])


def _define(axes: int) -> None:
    """The pools along so many axes."""

    @call_of(f"max_pool{axes}d")
    def max_pool(
        input: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        return_indices: bool,
        layout: str,
    ) -> Any:
        (x,), back = _images(axes, layout, input)
        how = _windows(axes, kernel_size, stride, padding, dilation)
        return _largest("max_pool", x, back, return_indices, **how, ceil_mode=ceil_mode)

    @call_of(f"max_pool{axes}d_input")
    def max_pool_input(
        grad_output: Any,
        input_size: Any,
        indices: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        layout: str,
    ) -> Tensor:
        (g, spots), back = _images(axes, layout, grad_output, indices)
        how = _windows(axes, kernel_size, stride, padding, dilation)
        size = _size(input_size, layout, axes)
        return back(apply("max_pool_input", g, spots, **how, ceil_mode=ceil_mode, size=size))

    @call_of(f"adaptive_max_pool{axes}d")
    def adaptive_max_pool(input: Any, output_size: Any, return_indices: bool, layout: str) -> Any:
        (x,), back = _images(axes, layout, input)
        size = per_axis(output_size, axes, "output_size", 1)
        return _largest("adaptive_max_pool", x, back, return_indices, size=size)

    @call_of(f"adaptive_max_pool{axes}d_input")
    def adaptive_max_pool_input(
        grad_output: Any, input_size: Any, indices: Any, layout: str
    ) -> Tensor:
        (g, spots), back = _images(axes, layout, grad_output, indices)
        size = _size(input_size, layout, axes)
        return back(apply("adaptive_max_pool_input", g, spots, size=size))

    @call_of(f"avg_pool{axes}d")
    def avg_pool(input: Any, layout: str, **how: Any) -> Tensor:
        (x,), back = _images(axes, layout, input)
        return back(apply("avg_pool", x, **_means(axes, **how)))

    @call_of(f"avg_pool{axes}d_input")
    def avg_pool_input(grad_output: Any, input_size: Any, layout: str, **how: Any) -> Tensor:
        (g,), back = _images(axes, layout, grad_output)
        size = _size(input_size, layout, axes)
        return back(apply("avg_pool_input", g, **_means(axes, **how), size=size))

    @call_of(f"adaptive_avg_pool{axes}d")
    def adaptive_avg_pool(input: Any, output_size: Any, layout: str) -> Tensor:
        (x,), back = _images(axes, layout, input)
        size = per_axis(output_size, axes, "output_size", 1)
        return back(apply("adaptive_avg_pool", x, size=size))

    @call_of(f"adaptive_avg_pool{axes}d_input")
    def adaptive_avg_pool_input(grad_output: Any, input_size: Any, layout: str) -> Tensor:
        (g,), back = _images(axes, layout, grad_output)
        return back(apply("adaptive_avg_pool_input", g, size=_size(input_size, layout, axes)))


def _means(
    axes: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Any,
) -> dict[str, Any]:
    by = divisor_override
    return {
        **_windows(axes, kernel_size, stride, padding),
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
        "divisor": None if by is None else number_of(by, "divisor_override"),
    }


for _axes in (1, 2, 3):
    _define(_axes)


def _axes_of(name: str, images: Any) -> int:
    axes: int = as_tensor(images).ndim - 2
    if axes not in LAYOUTS:
        raise ShapeError(f"{name} needs 3 to 5 axes, not {axes + 2}")
    return axes


def _layout(layout: str, axes: int) -> str:
    return LAYOUTS[axes][0] if layout == "NCHW" else layout


@call_of("interpolate")
def interpolate(
    input: Any,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: Any,
    antialias: bool,
    layout: str,
) -> Tensor:
    """`interpolate`."""
    axes = _axes_of("interpolate", input)
    (x,), back = _images(axes, _layout(layout, axes), input)
    factors = None
    if scale_factor is not None:
        several = isinstance(scale_factor, (tuple, list))
        factors = tuple(scale_factor) if several else (scale_factor,) * axes
        factors = tuple(number_of(k, "scale_factor") for k in factors)
        size = tuple(math.floor(n * k) for n, k in zip(x.shape[2:], factors, strict=True))
    mode = f"{SMOOTH}{mode}" if antialias else mode
    how = {"factors": factors, "mode": mode, "align_corners": bool(align_corners)}
    return back(apply("interpolate", x, size=per_axis(size, axes, "size", 1), **how))


@call_of("interpolate_input")
def interpolate_input(
    grad_output: Any,
    input_size: Any,
    mode: str,
    align_corners: bool,
    scale_factor: Any,
    antialias: bool,
    layout: str,
) -> Tensor:
    """`interpolate_input`."""
    mode = f"{SMOOTH}{mode}" if antialias else mode
    axes = _axes_of("interpolate_input", grad_output)
    layout = _layout(layout, axes)
    (g,), back = _images(axes, layout, grad_output)
    several = isinstance(scale_factor, (tuple, list))
    factors = scale_factor if several or scale_factor is None else (scale_factor,) * axes
    how = {"mode": mode, "align_corners": bool(align_corners)}
    factors = None if factors is None else tuple(factors)
    return back(
        apply("interpolate_input", g, size=_size(input_size, layout, axes), factors=factors, **how)
    )
