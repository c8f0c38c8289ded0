"""What is compiled for an AMD GPU, here or in another process: all of it is numbers and text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cubepy.backends.gpu.job import GpuJob
from cubepy.backends.hip.codegen.architecture import Architecture
from cubepy.errors import BackendCompileError, CubeError


@dataclass(frozen=True)
class Job(GpuJob):
    """A program for AMD GPUs of one processor.

    Attributes:
        processor: LLVM's name of it.
        units: of a cube, along each axis.
        front_end: what types and lowers the text.
    """

    processor: str
    units: tuple[int, int, int]
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

        try:
            return lower(
                self.source(),
                self.text,
                self.typed_parameters(),
                self.symbol,
                self.architecture,
                self.units,
                frozenset(self.fast_math),
                self.noalias,
                frozenset(self.read_only),
                self.aligned,
                self.front_end,
            )
        except (CubeError, RecursionError):  # more stack may help the latter
            raise
        except Exception as error:
            raise self._defect(error) from error

    @cached_property
    def module(self) -> Any:
        """LLVM's module, optimised.

        Raises:
            BackendCompileError: it calls what has no instruction.
        """
        from cubepy.backends.hip.codegen.machine import optimised

        text = self.lowered()
        try:
            return optimised(text, self.architecture)
        except CubeError:
            raise
        except Exception as error:
            raise self._defect(error) from error

    def assembly(self) -> str:
        """The machine code as text."""
        from cubepy.backends.hip.codegen.machine import emitted

        return emitted("assembly", self.module, self.architecture).decode()

    def _defect(self, error: Exception) -> BackendCompileError:
        return BackendCompileError(
            f"the code of {self.kernel} cannot be compiled for {self.processor}: "
            f"{type(error).__name__}: {str(error)[:2000]}",
            hint="this is a defect of cubepy; please report it with the kernel",
        )
