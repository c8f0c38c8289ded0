"""Convolutions on Hopper whose tiles leave cores idle: the sum is cut into ranges, which a second
kernel adds.

Sums are in f32; they are added in an order that never changes.
"""

from __future__ import annotations

import math
from typing import Any

import cubepy as cb

UNITS = 128
LANES = 8


@cb.kernel
def add_ranges(
    sums: cb.Array, bias, add, out: cb.Array, ranges: cb.Comptime[int], function: cb.Comptime
):
    """out[pixel, f] = function(sum over ranges of sums[range, pixel, f] + bias[f] + add[pixel, f]);
    a unit does a line of filters.
    """
    across = out.shape[1] // LANES
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    f, pixel = at % across * LANES, at // across
    if pixel < out.shape[0]:
        lines = tuple(sums.load((k, pixel, f), LANES) for k in cb.unroll(range(ranges)))
        total = lines[0]
        for k in cb.unroll(range(1, ranges)):
            total = total + lines[k]
        if bias is not None:
            total = total + cb.cast(bias.load(f, LANES, valid=bias.shape[0] - f), cb.f32)
        if add is not None:
            total = total + cb.cast(add.load((pixel, f), LANES), cb.f32)
        if function is not None:
            total = function(total)
        out.store((pixel, f), cb.cast(total, out.dtype))


def added(sums: Any, bias: Any, out: Any, ranges: int, function: Any, add: Any = None) -> None:
    """out (N, *pixels, F) of sums (ranges of at least N images, *pixels, F), and of what is added,
    which lies as out does; all are contiguous, F a multiple of 8.
    """
    filters, pixels = out.shape[-1], math.prod(out.shape[:-1])
    parts = sums.reshape(ranges, -1, filters)[:, :pixels]
    rows = None if add is None else add.reshape(-1, filters)
    add_ranges[-(-pixels * filters // LANES // UNITS), UNITS](
        parts, bias, rows, out.reshape(-1, filters), ranges, function, mode="unchecked"
    )
