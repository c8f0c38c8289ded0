"""Convolutions of tensors: channels last is channels first of a view, and what a kernel does on its
way to the result is ops behind it.
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.convolution.conv import LAYOUTS, padding_of
from cubepy.kernels.entry.arguments import per_axis, wholes
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.elementwise import activated
from cubepy.tensor.calls.table import call_of, refused


def channels_first(x: Tensor, layout: str, axes: int) -> Tensor:
    """A view with the channels before the size."""
    return x if layout == LAYOUTS[axes][0] else x.permute(0, axes + 1, *range(1, axes + 1))


def as_it_was(y: Tensor, layout: str, axes: int) -> Tensor:
    """A result with channels first in the layout that was asked for."""
    return y if layout == LAYOUTS[axes][0] else y.permute(0, *range(2, axes + 2), 1)


def _filters(weight: Any) -> Tensor:
    if hasattr(weight, "panels"):
        raise refused("packed filters have no gradient", "give the weight itself")
    return as_tensor(weight)


def _optional(value: Any) -> Tensor | None:
    return None if value is None else as_tensor(value)


@call_of("convolve_into")
def convolve(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    layout: str,
    activation: Any,
    add: Any,
    axes: int,
    precision: str | None = None,
) -> Tensor:
    """`conv1d` to `conv3d`."""
    w = _filters(weight)
    if isinstance(padding, str):
        padding = _padding(padding, w.shape[2:], stride, dilation)
    how = _how(axes, stride, padding, dilation, groups, precision)
    x = channels_first(as_tensor(input), layout, axes)
    y = as_it_was(apply("conv", x, w, _optional(bias), **how), layout, axes)
    return activated(y if add is None else y + as_tensor(add), activation)


def _padding(name: str, window: tuple[int, ...], stride: Any, dilation: Any) -> tuple[int, ...]:
    axes = len(window)
    lead = (1,) * (3 - axes)
    steps = lead + per_axis(stride, axes, "stride", 1)
    dil = lead + per_axis(dilation, axes, "dilation", 1)
    return padding_of(name, axes, lead + window, dil, steps)[3 - axes :]


@call_of("transposed_into")
def transpose(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    layout: str,
    axes: int,
    precision: str | None,
) -> Tensor:
    """`conv_transpose1d` to `conv_transpose3d`."""
    x, w = as_tensor(input), as_tensor(weight)
    if x.ndim != axes + 2 or w.ndim != axes + 2:
        raise ShapeError(
            f"conv_transpose{axes}d needs {axes + 2} axes, not shapes {x.shape} and {w.shape}"
        )
    x = channels_first(x, layout, axes)
    how = _how(axes, stride, padding, dilation, groups, precision)
    more = per_axis(output_padding, axes, "output_padding", 0)
    along = (x.shape[2:], w.shape[2:], how["stride"], how["padding"], how["dilation"], more)
    size = tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + m + 1 for n, k, s, p, d, m in zip(*along, strict=True)
    )
    y = apply("conv_transpose", x, w, _optional(bias), size=size, **how)
    return as_it_was(y, layout, axes)


def _how(
    axes: int, stride: Any, padding: Any, dilation: Any, groups: int, precision: str | None
) -> dict[str, Any]:
    return {
        "stride": per_axis(stride, axes, "stride", 1),
        "padding": per_axis(padding, axes, "padding", 0),
        "dilation": per_axis(dilation, axes, "dilation", 1),
        "groups": groups,
        "precision": precision,
    }


@call_of("conv_input")
def back_by_input(
    grad_output: Any,
    weight: Any,
    input_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    precision: str | None,
) -> Tensor:
    """The gradient by the input."""
    size = wholes(input_size, "input_size")[2:]
    how = _how(len(size), stride, padding, dilation, groups, precision)
    return apply(  # type: ignore[no-any-return]
        "conv_transpose", as_tensor(grad_output), as_tensor(weight), None, size=size, **how
    )


@call_of("conv_weight")
def back_by_weight(
    input: Any,
    grad_output: Any,
    weight_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    precision: str | None,
) -> Tensor:
    """The gradient by the filters."""
    window = wholes(weight_size, "weight_size")[2:]
    how = _how(len(window), stride, padding, dilation, groups, precision)
    return apply(  # type: ignore[no-any-return]
        "conv_weight", as_tensor(input), as_tensor(grad_output), window=window, **how
    )
