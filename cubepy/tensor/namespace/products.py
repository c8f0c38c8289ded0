"""Products of matrices and tensors, as the array API names them."""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import ShapeError
from cubepy.tensor.array import Tensor, as_tensor


def matmul(x1: Any, x2: Any, /) -> Tensor:
    """Matrix product with broadcast batch axes."""
    return as_tensor(x1) @ as_tensor(x2)


def matrix_transpose(x: Any, /) -> Tensor:
    """The last two axes exchanged; no copy."""
    return as_tensor(x).mT


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over the last `axes` axes of x1 and the first of x2, or over pairs of named
    axes.
    """
    a, b = as_tensor(x1), as_tensor(x2)
    if isinstance(axes, int):
        left, right = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    else:
        left, right = (tuple(part) if isinstance(part, (tuple, list)) else (part,) for part in axes)
        left, right = tuple(d % a.ndim for d in left), tuple(d % b.ndim for d in right)
    lengths = tuple(a.shape[d] for d in left)
    if len(left) != len(right) or lengths != tuple(b.shape[d] for d in right):
        raise ShapeError(f"tensordot of {a.shape} and {b.shape} over the axes {left} and {right}")
    rows = tuple(d for d in range(a.ndim) if d not in left)
    columns = tuple(d for d in range(b.ndim) if d not in right)
    shape = tuple(a.shape[d] for d in rows) + tuple(b.shape[d] for d in columns)
    inner = math.prod(lengths)
    first = a.permute(*rows, *left).reshape(math.prod(shape[: len(rows)]), inner)
    second = b.permute(*right, *columns).reshape(inner, math.prod(shape[len(rows) :]))
    return (first @ second).reshape(shape)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Dot products of vectors along an axis; the other axes broadcast."""
    a, b = as_tensor(x1), as_tensor(x2)
    if not -min(a.ndim, b.ndim) <= axis < max(a.ndim, b.ndim):
        raise ShapeError(f"vecdot: axis {axis} is out of range for {a.shape} and {b.shape}")
    a, b = a.movedim(axis, -1), b.movedim(axis, -1)
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"vecdot of vectors of the lengths {a.shape[-1]} and {b.shape[-1]}")
    product = a.unsqueeze(-2) @ b.unsqueeze(-1)
    return product.reshape(product.shape[:-2])


__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]
