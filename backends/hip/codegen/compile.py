"""Machine code of a program for an AMD GPU, from the cache or made now."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from cubepy.backends.gpu.code import GpuCode
from cubepy.backends.gpu.names import SHARED
from cubepy.backends.hip.codegen.architecture import Architecture
from cubepy.backends.hip.codegen.emit import HipPrinter
from cubepy.backends.hip.codegen.front_end import NUMBA_HIP, front_end
from cubepy.backends.hip.codegen.job import Job
from cubepy.runtime.inspection import OWN


class Code(GpuCode):
    """A program compiled for one processor; see `GpuCode`.

    Attributes:
        front_end: what types and lowers its text.
    """

    architecture: Architecture
    printer = HipPrinter
    reserved = SHARED
    lowering = "hip/codegen/*.py gpu/codegen/*.py"

    def __init__(self, *given: Any) -> None:
        self.front_end = front_end()
        own = self.front_end == OWN
        self.packages = ("numba", "llvmlite") if own else ("numba", "llvmlite", NUMBA_HIP)
        super().__init__(*given)

    def translated(self) -> bytes:
        return self.job.binary()

    @property
    def llvm(self) -> str:
        """LLVM's text, optimised."""
        return str(self.job.module)

    @cached_property
    def assembly(self) -> str:
        """The machine code as text."""
        return self.job.assembly()

    @cached_property
    def job(self) -> Job:
        """What is compiled, for another process too."""
        return Job(
            **self.job_fields(),
            processor=str(self.architecture),
            units=self.units,
            resident=self.program.resident,
            front_end=self.front_end,
        )
