"""The routines of matmul, in order of preference."""

from __future__ import annotations

from cubepy.kernels.matmul.cpu.blocked import Tile
from cubepy.kernels.matmul.cpu.gemv import GemvRoutine, StandingRoutine
from cubepy.kernels.matmul.cpu.gemv_turned import TurnedRoutine
from cubepy.kernels.matmul.cpu.naive import Plain
from cubepy.kernels.matmul.cpu.split_k import Split
from cubepy.kernels.matmul.measure import Matmul

MATMUL = Matmul(
    "matmul",
    [TurnedRoutine(), GemvRoutine(), StandingRoutine(), Split(), Tile(), Plain()],
    for_gpus="cubepy.kernels.matmul.routines_gpu",
)
