"""The routines of softmax and the norms, in order of preference."""

from __future__ import annotations

from cubepy.kernels.normalization.norms_rows import GroupRows, LogSoftmaxRows, RmsRows
from cubepy.kernels.normalization.rows_cpu import LayerNormRows, SoftmaxPast, SoftmaxRows
from cubepy.tune import Op

FOR_GPUS = "cubepy.kernels.normalization.routines_gpu"

SOFTMAX = Op("softmax", [SoftmaxPast(), SoftmaxRows(), LogSoftmaxRows()], FOR_GPUS)
NORM = Op("norm", [LayerNormRows(), RmsRows()], FOR_GPUS)
GROUP_NORM = Op("group_norm", [GroupRows()], FOR_GPUS)
