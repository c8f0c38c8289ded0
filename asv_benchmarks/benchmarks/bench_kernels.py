"""Library kernels beside their peers: a class an operation, the library is a parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.cases import LIBRARIES, WORKS, case, keep_memory
from benchmarks.suites import suites


def kept(op: str, library: str, shape: str) -> Callable[[], Any]:
    """A case, in a process that keeps the memory it frees."""
    keep_memory()
    return case(op, library, shape)


globals().update(suites(WORKS, LIBRARIES, kept))
