"""The routines of reductions, in order of preference."""

from __future__ import annotations

from cubepy.kernels.reduce import arg_cpu, arg_gpu, columns_cpu, reduce_gpu, rows_cpu
from cubepy.kernels.reduce.statistics_gpu import Walks
from cubepy.tune import Op

REDUCE = Op(
    "reduce",
    [
        reduce_gpu.RowsWide(),
        reduce_gpu.ColumnsWide(),
        Walks(),
        rows_cpu.Rows(),
        columns_cpu.Columns(),
        columns_cpu.Blocks(),
    ],
)

ARG = Op(
    "argmax",
    [
        arg_gpu.ArgRowsWide(),
        arg_gpu.ArgColumnsWide(),
        arg_cpu.ArgShortRows(),
        arg_cpu.ArgRows(),
        arg_cpu.ArgColumns(),
    ],
)
