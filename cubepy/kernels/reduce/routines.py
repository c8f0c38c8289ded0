"""The routines of reductions, in order of preference."""

from __future__ import annotations

from cubepy.kernels.reduce import arg_cpu, columns_cpu, rows_cpu
from cubepy.tune import Op

FOR_GPUS = "cubepy.kernels.reduce.routines_gpu"

REDUCE = Op("reduce", [rows_cpu.Rows(), columns_cpu.Columns(), columns_cpu.Blocks()], FOR_GPUS)

ARG = Op("argmax", [arg_cpu.ArgShortRows(), arg_cpu.ArgRows(), arg_cpu.ArgColumns()], FOR_GPUS)
