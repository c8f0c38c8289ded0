"""What a function of the namespace is given, as tensors; joining and choosing."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from cubepy.errors import ArgumentError, ShapeError
from cubepy.lang.dtypes import f32, promote
from cubepy.tensor.array import Tensor, apply, as_tensor, constant, operand


def pair(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Two tensors, of which one may have been a number: it takes the dtype of the other one."""
    if isinstance(x1, Tensor):
        return x1, operand(x2, x1)
    if isinstance(x2, Tensor):
        return operand(x1, x2), x2
    if isinstance(x1, float):  # a number is at home everywhere, and read at each call of a program
        return pair(constant(x1, f32), x2)
    one = as_tensor(x1)
    return pair(constant(x1, one.dtype) if type(x1) in (bool, int) else one, x2)


def concat(arrays: Sequence[Any], /, axis: int | None = 0) -> Tensor:
    """Tensors joined along an axis; with None, flattened before. One of the shape (0,) goes with
    any, as in PyTorch: a list that begins with nothing.

    Raises:
        ShapeError: no tensors, or other axes that differ.
    """
    if not isinstance(arrays, Iterable):
        raise ArgumentError(f"concat takes a list of tensors, not {type(arrays).__name__}")
    given = [t if type(t) is Tensor else as_tensor(t) for t in arrays]
    if not given:
        raise ShapeError("concat needs at least one tensor")
    if axis is None:
        given, axis = [t.reshape(-1) for t in given], 0
    full = given
    if (0,) in [t.shape for t in given]:
        full = [t for t in given if t.shape != (0,)]
    if len(given) > len(full) > 0 and full[0].ndim != 1:
        dtype = functools.reduce(promote, [t.dtype for t in given])
        given = [full[0].astype(dtype), *full[1:]]
    return apply("concat", *given, axis=axis)  # type: ignore[no-any-return]


def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, else x2, broadcast; a number takes the dtype of the other
    side.
    """
    a, b = pair(x1, x2)
    return apply("where", as_tensor(condition), a, b)  # type: ignore[no-any-return]


__all__ = ["concat", "where"]
