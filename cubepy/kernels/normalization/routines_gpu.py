"""The routines of softmax and the norms on GPUs, in order of preference."""

from __future__ import annotations

from cubepy.kernels.normalization.moments_gpu import GroupWide, NormWide
from cubepy.kernels.normalization.softmax_gpu import SoftmaxWide

ROUTINES = {"softmax": (SoftmaxWide(),), "norm": (NormWide(),), "group_norm": (GroupWide(),)}
