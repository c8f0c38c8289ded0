"""layer_norm, rms_norm and group_norm by whole cubes, for devices with planes: a row is read once.

Rows too long for the registers of a cube, or of a cluster where there are such, are read two or
three times.
"""

from __future__ import annotations

from dataclasses import replace

import cubepy as cb
from cubepy.kernels.normalization.problem import GroupNorm, Norm
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.kernels.reduce.held_rows_gpu import (
    ROOM,
    HeldPlan,
    fill_core,
    known_of_held,
    part,
    position_of_unit,
    row_of_lines,
    row_plan,
    scratch_of,
    store_line,
)
from cubepy.kernels.reduce.reduction import MOMENTS, SQUARES
from cubepy.kernels.reduce.walk_gpu import known_of_cube
from cubepy.tune import GpuRoutine

SINGLES = 112
"""What ROOM says, for lines of one element."""


@cb.func
def inverse_root(squares, n, eps, acc: cb.Comptime):
    """1 / sqrt(mean of squares + eps)"""
    return 1.0 / cb.sqrt(squares / cb.cast(n, acc) + cb.cast(eps, acc))


@cb.func
def held_moments(
    values,
    at,
    n,
    eps,
    plan: cb.Comptime[HeldPlan],
    centred: cb.Comptime[bool],
    acc: cb.Comptime,
    scratch,
):
    """The mean (0 unless `centred`) and 1 / sqrt(mean of squared distances to it + eps) over the
    units of a row; `at` is this unit's first element.
    """
    zero = cb.cast(0, acc)
    walks = MOMENTS if centred else SQUARES.walks
    known = known_of_held(values, at, n, walks, zero, plan, scratch)
    return known[0] if centred else zero, inverse_root(known[-1], n, eps, acc)


@cb.func
def pause(j: cb.Comptime[int], plan: cb.Comptime[HeldPlan]):
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
    plan: cb.Comptime[HeldPlan],
    centred: cb.Comptime[bool] = True,
):
    """out[r] = (x[r] - mean) / sqrt(variance + eps) * weight + bias; unless `centred`, the mean
    counts as 0.
    """
    if plan.early:
        cb.start_next()
        cb.wait_previous()
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
    plan: cb.Comptime[HeldPlan],
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


@cb.kernel
def layer_norm_again(
    x: cb.Array,
    weight,
    bias,
    out: cb.Array,
    eps,
    acc: cb.Comptime,
    plan: cb.Comptime[HeldPlan],
    centred: cb.Comptime[bool] = True,
):
    """The same for rows of any length, a cube for each, in three passes."""
    fill_core(acc, plan)
    n, row = x.shape[1], cb.CUBE_POS
    hop = plan.units * plan.lanes
    at = cb.UNIT_POS * plan.lanes
    walks = MOMENTS if centred else SQUARES.walks
    known = known_of_cube(x, row, walks, 0, acc, plan.lanes)
    mean, scale = known[0] if centred else cb.cast(0, acc), inverse_root(known[-1], n, eps, acc)
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
        plan = replace(plan, early=plan.held > 0 and "overlap" in properties.features)
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

    def plan(self, p: GroupNorm, properties: cb.DeviceProperties) -> HeldPlan:
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
