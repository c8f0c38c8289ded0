"""Functions of tensors beside their methods, named as in the array API and PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cubepy.errors import ArgumentError, ShapeError
from cubepy.tensor.array import Tensor, apply, as_tensor, operand


def concat(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """Tensors joined along an axis.

    Raises:
        ShapeError: no tensors, or other axes that differ.
    """
    if not isinstance(tensors, Iterable):
        raise ArgumentError(f"concat takes a list of tensors, not {type(tensors).__name__}")
    given = [as_tensor(t) for t in tensors]
    if not given:
        raise ShapeError("concat needs at least one tensor")
    return apply("concat", *given, axis=axis)


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """a where the condition holds, else b, broadcast; a number takes the dtype of the
    other side.
    """
    if not isinstance(a, Tensor):
        a = operand(a, b) if isinstance(b, Tensor) else as_tensor(a)
    return apply("where", as_tensor(condition), a, operand(b, a))
