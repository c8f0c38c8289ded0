"""Reductions of tensors, and other orders and shapes of their elements."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.entry.arguments import number_of, whole, wholes
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.table import Call, call_of
from cubepy.tensor.namespace import concat as joined
from cubepy.tensor.namespace.manipulation import flip as flipped


def _axes(axis: Any) -> Any:
    return axis if axis is None or isinstance(axis, int) else wholes(axis, "axis")


def _reduction(name: str) -> Call:
    def reduce(x: Any, axis: Any, keepdims: bool) -> Any:
        return apply(name, as_tensor(x), axis=_axes(axis), keepdims=keepdims)

    return reduce


for _name in "sum prod mean max min argmax argmin logsumexp any all".split():
    call_of(_name)(_reduction(_name))


def _spread(name: str) -> Call:
    def spread(x: Any, axis: Any, ddof: int, keepdims: bool) -> Any:
        return apply(
            name, as_tensor(x), axis=_axes(axis), correction=whole(ddof, "ddof"), keepdims=keepdims
        )

    return spread


for _name in ("var", "std"):
    call_of(_name)(_spread(_name))


@call_of("norm")
def norm(x: Any, ord: float, axis: Any, keepdims: bool) -> Tensor:
    """`norm`."""
    order = number_of(ord, "ord")
    return apply(  # type: ignore[no-any-return]
        "norm", as_tensor(x), ord=order, axis=_axes(axis), keepdims=keepdims
    )


@call_of("pad")
def pad(input: Any, pad: Any, mode: str, value: float) -> Tensor:
    """`pad`."""
    return apply(  # type: ignore[no-any-return]
        "pad", as_tensor(input), widths=wholes(pad, "pad"), mode=mode, value=value
    )


@call_of("flip")
def flip(x: Any, axis: Any) -> Tensor:
    """`flip`."""
    return flipped(as_tensor(x), axis=_axes(axis))


@call_of("copy")
def copy(x: Any) -> Tensor:
    """The elements in C order: values never change, so that needs no copy where they are."""
    return as_tensor(x).contiguous()


@call_of("transpose")
def transpose(x: Any, axes: Any) -> Tensor:
    """`transpose`."""
    given = as_tensor(x)
    order = tuple(reversed(range(given.ndim))) if axes is None else wholes(axes, "axes")
    return given.permute(order).contiguous()


@call_of("concat")
def concat(arrays: Any, axis: int) -> Tensor:
    """`concat`."""
    return joined(arrays, axis)
