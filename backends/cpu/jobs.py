"""What another process needs to compile a program for a CPU, and what "runs" in its place until
then.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from cubepy.backends.cpu import compile as native
from cubepy.backends.cpu.threads import choice
from cubepy.backends.llvm.emitted import Emitted, Parameter
from cubepy.backends.llvm.processes import jobs
from cubepy.backends.llvm.processes.pool import Pool
from cubepy.config import config
from cubepy.errors import BackendCompileError
from cubepy.runtime import cache


@dataclass(frozen=True)
class Job(jobs.Job):
    """A program for a CPU.

    Attributes:
        versions: what the machine code depends on besides the text, as `key` has it.
    """

    versions: str

    def compile(self) -> None:
        if self.versions != native.versions():
            raise BackendCompileError(
                f"the code of {self.kernel} is asked for with {self.versions}, "
                f"and this process has {native.versions()}"
            )
        path = cache.write_source(self.key, self.text)
        emitted = Emitted(self.text, tuple(Parameter(*p) for p in self.parameters), ())
        code = native.compile_object(
            path, emitted, self.symbol, frozenset(self.fast_math), self.noalias
        )[0]
        cache.write(self.key, code)


_nothing = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
    lambda first, last, block: None
)


def nothing() -> int:
    """The address of an entry point that does nothing."""
    return ctypes.cast(_nothing, ctypes.c_void_p).value or 0


def beside() -> int:
    """Processes that may compile while this one does."""
    return (config.compile_workers or choice.threads(launches=False)) - 1


POOL = Pool(Job, beside)
"""The processes that compile programs for this CPU."""
