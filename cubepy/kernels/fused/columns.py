"""Reductions down columns and the maps before them, of groups that were written for the purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.kernels.entry.shapes import merged, strided
from cubepy.kernels.fused import columns_cpu, columns_gpu
from cubepy.kernels.fused.problem import ColumnPlan, Columns
from cubepy.kernels.movement.copy import copy
from cubepy.runtime import memory
from cubepy.tune import Op

FUSED_COLUMNS = Op("fused_columns", [columns_gpu.Shared(), columns_cpu.Blocks()])


def run_columns(
    plan: ColumnPlan,
    inputs: Sequence[Any],
    shape: tuple[int, ...],
    stored: Sequence[Any],
    reduced: Sequence[Any],
) -> list[Any]:
    """What a plan gives: what is stored, of a shape, then what is reduced over all axes but the
    last, in new arrays.

    Args:
        plan: the function, and what is done with what it gives.
        inputs: arrays that broadcast to the shape.
        shape: of rank 2 and more, without a 0.
        stored: arrays of the shape for what is stored.
        reduced: dtypes of what is reduced.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> from cubepy.kernels.fused.row_plan import STEPS
        >>> @cb.func
        ... def squares(x):
        ...     return (x * x, -x)
        >>> plan = ColumnPlan(squares, (STEPS["sum"][0],), (0.0,), (False,), cb.f32)
        >>> x = np.arange(4, dtype=np.float32).reshape(2, 2)
        >>> run_columns(plan, [x], (2, 2), [np.empty_like(x)], [np.float32])[1]
        array([ 4., 10.], dtype=float32)
    """
    totals = [memory.empty((1, shape[-1]), np.dtype(d)) for d in reduced]
    spread = [*stored, *(x if x.shape == shape else np.broadcast_to(x, shape) for x in inputs)]
    spread = [_packed(x) for x in spread]
    heads = merged([x[..., 0] for x in spread])
    spread = [
        strided(x, (*h.shape, x.shape[-1]), (*h.strides, x.strides[-1]))
        for x, h in zip(spread, heads, strict=True)
    ]
    n = len(stored)
    rows = int(np.prod(shape[:-1]))
    FUSED_COLUMNS.run(Columns(plan, totals, spread[:n], spread[n:], rows))
    return [*stored, *(t.reshape(-1) for t in totals)]


def _packed(x: Any) -> Any:
    """Rows whose neighbours are neighbours in memory, or one number each."""
    return x if x.shape[-1] == 1 or x.strides[-1] in (0, x.itemsize) else copy(x)
