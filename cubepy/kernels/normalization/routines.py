"""The routines of softmax and the norms, in order of preference."""

from __future__ import annotations

from cubepy.kernels.normalization.moments_gpu import GroupWide, NormWide
from cubepy.kernels.normalization.norms_rows import GroupRows, LogSoftmaxRows, RmsRows
from cubepy.kernels.normalization.rows_cpu import LayerNormRows, SoftmaxPast, SoftmaxRows
from cubepy.kernels.normalization.softmax_gpu import SoftmaxWide
from cubepy.tune import Op

SOFTMAX = Op("softmax", [SoftmaxWide(), SoftmaxPast(), SoftmaxRows(), LogSoftmaxRows()])
NORM = Op("norm", [NormWide(), LayerNormRows(), RmsRows()])
GROUP_NORM = Op("group_norm", [GroupWide(), GroupRows()])
