"""What is compiled for an AMD GPU, here or in another process: all of it is numbers and text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cubepy.backends.gpu.job import GpuJob
from cubepy.backends.hip.codegen.architecture import Architecture


@dataclass(frozen=True)
class Job(GpuJob):
    """A program for AMD GPUs of one processor.

    Attributes:
        processor: LLVM's name of it.
        units: of a cube, along each axis.
        resident: cubes of a core, at least.
        front_end: what types and lowers the text.
    """

    processor: str
    units: tuple[int, int, int]
    resident: int
    front_end: str

    @property
    def architecture(self) -> Architecture:
        """The processor."""
        return Architecture(self.processor)

    def binary(self) -> bytes:
        from cubepy.backends.hip.codegen.code_object import loadable
        from cubepy.backends.hip.codegen.machine import emitted

        return loadable(emitted("object", self.module, self.architecture))

    def lowered(self) -> str:
        """LLVM's text before it is optimised.

        Raises:
            BackendCompileError: it cannot be lowered.
        """
        from cubepy.backends.hip.codegen.lowering import lower

        with self.explained(self.processor):
            return lower(
                self.source(),
                self.text,
                self.typed_parameters(),
                self.symbol,
                self.architecture,
                self.units,
                self.resident,
                frozenset(self.fast_math),
                self.noalias,
                frozenset(self.read_only),
                self.aligned,
                self.front_end,
            )

    @cached_property
    def module(self) -> Any:
        """LLVM's module, optimised.

        Raises:
            BackendCompileError: it calls what has no instruction.
        """
        from cubepy.backends.hip.codegen.machine import optimised

        text = self.lowered()
        with self.explained(self.processor):
            return optimised(text, self.architecture)

    def assembly(self) -> str:
        """The machine code as text."""
        from cubepy.backends.hip.codegen.machine import emitted

        return emitted("assembly", self.module, self.architecture).decode()
