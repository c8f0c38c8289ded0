"""What another process needs to compile a program for a CPU, and what "runs" in its place until
then.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from cubepy.backends.cpu import compile as native
from cubepy.backends.llvm import jobs
from cubepy.backends.llvm.emitted import Emitted, Parameter
from cubepy.runtime import cache


@dataclass(frozen=True)
class Job(jobs.Job):
    """A program for a CPU."""

    def compile(self) -> None:
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
