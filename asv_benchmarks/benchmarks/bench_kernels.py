"""Library kernels beside their peers: a class an operation, the library is a parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.cases import LIBRARIES, WORKS, case, keep_memory


class Base:
    """Timing settings that all classes share; asv repeats calls freely."""

    param_names = ("library", "shape")
    timeout = 300
    rounds = 1
    repeat = (5, 25, 1.5)
    sample_time = 0.02
    warmup_time = 0.1
    run: Callable[[], Any]

    def setup(self, library: str, shape: str) -> None:
        """Build the work and run it once."""
        keep_memory()
        self.run = case(type(self).op, library, shape)

    op = ""


def _suite(op: str) -> type:
    def time_op(self: Base, library: str, shape: str) -> None:
        self.run()

    name = "".join(part.title() for part in op.split("_"))
    return type(name, (Base,), {f"time_{op}": time_op, "op": op, "params": (LIBRARIES, WORKS[op].shapes)})


for _suite_of in map(_suite, WORKS):
    globals()[_suite_of.__name__] = _suite_of
