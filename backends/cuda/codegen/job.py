"""What is compiled for a GPU, here or in another process: all of it is numbers and text."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from cubepy.backends.gpu.job import GpuJob
from cubepy.backends.gpu.versions import ABSENT, version_of
from cubepy.errors import BackendCompileError


@dataclass(frozen=True)
class Job(GpuJob):
    """A program for NVIDIA GPUs of one architecture.

    Attributes:
        architecture: major, minor, suffix.
        units: of a cube.
        resident: cubes of a core, at least; 0 where nothing is promised.
    """

    architecture: tuple[int, int, str]
    units: int
    resident: int

    def binary(self) -> bytes:
        code: bytes = self.translated("cubin")
        return code

    def lowered(self) -> str:
        """LLVM IR in NVIDIA's dialect.

        Raises:
            BackendCompileError: NVIDIA's compiler is not installed.
        """
        _needs_compiler()
        from cubepy.backends.cuda.codegen import lowering

        return lowering.lower(
            self.source(),
            self.text,
            self.typed_parameters(),
            self.symbol,
            lowering.Bounds(self.units, self.resident, self.aligned),
            frozenset(self.fast_math),
            self.noalias,
            frozenset(self.read_only),
        )

    def translated(self, to: str) -> Any:
        """The program as "ptx" or "cubin".

        Raises:
            BackendCompileError: it cannot be compiled, or numba-cuda is not installed.
        """
        _needs_compiler()
        from cubepy.backends.cuda.codegen import lowering

        try:
            return getattr(lowering, to)(
                self.lowered(), self.architecture, frozenset(self.fast_math)
            )
        except (BackendCompileError, RecursionError):  # more stack may help the latter
            raise
        except Exception as error:
            major, minor, suffix = self.architecture
            hint = "this is a defect of cubepy; please report it with the kernel"
            if type(error).__name__ == "DynamicLibNotFoundError":  # of cuda.pathfinder
                hint = 'CUDA\'s compiler is not here: pip install "cubepy[cuda13]"'
            elif "INVALID_OPTION" in str(error):
                hint = (
                    f"the compiler here knows no sm_{major}{minor}; there are sm_80, sm_86, sm_89, "
                    "sm_90a, sm_100a, ...; newer ones need a newer nvidia-nvvm"
                )
            raise BackendCompileError(
                f"the code of {self.kernel} cannot be compiled for sm_{major}{minor}{suffix}: "
                f"{type(error).__name__}: {str(error)[:2000]}",
                hint=hint,
            ) from error


REPLACES = "hip-python-interop"
"""A package for AMD GPUs whose files stand where NVIDIA's `cuda.bindings` has its own."""


def _needs_compiler() -> None:
    """Say what to install when numba-cuda is missing, which brings NVIDIA's compiler, or to
    uninstall when that cannot work.
    """
    if version_of(REPLACES) != ABSENT:
        raise BackendCompileError(
            f"the package {REPLACES} puts HIP in the place of NVIDIA's cuda-bindings: with it "
            "nothing is compiled for NVIDIA GPUs",
            hint=f"keep an environment for each vendor: pip uninstall {REPLACES}, then "
            "pip install --force-reinstall cuda-bindings. cubepy needs no package for AMD GPUs",
        )
    if importlib.util.find_spec("numba_cuda") is None:
        raise BackendCompileError(
            "compiling for NVIDIA GPUs needs the package numba-cuda",
            hint='pip install "cubepy[cuda13]" (or cubepy[cuda12] for a driver older than 580)',
        )
