"""What is compiled for a GPU, here or in another process: all of it is numbers and text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cubepy.backends.llvm.emitted import Parameter
from cubepy.backends.llvm.generated_source import load_source
from cubepy.backends.llvm.processes import jobs
from cubepy.errors import BackendCompileError, CubeError
from cubepy.runtime import cache


@dataclass(frozen=True)
class GpuJob(jobs.Job):
    """A program for GPUs of one architecture.

    Attributes:
        aligned: whether every array starts at a multiple of 16 bytes.
        read_only: arrays that nobody writes while the kernel runs.
    """

    aligned: bool
    read_only: tuple[str, ...]

    def compile(self) -> None:
        cache.write(self.key, self.binary())

    @contextmanager
    def explained(self, architecture: str) -> Iterator[None]:
        """Errors of the compiler inside become one of cubepy's.

        Raises:
            BackendCompileError: something failed that cubepy did not refuse itself.
        """
        try:
            yield
        except (CubeError, RecursionError):  # more stack may help the latter
            raise
        except Exception as error:
            raise BackendCompileError(
                f"the code of {self.kernel} cannot be compiled for {architecture}: "
                f"{type(error).__name__}: {str(error)[:2000]}",
                hint="this is a defect of cubepy; please report it with the kernel",
            ) from error

    @abstractmethod
    def binary(self) -> bytes:
        """The machine code.

        Raises:
            BackendCompileError: it cannot be compiled.
        """

    def source(self) -> Callable[[], Callable[..., Any]]:
        """What gives the generated function, whose module is written to the cache."""
        path = cache.write_source(self.key, self.text)
        return lambda: load_source(path).kernel  # type: ignore[no-any-return]

    def typed_parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the generated function."""
        return tuple(Parameter(*p) for p in self.parameters)
