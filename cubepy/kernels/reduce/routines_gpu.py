"""The routines of reductions on GPUs, in order of preference."""

from __future__ import annotations

from cubepy.kernels.reduce.reduce_gpu import ArgWide, ReduceWide
from cubepy.kernels.reduce.statistics_gpu import LogSumExpOnline, ReduceHeld

ROUTINES = {"reduce": (ReduceHeld(), LogSumExpOnline(), ReduceWide()), "argmax": (ArgWide(),)}
