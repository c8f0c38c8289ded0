"""The routines of matmul, in order of preference, and how they are measured."""

from __future__ import annotations

from cubepy.kernels.matmul_across import AcrossRoutine, TurnedRoutine
from cubepy.kernels.matmul_blocks import Tile
from cubepy.kernels.matmul_gpu import FewRoutine, HopperRoutine, MmaRoutine, SimtRoutine
from cubepy.kernels.matmul_gpu_tiles import FmaPlanesRoutine, FmaRoutine, ThinRoutine
from cubepy.kernels.matmul_padded import PaddedRoutine
from cubepy.kernels.matmul_plain import Plain
from cubepy.kernels.matmul_problem import (
    Product,
    arguments,
    linear,
    reference,
    results,
    tolerance,
    typical,
    work,
)
from cubepy.kernels.matmul_skinny import Skinny
from cubepy.kernels.matmul_split import Split
from cubepy.tune import Op

MATMUL = Op(
    "matmul",
    [FewRoutine(), AcrossRoutine(), TurnedRoutine(), ThinRoutine(), HopperRoutine(), PaddedRoutine(), MmaRoutine(),
     FmaRoutine(), FmaPlanesRoutine(), SimtRoutine(), Skinny(), Split(), Tile(), Plain()],
    Product, make=arguments, outputs=lambda args: args[2:3], reference=reference, results=results,
    tolerance=tolerance, work=work, typical=typical, linear=linear,
    exact=("packed",),
)  # fmt: skip
