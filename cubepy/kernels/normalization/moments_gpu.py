"""layer_norm, rms_norm and group_norm by whole cubes, for devices with planes: a row is read once.

Rows too long for the registers of a cube, or of a cluster where there are such, are read two or
three times.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.normalization.problem import GroupNorm, Norm
from cubepy.kernels.normalization.rows_gpu import (
    ROOM,
    RowPlan,
    fill_core,
    met,
    only_row,
    over_row_units,
    part,
    position_of_unit,
    row_of_lines,
    row_plan,
    scratch_of,
    store_line,
)
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.lines import over_lanes
from cubepy.kernels.primitives.units import over_units
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.tune import GpuRoutine

SINGLES = 112
"""What ROOM says, for lines of one element."""


@cb.func
def held_moments(
    values,
    at,
    n,
    eps,
    plan: cb.Comptime[RowPlan],
    centred: cb.Comptime[bool],
    acc: cb.Comptime,
    scratch,
):
    """The mean (0 unless `centred`) and 1 / sqrt(mean of squared distances to it + eps) over the
    units of a row; `at` is this unit's first element.
    """
    mean = cb.cast(0, acc)
    count = cb.cast(n, acc)
    if centred:
        total = values[0]
        for j in cb.unroll(range(1, plan.held)):
            total = total + values[j]
        mean = over_row_units(over_lanes(total, f.add, plan.lanes), f.add, 0, plan, scratch) / count
    spread = cb.splat(cb.cast(0, acc), plan.lanes)
    for j in cb.unroll(range(plan.held)):
        d = values[j] - mean
        spread = spread + (
            only_row(d * d, at + j * plan.hop, n, j, acc, plan) if centred else d * d
        )
    square = over_row_units(over_lanes(spread, f.add, plan.lanes), f.add, 1, plan, scratch)
    met(plan)
    return mean, 1.0 / cb.sqrt(square / count + cb.cast(eps, acc))


@cb.func
def pause(j: cb.Comptime[int], plan: cb.Comptime[RowPlan]):
    """Between lines: else all weights are asked for at once, more than registers hold."""
    here = j == plan.held // 2 if plan.whole else j > 0 and j % max(1, 8 // plan.lanes) == 0
    if plan.rows == 1 and here:
        cb.sync_plane()


@cb.kernel
def layer_norm_held(
    x: cb.Array,
    weight,
    bias,
    out: cb.Array,
    eps,
    acc: cb.Comptime,
    plan: cb.Comptime[RowPlan],
    centred: cb.Comptime[bool] = True,
):
    """out[r] = (x[r] - mean) / sqrt(variance + eps) * weight + bias; unless `centred`, the mean
    counts as 0.
    """
    fill_core(acc, plan)
    scratch = scratch_of(acc, plan)
    n = x.shape[1]
    row, mine, at = position_of_unit(x.shape[0], plan)
    values = row_of_lines(x, row, at, n, acc, cb.cast(0, acc), plan)
    mean, scale = held_moments(values, at, n, eps, plan, centred, acc, scratch)
    if mine:
        for j in cb.unroll(range(plan.held)):
            k = at + j * plan.hop
            pause(j, plan)
            v = (values[j] - mean) * scale if centred else values[j] * scale
            if weight is not None:
                v = v * part(weight, k, n, j, acc, plan)
            if bias is not None:
                v = v + part(bias, k, n, j, acc, plan)
            store_line(out, row, k, n, j, v, plan)


@cb.func
def of_channels(
    vector, first, k, length, runs: cb.Comptime[bool], acc: cb.Comptime, lanes: cb.Comptime[int]
):
    """The elements of a vector for a line from element k of a group, whose channels are `length`
    long and begin at `first` in the vector. A line is in one channel (`runs`), or in two.
    """
    channel = cb.cast(cb.cast(k, cb.u32) // cb.cast(length, cb.u32), cb.i32)
    here = cb.splat(cb.cast(vector[cb.min(first + channel, vector.shape[0] - 1)], acc), lanes)
    if runs:
        return here
    following = cb.cast(vector[cb.min(first + channel + 1, vector.shape[0] - 1)], acc)
    return cb.keep_first(here, (channel + 1) * length - k, following)


@cb.kernel
def group_norm_held(
    x: cb.Array,
    weight,
    bias,
    out: cb.Array,
    eps,
    groups,
    length,
    runs: cb.Comptime[bool],
    acc: cb.Comptime,
    plan: cb.Comptime[RowPlan],
):
    """A row is one group of one image: channels of `length` elements, each with its weight and
    bias.
    """
    fill_core(acc, plan)
    scratch = scratch_of(acc, plan)
    n = x.shape[1]
    row, mine, at = position_of_unit(x.shape[0], plan)
    values = row_of_lines(x, row, at, n, acc, cb.cast(0, acc), plan)
    mean, scale = held_moments(values, at, n, eps, plan, True, acc, scratch)
    first = row % groups * (n // length)
    if mine:
        for j in cb.unroll(range(plan.held)):
            k = at + j * plan.hop
            pause(j, plan)
            v = (values[j] - mean) * scale
            if weight is not None:
                v = v * of_channels(weight, first, k, length, runs, acc, plan.lanes)
            if bias is not None:
                v = v + of_channels(bias, first, k, length, runs, acc, plan.lanes)
            store_line(out, row, k, n, j, v, plan)


@cb.func
def squares(line, mean, count, lanes):
    """(line - mean)^2 in the first `count` lanes, else 0."""
    d = line - mean
    return cb.keep_first(d * d, count, cb.cast(0, line.dtype))


@cb.func
def mean_of_row(x, row, n, at, hop, acc: cb.Comptime, plan: cb.Comptime[RowPlan], scratch):
    """The mean of a row that a cube reads, four lines of a unit at a time."""
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
    return over_units(total, f.add, plan.units, scratch) / cb.cast(n, acc)


@cb.kernel
def layer_norm_again(
    x: cb.Array,
    weight,
    bias,
    out: cb.Array,
    eps,
    acc: cb.Comptime,
    plan: cb.Comptime[RowPlan],
    centred: cb.Comptime[bool] = True,
):
    """The same for rows of any length, a cube for each, in three passes."""
    fill_core(acc, plan)
    scratch = cb.shared(max(1, cb.CUBE_DIM // cb.PLANE_DIM), acc)
    n = x.shape[1]
    row = cb.CUBE_POS
    hop = plan.units * plan.lanes
    at = cb.UNIT_POS * plan.lanes
    zero = cb.splat(cb.cast(0, acc), plan.lanes)
    mean = cb.cast(0, acc)
    if centred:
        mean = mean_of_row(x, row, n, at, hop, acc, plan, scratch)
    q0 = zero
    q1 = zero
    for k in range(at, n, 2 * hop):
        v0 = x.load((row, k), plan.lanes, valid=n - k)
        v1 = x.load((row, k + hop), plan.lanes, valid=n - k - hop)
        q0 = q0 + squares(cb.cast(v0, acc), mean, n - k, plan.lanes)
        q1 = q1 + squares(cb.cast(v1, acc), mean, n - k - hop, plan.lanes)
    square = over_units(over_lanes(q0 + q1, f.add, plan.lanes), f.add, plan.units, scratch)
    scale = 1.0 / cb.sqrt(square / cb.cast(n, acc) + eps)
    for k in range(at, n, hop):
        v = (cb.cast(x.load((row, k), plan.lanes, valid=n - k), acc) - mean) * scale
        if weight is not None:
            v = v * cb.cast(weight.load(k, plan.lanes, valid=n - k), acc)
        if bias is not None:
            v = v + cb.cast(bias.load(k, plan.lanes, valid=n - k), acc)
        out.store((row, k), cb.cast(v, out.dtype), valid=n - k)


class NormWide(GpuRoutine):
    """Units hold a row in their registers; rows too long for that are read again."""

    name = "wide_rows"

    def launch(self, p: Norm, properties: cb.DeviceProperties) -> None:
        """As many units a row as hold it."""
        m, n = p.x.shape
        arrays = (p.x, p.out, *(a for a in (p.weight, p.bias) if a is not None))
        room = ROOM if line_of(*arrays) > 1 else SINGLES
        plan = row_plan(properties, n, *arrays, room=room)
        kernel = layer_norm_held if plan.held else layer_norm_again
        kernel[-(-m // plan.rows) * plan.parts, plan.units * plan.rows](
            p.x, p.weight, p.bias, p.out, p.eps, p.acc, plan, p.centred, mode="unchecked"
        )


class GroupWide(GpuRoutine):
    """Units hold a group of channels in their registers."""

    name = "wide_rows"

    def unfit(self, p: GroupNorm, properties: cb.DeviceProperties) -> str | None:
        """Groups that units can hold."""
        return None if self.plan(p, properties).held else "rows are longer than units hold"

    def plan(self, p: GroupNorm, properties: cb.DeviceProperties) -> RowPlan:
        """As many units a row as hold it; a line lies in one channel or in two."""
        n = p.x.shape[1]
        plan = row_plan(properties, n, p.x, p.out)
        short = n // p.channels < plan.lanes
        return row_plan(properties, n, p.x, p.out, most=1) if short else plan

    def launch(self, p: GroupNorm, properties: cb.DeviceProperties) -> None:
        """Normalise rows of channels."""
        (m, n), plan = p.x.shape, self.plan(p, properties)
        length = n // p.channels
        runs = length % plan.lanes == 0
        parameters = (p.weight, p.bias, p.out, p.eps, p.groups, length, runs)
        group_norm_held[-(-m // plan.rows) * plan.parts, plan.units * plan.rows](
            p.x, *parameters, p.acc, plan, mode="unchecked"
        )
