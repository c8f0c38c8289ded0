"""Printing a program for an NVIDIA GPU: as for any, with what its instructions do besides."""

from __future__ import annotations

from cubepy.backends.gpu.printing import GpuPrinter
from cubepy.backends.llvm.printing import carrier
from cubepy.compiler.ir import Expr

KEEPS_NAN = {"nan_min": "kept_minimum", "nan_max": "kept_maximum"}
"""What takes one instruction for floats of 32 bits and below, and no rounding."""


class CudaPrinter(GpuPrinter):
    """Prints one program as a function that every thread runs."""

    ops = "cubepy.backends.cuda.ops"

    def value(self, e: Expr) -> str:
        """An expression; smaller and larger numbers keep NaN in one instruction, from Ampere on."""
        if e.op == "call" and e.attr in KEEPS_NAN and carrier(e.type.dtype) == "f32":
            if "mma" in self.program.properties.features:
                return f"{KEEPS_NAN[e.attr]}({self.value(e.args[0])}, {self.value(e.args[1])})"
        return super().value(e)
