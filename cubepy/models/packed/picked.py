"""Products with matrices that are picked out of a stack, by numbers in a tensor: nothing of the
others is read, and a program stays one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.errors import ShapeError
from cubepy.kernels.movement.copy import contiguous
from cubepy.lang.dtypes import f32
from cubepy.models.packed.picked_kernels import ROWS, Blueprint, Groups, by_groups, product
from cubepy.nn import functional as F
from cubepy.runtime.device import current, device_properties
from cubepy.runtime.memory.pool import empty
from cubepy.tensor import Tensor, apply
from cubepy.tensor.modes import is_grad_enabled
from cubepy.tensor.ops.op import Spec, define
from cubepy.tensor.storage import HOST


def picked_product(x: Any, stack: Any, which: Any) -> Any:
    """x[p // repeats] @ stack[which[p]].T for each p.

    Args:
        x: (X, K) f32; X divides P, and `repeats` is P / X.
        stack: (E, N, K) floats.
        which: (P,) integers.

    Returns:
        (P, N) f32.
    """
    pairs, (_, count, depth) = which.shape[0], stack.shape
    repeats = pairs // max(x.shape[0], 1)
    out = empty((pairs, count), np.float32)
    if not out.size:
        return out
    plan = Blueprint(device_properties(current()).register_bytes // 4)
    tiles = -(-count // ROWS)
    product[pairs * tiles, 1](
        contiguous(x),
        contiguous(stack),
        contiguous(which),
        out,
        repeats,
        tiles,
        plan,
        mode="checked" if depth % plan.lanes else "unchecked",
    )
    return out


@define(
    "product",
    {"picked_product": lambda dtype, x, stack, which: picked_product(x, stack, which)},
    constant=True,
)
def _picked(x: Spec, stack: Spec, which: Spec) -> Spec:
    if len(x.shape) != 2 or len(stack.shape) != 3 or x.shape[1] != stack.shape[2]:
        raise ShapeError(f"rows {x.shape} do not go with a stack of matrices {stack.shape}")
    if len(which.shape) != 1 or not which.dtype.is_int or which.shape[0] % max(x.shape[0], 1):
        raise ShapeError(f"{which.shape} matrices cannot be picked for rows {x.shape}")
    return Spec((which.shape[0], stack.shape[1]), f32)


def picked(x: Tensor, stack: Tensor, which: Tensor) -> Tensor:
    """What `picked_product` gives, as an op of tensors without a gradient; on a GPU the matrices
    are copied together.

    Example:
        >>> x = T.ones((2, 3), dtype="f32")
        >>> stack = T.arange(24, dtype="f32").reshape(4, 2, 3)
        >>> picked(x, stack, T.asarray([3, 0]))
        tensor([[57., 66.],
                [ 3., 12.]])
    """
    if x.device != HOST:
        rows = x.repeat_interleave(which.shape[0] // max(x.shape[0], 1), 0)
        return (stack[which].astype(x.dtype) @ rows.unsqueeze(-1))[..., 0]
    return apply("picked_product", x, stack, which)  # type: ignore[no-any-return]


def grouped_products(x: Any, stack: Any, order: Any, ends: Any, count: int) -> Any:
    """x[p // repeats] times the transpose of the matrix of p's group, for each pair p.

    Args:
        x: (X, K) f32; X divides P, and `repeats` is P / X.
        stack: (E * count, K) floats.
        order: (P,) the pairs group after group; without `ends` the group of each pair.
        ends: (E,) where groups end in the order, or None.
        count: rows of a matrix.

    Returns:
        (P, count) f32.
    """
    lanes = device_properties(current()).register_bytes // 4
    plan = Groups(lanes, None, ends is not None)
    mode = "checked" if x.shape[1] % lanes else "unchecked"
    facts = (contiguous(stack), None, None)
    return launched(contiguous(x), facts, (order, ends), count, plan, mode)


def launched(x: Any, facts: Any, groups: Any, count: int, plan: Groups, mode: str) -> Any:
    """The products of rows with floats or codes; a launch where there are any."""
    order, ends = groups
    pairs = order.shape[0]
    out = empty((pairs, count), np.float32)
    if not out.size:
        return out
    cubes = (pairs if ends is None else ends.shape[0]) * -(-count // ROWS)
    by_groups[cubes, 1](
        x,
        *facts,
        contiguous(order),
        None if ends is None else contiguous(ends),
        out,
        count,
        pairs // max(x.shape[0], 1),
        plan,
        mode=mode,
    )
    return out


@define(
    "product",
    {"grouped_products": lambda dtype, *given, **said: grouped_products(*given, **said)},
    constant=True,
)
def _grouped(x: Spec, stack: Spec, order: Spec, ends: Spec | None, count: int) -> Spec:
    if len(x.shape) != 2 or len(stack.shape) != 2 or x.shape[1] != stack.shape[1]:
        raise ShapeError(f"rows {x.shape} do not go with a stack of matrices {stack.shape}")
    if count < 1 or stack.shape[0] % count or stack.shape[0] < count:
        raise ShapeError(f"{stack.shape[0]} rows are no matrices of {count}")
    groups = None if ends is None else (stack.shape[0] // count,)
    if len(order.shape) != 1 or order.shape[0] % max(x.shape[0], 1):
        raise ShapeError(f"{order.shape} matrices cannot be picked for rows {x.shape}")
    if not order.dtype.is_int or (ends is not None and ends.shape != groups):
        raise ShapeError(f"groups are integers, and {groups} numbers say where they end")
    return Spec((order.shape[0], count), f32)


def stacked(x: Tensor, stack: Tensor, which: Tensor, count: int, order: Any = None) -> Tensor:
    """x[p // repeats] times the transpose of the matrix which[p] of a stack (E * count, K), as an
    op of tensors; on a GPU, and where something learns, all rows meet all matrices.

    Args:
        x: (X, K) f32; X divides P, and `repeats` is P / X.
        stack: (E * count, K) floats or codes.
        which: (P,) integers.
        count: rows of a matrix.
        order: of the pairs and where groups end, if `in_order` made them.

    Example:
        >>> x = T.ones((2, 3), dtype="f32")
        >>> stack = T.arange(24, dtype="f32").reshape(8, 3)
        >>> stacked(x, stack, T.asarray([3, 0]), 2)
        tensor([[57., 66.],
                [ 3., 12.]])
    """
    learns = is_grad_enabled() and (x.requires_grad or stack.requires_grad)
    if x.device == HOST and not learns:
        order, ends = (which, None) if order is None else order
        found: Tensor = apply("grouped_products", x, stack, order, ends, count=count)
        return found
    rows = x.repeat_interleave(which.shape[0] // max(x.shape[0], 1), 0)
    found = T.zeros((which.shape[0], count), dtype="f32", device=x.device)
    for e in range(stack.shape[0] // count):
        part = F.linear(rows, stack[e * count : (e + 1) * count]).astype("f32")
        found = T.where((which == e).unsqueeze(1), part, found)
    return found


def in_order(which: Tensor, groups: int) -> tuple[Tensor, Tensor] | None:
    """The pairs group after group, and where groups end; None where few pairs make each one a group
    of its own.

    Example:
        >>> in_order(T.asarray([1, 0]), 2) is None
        True
    """
    if which.shape[0] <= groups or which.device != HOST:
        return None
    order = which.argsort(-1)
    numbers = T.arange(groups, dtype=which.dtype, device=which.device)
    ends = T.searchsorted(apply("take", which, order, axis=0), numbers, side="right")
    return order, ends
