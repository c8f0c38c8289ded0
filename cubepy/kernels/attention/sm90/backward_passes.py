"""What comes before and after the gradients of attention for Hopper: sums of rows, and rounding."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.kernels.attention.sm90.fragments import write_rows
from cubepy.kernels.attention.sm90.plan import BLOCK, GROUP

PASS_UNITS = 256
"""Units of a cube of the pass before."""


@cb.kernel
def prepare_gradients(
    out: cb.Array,
    grad: cb.Array,
    lse: cb.Array,
    tops: cb.Array,
    delta: cb.Array,
    *,
    lanes: cb.Comptime,
):
    """delta[b * h, i] = sum of grad * out, tops = lse in units of log 2; beyond the length 0 and
    infinity.

    A plane for each row; 32 times `lanes` is at least the width.
    """
    row = cb.CUBE_POS * (cb.CUBE_DIM // 32) + cb.PLANE_POS
    if row < delta.size:
        padded = delta.shape[1]
        i = row % padded
        b, h = row // padded // out.shape[1], row // padded % out.shape[1]
        total = cb.f32(0.0)
        if i < out.shape[2]:
            column = cb.UNIT_POS_PLANE * lanes
            x, y = cb.splat(cb.f32(0.0), lanes), cb.splat(cb.f32(0.0), lanes)
            if column < out.shape[3]:
                x = cb.cast(out.load((b, h, i, column), lanes), cb.f32)
                y = cb.cast(grad.load((b, h, i, column), lanes), cb.f32)
            total = cb.plane_sum((x * y).sum())
        if cb.UNIT_POS_PLANE == 0:
            delta[row // padded, i] = total
            top = lse[b, h, cb.min(i, out.shape[2] - 1)] * LOG2E
            sees = i < out.shape[2] and top != -float("inf")
            tops[row // padded, i] = top if sees else float("inf")


@cb.kernel
def round_query_grads(
    sums: cb.Array,
    dq: cb.Array,
    scale: cb.f32,
    heads,
    steps,
    *,
    dtype: cb.Comptime,
    plan: cb.Comptime,
):
    """dq (B, H, L, D // 2) words from the sums of `hopper_gradients`.

    A cube of 128 units for 64 rows of half the columns, or of all of them.
    """
    group = cb.CUBE_POS % 2
    step = cb.CUBE_POS // 2 % steps
    which = cb.CUBE_POS // 2 // steps
    lane = cb.UNIT_POS_PLANE
    o = cb.local(plan.part, cb.f32)
    for i in range(plan.part // 4):
        line = sums.load(cb.CUBE_POS * (plan.part * GROUP) + i * GROUP * 4 + cb.UNIT_POS * 4, 4)
        for e in cb.unroll(range(4)):
            o[4 * i + e] = line[e]
    row = step * plan.queries + cb.UNIT_POS // 32 * 16 + lane // 4
    first = group * (plan.depth // 4)
    if plan.by_rows:
        row, first = row + group * BLOCK, 0
    start = (which // heads, which % heads, row)
    write_rows(o, dq, dtype, start, (scale, scale), first, 2 * plan.part)
