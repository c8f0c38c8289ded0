"""Classes that asv times, one for each operation; the library and the shape are parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Case = Callable[[str, str, str], Callable[[], Any]]


class Suite:
    """Timing settings that all classes share; asv repeats calls freely."""

    param_names = ("library", "shape")
    timeout = 300
    rounds = 1
    repeat = (5, 25, 1.5)
    sample_time = 0.02
    warmup_time = 0.1


def suites(works: Mapping[str, Any], libraries: tuple[str, ...], case: Case) -> dict[str, type]:
    """A class for each operation, by name: `matmul_row` gives `MatmulRow`.

    Args:
        works: operations by name; each has `shapes`.
        case: takes an operation, a library and a shape and gives what is timed, warmed.
    """

    def suite(op: str) -> type:
        def setup(self: Any, library: str, shape: str) -> None:
            self.run = case(op, library, shape)

        def time_op(self: Any, library: str, shape: str) -> None:
            self.run()

        parts = {"setup": setup, f"time_{op}": time_op, "params": (libraries, works[op].shapes)}
        return type("".join(part.title() for part in op.split("_")), (Suite,), parts)

    return {made.__name__: made for made in map(suite, works)}
