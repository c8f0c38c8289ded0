"""The routines of reductions, in order of preference."""

from __future__ import annotations

from cubepy.kernels.reduce import arg_cpu, columns_cpu, rows_cpu
from cubepy.kernels.reduce.reduce_gpu import ArgWide, ReduceWide
from cubepy.kernels.reduce.statistics_gpu import ReduceHeld
from cubepy.tune import Op

REDUCE = Op(
    "reduce",
    [ReduceHeld(), ReduceWide(), rows_cpu.Rows(), columns_cpu.Columns(), columns_cpu.Blocks()],
)

ARG = Op("argmax", [ArgWide(), arg_cpu.ArgShortRows(), arg_cpu.ArgRows(), arg_cpu.ArgColumns()])
