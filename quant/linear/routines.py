"""The routines of linear layers with quantized weights, in order of preference.

A device with matrix units of planes takes groups of 32, 64, 128 or 256 inputs, and int8, as they
lie packed, and so do those of Hopper for rows of 16 bits, however many; other groups, and many rows
of floats elsewhere, meet a dense copy of the weight that lives for one call. On AMD's GPUs int8
goes by way of the matmul of bytes, and int4 has a kernel of its own beside it.
"""

from __future__ import annotations

from cubepy.quant.linear import cpu
from cubepy.quant.linear.gpu.dequantize import Dense
from cubepy.quant.linear.gpu.gemm_int4 import GroupedMatmul
from cubepy.quant.linear.gpu.gemm_int8 import Matmul
from cubepy.quant.linear.gpu.gemm_mma_plan import Bytes, Sums
from cubepy.quant.linear.gpu.gemv import Few
from cubepy.quant.linear.sm90.gemm_wgmma_plan import Groups
from cubepy.tune import Op

QUANTIZED_LINEAR = Op(
    "quantized_linear",
    [
        Bytes(),
        Matmul(),
        GroupedMatmul(),
        Groups(),
        Few(),
        Sums(),
        Dense(),
        cpu.Int4(),
        cpu.Int8(),
        cpu.Dense(),
    ],
)
