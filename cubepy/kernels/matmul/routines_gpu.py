"""The routines of matmul on GPUs, in order of preference."""

from __future__ import annotations

from cubepy.kernels.matmul.gpu.direct import DirectRoutine
from cubepy.kernels.matmul.gpu.gemv import FewRoutine
from cubepy.kernels.matmul.gpu.gemv_rows import AcrossRoutine, TurnedRoutine
from cubepy.kernels.matmul.gpu.mma_buffered import BufferedRoutine
from cubepy.kernels.matmul.gpu.mma_held import MmaHeldRoutine
from cubepy.kernels.matmul.gpu.mma_multistage import MmaRoutine
from cubepy.kernels.matmul.gpu.mma_split_k import MmaSplitKRoutine
from cubepy.kernels.matmul.gpu.simt import SimtRoutine
from cubepy.kernels.matmul.gpu.simt_multistage import SimtMultistageRoutine
from cubepy.kernels.matmul.sm90.cluster_split_k import ClusterSplitKRoutine
from cubepy.kernels.matmul.sm90.padded import PaddedRoutine
from cubepy.kernels.matmul.sm90.persistent import HopperRoutine
from cubepy.kernels.matmul.sm90.tma_simt import FmaRoutine
from cubepy.kernels.matmul.sm90.tma_simt_copied import FmaCopiedRoutine
from cubepy.kernels.matmul.sm90.tma_simt_split_k import FmaPlanesRoutine

ROUTINES = {
    "matmul": (
        DirectRoutine(),
        MmaSplitKRoutine(),
        MmaHeldRoutine(),
        FewRoutine(),
        AcrossRoutine(),
        TurnedRoutine(),
        ClusterSplitKRoutine(),
        HopperRoutine(),
        PaddedRoutine(),
        MmaRoutine(),
        BufferedRoutine(),
        SimtMultistageRoutine(),
        FmaRoutine(),
        FmaCopiedRoutine(),
        FmaPlanesRoutine(),
        SimtRoutine(),
    )
}
