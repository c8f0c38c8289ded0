"""Machine code for a program, from the cache or made now; no GPU is needed for either."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

from cubepy.backends.cuda.codegen.emit import CudaPrinter
from cubepy.backends.cuda.codegen.job import Job
from cubepy.backends.cuda.codegen.names import RESERVED
from cubepy.backends.gpu.code import GpuCode
from cubepy.errors import BackendCompileError


@dataclass(frozen=True)
class Architecture:
    """A compute capability that code is made for, such as sm_90a."""

    major: int
    minor: int

    @property
    def suffix(self) -> str:
        """Hopper and later have instructions that only their own code may use."""
        return "a" if self.major >= 9 else ""

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}{self.suffix}"

    @staticmethod
    def of(text: str) -> Architecture:
        """From a text such as "sm_90a".

        Raises:
            BackendCompileError: no such architecture.
        """
        found = re.fullmatch(r"(?:sm_)?(\d+)(\d)a?", text)
        if found is None or int(found[1]) < 7:
            raise BackendCompileError(
                f"there is no architecture {text!r}", hint='write "sm_80" or "sm_90a"'
            )
        return Architecture(int(found[1]), int(found[2]))


class Code(GpuCode):
    """A program compiled for one architecture; see `GpuCode`."""

    architecture: Architecture
    printer = CudaPrinter
    reserved = RESERVED
    lowering = (
        "cuda/codegen/lowering.py cuda/codegen/nvvm.py gpu/codegen/target.py gpu/codegen/modules.py"
    )
    packages = (
        "numba",
        "llvmlite",
        "nvidia-nvjitlink",
        "nvidia-nvvm",
        "nvidia-nvjitlink-cu12",
        "nvidia-cuda-nvcc-cu12",
    )

    def translated(self) -> bytes:
        code: bytes = self.job.translated("cubin")
        return code

    @property
    def cubin(self) -> bytes:
        """The machine code."""
        return self.binary

    @property
    def ptx(self) -> str:
        """The PTX that the machine code is made from."""
        return str(self.job.translated("ptx"))

    @property
    def nvvm(self) -> str:
        """The LLVM IR, in NVIDIA's dialect."""
        return self.job.lowered()

    @cached_property
    def sass(self) -> str:
        """The machine code as text."""
        from cubepy.backends.cuda.codegen.disassemble import sass

        return sass(self.cubin)

    @cached_property
    def job(self) -> Job:
        """What is compiled, for another process too."""
        a = self.architecture
        return Job(
            **self.job_fields(),
            architecture=(a.major, a.minor, a.suffix),
            units=math.prod(self.units),
            resident=self.program.resident,
        )
