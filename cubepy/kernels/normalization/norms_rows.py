"""log_softmax, rms_norm and group_norm of rows: what a reduction knows of a row, then the row once
more.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.normalization.problem import GroupNorm, Norm, Softmax
from cubepy.kernels.reduce.reduce_gpu import UNITS
from cubepy.kernels.reduce.reduction import MOMENTS, SOFTMAX, SQUARES
from cubepy.kernels.reduce.rows_cpu import RowPlan, known_of
from cubepy.kernels.reduce.walk_gpu import known_of_cube
from cubepy.tune import CpuRoutine, Routine


@cb.kernel
def log_softmax_rows(x: cb.Array, out: cb.Array, plan: cb.Comptime[RowPlan]):
    """out[r] = x[r] - log(sum(exp(x[r]))); a cube of one unit does a row."""
    row, n = cb.CUBE_POS, x.shape[1]
    top, total = known_of(x, row, 0, n, SOFTMAX, 0, plan)
    log = cb.log(total)
    for k, valid in cb.lines(0, n, plan.lanes):
        v = cb.cast(x.load((row, k), plan.lanes, valid=valid), plan.acc)
        out.store((row, k), cb.cast(v - top - log, out.dtype), valid=valid)


@cb.kernel
def rms_norm_rows(x: cb.Array, weight, out: cb.Array, eps, plan: cb.Comptime[RowPlan]):
    """out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight; a cube of one unit does a row."""
    row, n, acc = cb.CUBE_POS, x.shape[1], plan.acc
    squares = known_of(x, row, 0, n, SQUARES, 0, plan)[0]
    scale = 1 / cb.sqrt(squares / cb.cast(n, acc) + cb.cast(eps, acc))
    for k, valid in cb.lines(0, n, plan.lanes):
        v = cb.cast(x.load((row, k), plan.lanes, valid=valid), acc) * scale
        if weight is not None:
            v = v * cb.cast(weight.load(k, plan.lanes, valid=valid), acc)
        out.store((row, k), cb.cast(v, out.dtype), valid=valid)


@cb.kernel
def group_norm_rows(
    x: cb.Array,
    weight,
    bias,
    out: cb.Array,
    eps,
    groups,
    channels,
    plan: cb.Comptime[RowPlan],
    single: cb.Comptime[bool],
):
    """A row is one group of one image, `channels` runs of equal length (of one element: `single`);
    each run has its weight and bias. A cube does a row.
    """
    row, n, acc, lanes = cb.CUBE_POS, x.shape[1], plan.acc, plan.lanes
    mean, squares = known_of_cube(x, row, MOMENTS, 0, acc, lanes)
    inverse = 1 / cb.sqrt(squares / cb.cast(n, acc) + cb.cast(eps, acc))
    first = (row % groups) * channels
    runs = 1 if single else channels
    length = n // runs
    for c in range(runs):
        scale = inverse
        shift = cb.cast(0, acc)
        if weight is not None and not single:
            scale = scale * cb.cast(weight[first + c], acc)
        if bias is not None and not single:
            shift = cb.cast(bias[first + c], acc)
        for k in range(cb.UNIT_POS * lanes, length, cb.CUBE_DIM * lanes):
            left = length - k
            v = (cb.cast(x.load((row, c * length + k), lanes, valid=left), acc) - mean) * scale
            if weight is not None and single:
                v = v * cb.cast(weight.load(first + k, lanes, valid=left), acc)
            if bias is not None and single:
                v = v + cb.cast(bias.load(first + k, lanes, valid=left), acc)
            out.store((row, c * length + k), cb.cast(v + shift, out.dtype), valid=left)


class LogSoftmaxRows(CpuRoutine):
    """A row at a time: the largest, the sum of exponentials, then the values."""

    name = "log_rows"

    def unfit(self, p: Softmax, properties: cb.DeviceProperties) -> str | None:
        """The logarithm."""
        return None if p.log else "for the logarithm of softmax"

    def launch(self, p: Softmax, properties: cb.DeviceProperties) -> None:
        """A cube does a row."""
        plan = RowPlan(p.acc, properties.lanes(p.acc))
        log_softmax_rows[p.x.shape[0], 1](p.x, p.out, plan, mode="checked")


class RmsRows(CpuRoutine):
    """A row at a time: its squares, then the values."""

    name = "rms_rows"

    def unfit(self, p: Norm, properties: cb.DeviceProperties) -> str | None:
        """Norms by squares alone."""
        return "for norms without a mean" if p.centred else None

    def launch(self, p: Norm, properties: cb.DeviceProperties) -> None:
        """A cube does a row."""
        plan = RowPlan(p.acc, properties.lanes(p.acc))
        rms_norm_rows[p.x.shape[0], 1](p.x, p.weight, p.out, p.eps, plan, mode="checked")


class GroupRows(Routine):
    """A cube does a group of channels, on any device."""

    name = "rows"

    def launch(self, p: GroupNorm, properties: cb.DeviceProperties) -> None:
        """Its moments, then each channel with its weight and bias."""
        wide = properties.plane_size > 1
        lanes = max(1, 16 // max(4, p.x.itemsize)) if wide else properties.lanes(p.acc)
        group_norm_rows[p.x.shape[0], UNITS if wide else 1](
            p.x,
            p.weight,
            p.bias,
            p.out,
            p.eps,
            p.groups,
            p.channels,
            RowPlan(p.acc, lanes),
            p.x.shape[1] == p.channels,
            mode="checked",
        )
