"""Softmax and layer_norm by whole cubes, for devices with planes: a row is read once and stays in registers.

Rows too long for the registers of a cube are read twice (softmax) or three times (layer_norm).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels import functions as f
from cubepy.kernels.cube_wide import first_lanes, line_of, over_lanes, over_units, power_of_two

UNITS = 256  # of a cube, at least
HELD = 64  # bytes of a row that a unit holds, as they are computed with; twice as many where cubes would be too large
MOST = 512  # units of a cube, at most
CORE = 1024  # units that should find room on a core


@dataclass(frozen=True)
class RowPlan:
    """How rows are shared: `units` units to a row, `rows` rows to a cube; `lanes` elements are a line, and each unit
    holds `held` lines (0: the row is read again instead). `whole`: together these are exactly the row."""

    lanes: int
    units: int
    rows: int
    held: int
    whole: bool = False


@cb.func
def row_line(x, row, k, n, acc: cb.Comptime, other, plan: cb.Comptime[RowPlan]):
    """The line from element k of a row of n in the dtype `acc`; `other` behind the row's end."""
    if plan.whole:
        return cb.cast(x.load((row, k), plan.lanes), acc)
    return first_lanes(cb.cast(x.load((row, k), plan.lanes, valid=n - k), acc), n - k, other, plan.lanes)


@cb.func
def store_line(out, row, k, n, value, plan: cb.Comptime[RowPlan]):
    """The part of a line that lies in the row of n elements."""
    if plan.whole:
        out.store((row, k), cb.cast(value, out.dtype))
    else:
        out.store((row, k), cb.cast(value, out.dtype), valid=n - k)


@cb.func
def held_softmax(values, plan: cb.Comptime[RowPlan], acc: cb.Comptime, board):
    """exp(values - max), and 1 / sum, over the units of a row."""
    top = values[0]
    for j in cb.unroll(range(1, plan.held)):
        top = cb.nan_max(top, values[j])
    peak = over_units(over_lanes(top, f.larger, plan.lanes), f.larger, plan.units, board)
    powers = ()
    total = cb.splat(cb.cast(0, acc), plan.lanes)
    for j in cb.unroll(range(plan.held)):
        e = cb.exp(values[j] - peak)
        powers = powers + (e,)
        total = total + e
    return powers, 1.0 / over_units(over_lanes(total, f.add, plan.lanes), f.add, plan.units, board)


@cb.func
def held_moments(values, at, n, eps, plan: cb.Comptime[RowPlan], acc: cb.Comptime, board):
    """The mean and 1 / sqrt(variance + eps) over the units of a row; `at` is this unit's first element."""
    hop = plan.units * plan.lanes
    total = values[0]
    for j in cb.unroll(range(1, plan.held)):
        total = total + values[j]
    mean = over_units(over_lanes(total, f.add, plan.lanes), f.add, plan.units, board) / cb.cast(n, acc)
    spread = cb.splat(cb.cast(0, acc), plan.lanes)
    for j in cb.unroll(range(plan.held)):
        d = values[j] - mean
        if plan.whole:
            spread = spread + d * d
        else:
            spread = spread + first_lanes(d * d, n - (at + j * hop), cb.cast(0, acc), plan.lanes)
    square = over_units(over_lanes(spread, f.add, plan.lanes), f.add, plan.units, board)
    return mean, 1.0 / cb.sqrt(square / cb.cast(n, acc) + eps)


@cb.func
def fill_core(acc: cb.Comptime, plan: cb.Comptime[RowPlan]):
    """Room for 1024 units on a core: while a cube waits for memory or its units, others use the core.

    f64, many lines, and rows of narrow floats that are read again need more registers than that leaves.
    """
    fits = acc == cb.f32 and plan.held <= 8 and (plan.held > 0 or plan.lanes <= 4)
    if fits and "mma" in cb.device_properties().features:
        cb.resident(max(1, CORE // cb.CUBE_DIM))


@cb.func
def row_of_unit(rows, plan: cb.Comptime[RowPlan]):
    """Which row a unit works on, and whether there is such a row (else it only keeps the others company)."""
    if plan.rows == 1:
        return cb.CUBE_POS, True
    place = cb.CUBE_POS * plan.rows + cb.UNIT_POS // plan.units
    return cb.min(place, rows - 1), place < rows


@cb.func
def softmax_of_rows(x, out, acc: cb.Comptime, plan: cb.Comptime[RowPlan]):
    """What `softmax_held` does."""
    board = cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM), acc)
    n = x.shape[1]
    row, mine = row_of_unit(x.shape[0], plan)
    hop = plan.units * plan.lanes
    at = cb.UNIT_POS % plan.units * plan.lanes
    low = cb.cast(-float("inf"), acc)
    values = ()
    for j in cb.unroll(range(plan.held)):
        values = values + (row_line(x, row, at + j * hop, n, acc, low, plan),)
    powers, scale = held_softmax(values, plan, acc, board)
    if mine:
        for j in cb.unroll(range(plan.held)):
            store_line(out, row, at + j * hop, n, powers[j] * scale, plan)


@cb.kernel
def softmax_held(x: cb.Array, out: cb.Array, acc: cb.Comptime, plan: cb.Comptime[RowPlan]):
    """out[r] = exp(x[r] - max) / sum; x and out are (rows, n)."""
    fill_core(acc, plan)
    softmax_of_rows(x, out, acc, plan)


@cb.kernel(fast_math=("afn", "contract"))
def softmax_narrow(x: cb.Array, out: cb.Array, acc: cb.Comptime, plan: cb.Comptime[RowPlan]):
    """The same for results of 16 bits: powers by the special function unit, whose error is far below theirs."""
    fill_core(acc, plan)
    softmax_of_rows(x, out, acc, plan)


@cb.kernel
def softmax_again(x: cb.Array, out: cb.Array, acc: cb.Comptime, plan: cb.Comptime[RowPlan]):
    """The same for rows of any length, a cube for each: first the maximum and the sum in one pass, then the values."""
    fill_core(acc, plan)
    board = cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM), acc)
    n = x.shape[1]
    row = cb.CUBE_POS
    hop = plan.units * plan.lanes
    at = cb.UNIT_POS * plan.lanes
    low = cb.cast(-float("inf"), acc)
    top = cb.splat(low, plan.lanes)
    total = cb.splat(cb.cast(0, acc), plan.lanes)
    k = at
    while k < n:
        v0 = x.load((row, k), plan.lanes, valid=n - k)
        v1 = x.load((row, k + hop), plan.lanes, valid=n - k - hop)
        v2 = x.load((row, k + 2 * hop), plan.lanes, valid=n - k - 2 * hop)
        v3 = x.load((row, k + 3 * hop), plan.lanes, valid=n - k - 3 * hop)
        a0 = first_lanes(cb.cast(v0, acc), n - k, low, plan.lanes)
        a1 = first_lanes(cb.cast(v1, acc), n - k - hop, low, plan.lanes)
        a2 = first_lanes(cb.cast(v2, acc), n - k - 2 * hop, low, plan.lanes)
        a3 = first_lanes(cb.cast(v3, acc), n - k - 3 * hop, low, plan.lanes)
        peak = cb.nan_max(cb.nan_max(top, cb.nan_max(a0, a1)), cb.nan_max(a2, a3))
        base = cb.select(peak == low, cb.splat(cb.cast(0, acc), plan.lanes), peak)
        total = total * cb.exp(top - base)
        total = total + ((cb.exp(a0 - base) + cb.exp(a1 - base)) + (cb.exp(a2 - base) + cb.exp(a3 - base)))
        top = peak
        k += 4 * hop
    most = over_units(over_lanes(top, f.larger, plan.lanes), f.larger, plan.units, board)
    lifted = cb.select(top == low, cb.splat(cb.cast(0, acc), plan.lanes), total * cb.exp(top - most))
    scale = 1.0 / over_units(over_lanes(lifted, f.add, plan.lanes), f.add, plan.units, board)
    for k in range(at, n, hop):
        e = cb.exp(cb.cast(x.load((row, k), plan.lanes, valid=n - k), acc) - most)
        out.store((row, k), cb.cast(e * scale, out.dtype), valid=n - k)


@cb.func
def squares(line, mean, count, lanes):
    """(line - mean)^2 in the first `count` lanes, else 0."""
    d = line - mean
    return first_lanes(d * d, count, cb.cast(0, line.dtype), lanes)


@cb.func
def scaled(v, weight, bias, k, n, acc: cb.Comptime, plan: cb.Comptime[RowPlan]):
    """v * weight[k...] + bias[k...], each if there is one."""
    if weight is not None:
        v = v * part(weight, k, n, acc, plan)
    if bias is not None:
        v = v + part(bias, k, n, acc, plan)
    return v


@cb.func
def part(vector, k, n, acc: cb.Comptime, plan: cb.Comptime[RowPlan]):
    """A line of a vector as long as a row."""
    if plan.whole:
        return cb.cast(vector.load(k, plan.lanes), acc)
    return cb.cast(vector.load(k, plan.lanes, valid=n - k), acc)


@cb.kernel
def layer_norm_held(x: cb.Array, weight, bias, out: cb.Array, eps, acc: cb.Comptime, plan: cb.Comptime[RowPlan]):
    """out[r] = (x[r] - mean) / sqrt(variance + eps) * weight + bias."""
    fill_core(acc, plan)
    board = cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM), acc)
    n = x.shape[1]
    row, mine = row_of_unit(x.shape[0], plan)
    hop = plan.units * plan.lanes
    at = cb.UNIT_POS % plan.units * plan.lanes
    values = ()
    for j in cb.unroll(range(plan.held)):
        values = values + (row_line(x, row, at + j * hop, n, acc, cb.cast(0, acc), plan),)
    mean, scale = held_moments(values, at, n, eps, plan, acc, board)
    if mine:
        for j in cb.unroll(range(plan.held)):
            k = at + j * hop
            if j == plan.held // 2 and plan.rows == 1:
                cb.sync_plane()  # else the compiler asks for all weights at once, and has no registers for them
            v = scaled((values[j] - mean) * scale, weight, bias, k, n, acc, plan)
            store_line(out, row, k, n, v, plan)


@cb.kernel
def layer_norm_again(x: cb.Array, weight, bias, out: cb.Array, eps, acc: cb.Comptime, plan: cb.Comptime[RowPlan]):
    """The same for rows of any length, a cube for each, in three passes."""
    fill_core(acc, plan)
    board = cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM), acc)
    n = x.shape[1]
    row = cb.CUBE_POS
    hop = plan.units * plan.lanes
    at = cb.UNIT_POS * plan.lanes
    zero = cb.splat(cb.cast(0, acc), plan.lanes)
    s0 = zero
    s1 = zero
    s2 = zero
    s3 = zero
    for k in range(at, n, 4 * hop):
        v0 = x.load((row, k), plan.lanes, valid=n - k)
        v1 = x.load((row, k + hop), plan.lanes, valid=n - k - hop)
        v2 = x.load((row, k + 2 * hop), plan.lanes, valid=n - k - 2 * hop)
        v3 = x.load((row, k + 3 * hop), plan.lanes, valid=n - k - 3 * hop)
        s0 = s0 + cb.cast(v0, acc)
        s1 = s1 + cb.cast(v1, acc)
        s2 = s2 + cb.cast(v2, acc)
        s3 = s3 + cb.cast(v3, acc)
    total = over_lanes((s0 + s1) + (s2 + s3), f.add, plan.lanes)
    mean = over_units(total, f.add, plan.units, board) / cb.cast(n, acc)
    q0 = zero
    q1 = zero
    for k in range(at, n, 2 * hop):
        v0 = x.load((row, k), plan.lanes, valid=n - k)
        v1 = x.load((row, k + hop), plan.lanes, valid=n - k - hop)
        q0 = q0 + squares(cb.cast(v0, acc), mean, n - k, plan.lanes)
        q1 = q1 + squares(cb.cast(v1, acc), mean, n - k - hop, plan.lanes)
    square = over_units(over_lanes(q0 + q1, f.add, plan.lanes), f.add, plan.units, board)
    scale = 1.0 / cb.sqrt(square / cb.cast(n, acc) + eps)
    for k in range(at, n, hop):
        v = (cb.cast(x.load((row, k), plan.lanes, valid=n - k), acc) - mean) * scale
        v = scaled(v, weight, bias, k, n, acc, plan)
        out.store((row, k), cb.cast(v, out.dtype), valid=n - k)


def row_plan(n: int, *arrays: Any) -> RowPlan:
    """Units for rows of n elements of arrays with unit stride along them."""
    lanes = line_of(*arrays)
    lines = -(-n // lanes)
    for most, size in ((UNITS, HELD), (MOST, 2 * HELD)):
        held = max(1, min(16, size // (lanes * max(4, *(a.itemsize for a in arrays)))))
        units = max(power_of_two(-(-lines // held)), min(32, power_of_two(lines)))
        if units <= most:
            held = -(-lines // units)
            rows = max(1, UNITS // units)
            return RowPlan(lanes, units, rows, held, units * lanes * held == n)
    return RowPlan(lanes, MOST, 1, 0)


def softmax_rows(data: Any, target: Any, acc: Any) -> None:
    """Softmax of the rows of (rows, n), to rows with unit stride."""
    m, n = data.shape
    plan = row_plan(n, data, target)
    kernel = softmax_again
    if plan.held:
        kernel = softmax_narrow if target.itemsize == 2 else softmax_held
    kernel[-(-m // plan.rows), plan.units * plan.rows](data, target, acc, plan, mode="unchecked")


def layer_norm_rows(data: Any, weight: Any, bias: Any, target: Any, eps: float, acc: Any) -> None:
    """Normalise the rows of (rows, n); weight and bias are (n,) or None."""
    m, n = data.shape
    plan = row_plan(n, data, target, *(a for a in (weight, bias) if a is not None))
    kernel = layer_norm_held if plan.held else layer_norm_again
    kernel[-(-m // plan.rows), plan.units * plan.rows](data, weight, bias, target, eps, acc, plan, mode="unchecked")
