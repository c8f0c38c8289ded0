"""Programs that are found now and compiled later: launches are prepared, but nothing runs.

Inside `rehearsal()` a launch goes its way up to the machine code; where the cache has
none, a job is noted in its place, and what "runs" is a function that does nothing. So a call of a
library function, or a whole program, shows which kernels it needs without waiting for one. Results
are whatever lay in memory: a process that has rehearsed is good for nothing else, and ends.
"""

from __future__ import annotations

import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Job(ABC):
    """All that a compiler has to know of a program, as numbers and text.

    Attributes:
        kernel: its name, for people.
        key: of the entry in the cache.
        text: the generated source.
        parameters: of the generated function: name, kind, dtype.
        symbol: of the machine code's entry point.
        fast_math: liberties that LLVM may take.
        noalias: whether no two arrays share memory.
    """

    kernel: str
    key: str
    text: str
    parameters: tuple[tuple[str, str, str], ...]
    symbol: str
    fast_math: tuple[str, ...]
    noalias: bool

    def as_line(self) -> str:
        """The job in one line, for a pipe."""
        return json.dumps({f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def of_line(cls, line: str) -> Job:
        """The job of such a line."""
        return cls(**{name: _tuples(value) for name, value in json.loads(line).items()})

    @abstractmethod
    def compile(self) -> None:
        """Compile, and put the machine code into the cache.

        Raises:
            BackendCompileError: numba refused the generated code.
        """


def _tuples(value: Any) -> Any:
    """A value as it was before JSON made lists of its tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


found: dict[str, Job] | None = None
"""The jobs of the rehearsal that goes on, by key; None where launches run."""


@contextlib.contextmanager
def rehearsal() -> Iterator[dict[str, Job]]:
    """Find what the block's launches need; it goes into the dict that this gives."""
    global found
    found = {}
    try:
        yield found
    finally:
        found = None
