"""The generated code of a launch, for reading."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

OWN = "cubepy"
"""The front end of our own, which stands on numba.core alone."""


class Inspection:
    """What a launch would run.

    Attributes:
        python: the specialised source.
        llvm: optimised LLVM IR (made when first read).
        asm: assembly; SASS on an NVIDIA GPU (made when first read).
        ptx: PTX, on an NVIDIA GPU; empty elsewhere.
        front_end: what makes LLVM IR of the source: "cubepy", or, on AMD GPUs, numba-hip with its
            version.
    """

    def __init__(
        self,
        python: str,
        llvm: Callable[[], str],
        asm: Callable[[], str],
        ptx: Callable[[], str] = str,
        front_end: str = OWN,
    ) -> None:
        self.python, self.front_end = python, front_end
        self._llvm, self._asm, self._ptx = llvm, asm, ptx

    @cached_property
    def llvm(self) -> str:
        """Optimised LLVM IR."""
        return self._llvm()

    @cached_property
    def asm(self) -> str:
        """Assembly."""
        return self._asm()

    @cached_property
    def ptx(self) -> str:
        """PTX, the input of NVIDIA's assembler."""
        return self._ptx()

    @property
    def sass(self) -> str:
        """The machine code of an NVIDIA GPU: the same as `asm`."""
        return self.asm

    def __str__(self) -> str:
        return self.python
