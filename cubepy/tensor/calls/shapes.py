"""Reductions of tensors, and other orders and shapes of their elements."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.entry.arguments import wholes
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.table import Call, call_of
from cubepy.tensor.namespace import concat as joined


def _reduction(name: str) -> Call:
    def reduce(x: Any, axis: Any, keepdims: bool) -> Any:
        along = axis if axis is None or isinstance(axis, int) else wholes(axis, "axis")
        return apply(name, as_tensor(x), axis=along, keepdims=keepdims)

    return reduce


for _name in ("sum", "prod", "mean", "max", "min", "argmax", "argmin"):
    call_of(_name)(_reduction(_name))


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
