"""Products with matrices that are picked out of a stack, by numbers in a tensor: nothing of the
others is read, and a program stays one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.movement.copy import contiguous
from cubepy.lang.dtypes import f32
from cubepy.runtime.device import current, device_properties
from cubepy.runtime.memory.pool import empty
from cubepy.tensor import Tensor, apply
from cubepy.tensor.ops.op import Spec, define
from cubepy.tensor.storage import HOST

ROWS = 16
"""Rows of a matrix that a cube does."""


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        lanes: of a line.
        together: rows of a matrix that share a line of x.
    """

    lanes: int
    together: int = 4


@cb.kernel
def product(
    x: cb.Array,
    stack: cb.Array,
    which: cb.Array,
    out: cb.Array,
    repeats: Any,
    tiles: Any,
    plan: cb.Comptime[Blueprint],
) -> None:
    """out[p, n] = x[p // repeats] . stack[which[p], n]; a cube does 16 rows n of one p.

    x (X, K) f32, stack (E, N, K) floats, which (P,) integers, out (P, N) f32.
    """
    p, first = cb.CUBE_POS // tiles, (cb.CUBE_POS % tiles) * ROWS
    count, depth = stack.shape[1], stack.shape[2]
    e = cb.min(cb.max(cb.cast(which[p], cb.i64), 0), stack.shape[0] - 1)
    row = p // repeats
    acc = cb.local(plan.together, cb.f32, lanes=plan.lanes)
    for r in range(0, ROWS, plan.together):
        for k in cb.unroll(range(plan.together)):
            acc[k] = cb.splat(cb.f32(0.0), plan.lanes)
        for at in range(0, depth, plan.lanes):
            line = x.load((row, at), plan.lanes)
            for k in cb.unroll(range(plan.together)):
                n = cb.min(first + r + k, count - 1)
                weights = cb.cast(stack.load((e, n, at), plan.lanes), cb.f32)
                acc[k] = cb.fma(weights, line, acc[k])
        for k in cb.unroll(range(plan.together)):
            if first + r + k < count:
                out[p, first + r + k] = acc[k].sum()


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
        >>> x = cb.tensor(np.ones((2, 3), np.float32))
        >>> stack = cb.tensor(np.arange(24, dtype=np.float32).reshape(4, 2, 3))
        >>> picked(x, stack, cb.tensor([3, 0]))
        tensor([[57., 66.],
                [ 3., 12.]])
    """
    if x.device != HOST:
        rows = x.repeat_interleave(which.shape[0] // max(x.shape[0], 1), 0)
        return (stack[which].astype(x.dtype) @ rows.unsqueeze(-1))[..., 0]
    return apply("picked_product", x, stack, which)  # type: ignore[no-any-return]
