"""Reductions along rows and the maps around them, of groups that were written for the purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.kernels.entry.shapes import merged, strided
from cubepy.kernels.fused import rows_cpu, rows_gpu
from cubepy.kernels.fused.row_plan import RowPlan, Rows
from cubepy.kernels.movement.copy import copy
from cubepy.runtime import memory
from cubepy.tune import Op

FUSED_ROWS = Op("fused_rows", [rows_gpu.Shared(), rows_cpu.Walks()])


def run_rows(
    plan: RowPlan,
    wides: Sequence[Any],
    narrows: Sequence[Any],
    lead: tuple[int, ...],
    n: int,
    kinds: Sequence[tuple[bool, Any]],
) -> list[Any]:
    """New arrays of what a plan gives for all rows.

    Args:
        plan: the phases.
        wides: arrays that broadcast to (*lead, n).
        narrows: arrays that broadcast to (*lead, 1).
        lead: the shape of the rows.
        n: the length of a row; not 0.
        kinds: for each result whether it is wide, and its dtype.
    """
    results = [memory.empty((*lead, n if wide else 1), np.dtype(d)) for wide, d in kinds]
    if results[0].size:
        FUSED_ROWS.run(Rows(plan, *_rows_of(results, wides, narrows, lead, n), n))
    return results


def _rows_of(
    results: list[Any], wides: Sequence[Any], narrows: Sequence[Any], lead: tuple[int, ...], n: int
) -> tuple[list[Any], list[Any], list[Any]]:
    """All arrays over the same axes of rows, which are merged where all of them allow it."""
    spread = [*results]
    spread += [x if x.shape == (*lead, n) else np.broadcast_to(x, (*lead, n)) for x in wides]
    spread += [np.broadcast_to(x, (*lead, 1)) for x in narrows]
    spread = [_packed(x) for x in spread]
    if lead:
        heads = merged([x[..., 0] for x in spread])
        spread = [
            strided(x, (*h.shape, x.shape[-1]), (*h.strides, x.strides[-1]))
            for x, h in zip(spread, heads, strict=True)
        ]
    a, b = len(results), len(results) + len(wides)
    return spread[:a], spread[a:b], spread[b:]


def _packed(x: Any) -> Any:
    """Rows whose neighbours are neighbours in memory."""
    if x.shape[-1] == 1 or x.strides[-1] == x.itemsize:
        return x
    return copy(x)
