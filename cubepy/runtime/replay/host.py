"""Operands of a plan on the host: arrays of NumPy, whose addresses machine code reads itself.

New results are made again; memory that a launch writes before anything reads it is scratch, small
ones on the stack of the machine code. What NumPy does between launches is not seen, so a result or
scratch that no launch wrote is refused, and so are results that are no new array without gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.device import backend_named
from cubepy.runtime.memory import pool
from cubepy.runtime.memory.spans import beginning, meet
from cubepy.runtime.replay.plan import Address, Operands
from cubepy.runtime.replay.record import Launch, Recorder

PEELED = 8 << 20
"""Bytes of what may be written up to a line of the cache first, and then past the caches."""
STACK = -1  # the operand that is scratch memory on the stack


def host_replay() -> Any:
    """What replays launches on arrays of the host (`runtime.backend.HostReplay`)."""
    return backend_named("cpu").replay


class HostOperands(Operands):
    """The arrays of a tuple: the arguments, new results, scratch."""

    def __init__(
        self, recorded: Recorder, values: Sequence[Any], result: Any, out: int | None
    ) -> None:
        if recorded.allocations:
            raise Unsuitable("memory of a GPU")
        new = [] if out is not None else new_arrays(result, recorded)
        given = [(n, v) for n, v in enumerate(values) if type(v) is np.ndarray]
        self.first, self.out, self.sizes = len(values), out, list[int]()
        taken = [(self.first + k, beginning(v), v.nbytes) for k, v in enumerate(new)]
        super().__init__(host_replay().table(), given, taken, recorded.constants)
        self.kept = list(recorded.constants)
        orders = [in_memory(v) for v in new]
        self.layouts = [
            (v.transpose(order).shape, v.dtype, v.nbytes < pool.POOLED)
            for v, order in zip(new, orders, strict=True)
        ]
        self.orders = [tuple(map(order.index, range(len(order)))) for order in orders]
        for which, array in enumerate(new, self.first) if out is None else [(out, values[out])]:
            self.align(which, array)

    def align(self, which: int, array: np.ndarray) -> None:
        """What began at a line of the cache may have been written by stores that need it; what is
        large and was given, by launches that depend on where its first line begins.
        """
        start, given = beginning(array), which == self.out
        if array.nbytes < pool.POOLED or given:
            if start % pool.ALIGNMENT == 0 or (given and array.nbytes >= PEELED):
                self.lines.append((which, start, pool.ALIGNMENT - 1))

    def unknown(self, array: np.ndarray, writes: bool) -> Address:
        """Scratch memory, where a launch writes it before one reads it."""
        if not writes or not array.transpose(in_memory(array)).flags.c_contiguous:  # NumPy did
            raise Unsuitable("memory that no launch wrote")
        start, size = beginning(array), array.nbytes
        which, byte = STACK, self.table.scratch(size)
        if byte is None:
            which, byte = self.first + len(self.layouts) + len(self.sizes), 0
            self.sizes.append(size)
            self.align(which, array)
        self.spans.append((start, start + size, which, start - byte))
        return which, byte

    def begin(self, scope: dict[str, Any], steps: int) -> list[str]:
        lines = [
            f"if not values[{n}].flags.writeable:\n        return REFUSED"
            for n in sorted(self.written)
            if 0 <= n < self.first
        ]
        for k, (shape, dtype, small) in enumerate(self.layouts):
            scope |= {f"shape{k}": shape, f"dtype{k}": dtype}
            scope[f"empty{k}"] = np.empty if small else pool.host_pool.empty
            lines.append(f"r{k} = empty{k}(shape{k}, dtype{k})")
        scope |= {"empty": pool.host_pool.empty, "byte": np.uint8, "kept": self.kept}
        for k, size in enumerate(self.sizes):
            scope[f"size{k}"] = (size,)
            lines.append(f"s{k} = empty(size{k}, byte)")
        return lines

    def passed(self) -> str:
        made = [f"r{k}, " for k in range(len(self.layouts))]
        made += [f"s{k}, " for k in range(len(self.sizes))]
        return f"values + ({''.join(made)})" if made else "values"

    def results(self, result: Any, scope: dict[str, Any]) -> list[str]:
        count = len(self.layouts)
        if not self.written.issuperset(range(self.first, self.first + count)):
            raise Unsuitable("a result that no launch wrote")
        if isinstance(result, np.generic):
            return ["r0[()]"]
        found = []
        for k, axes in enumerate(self.orders):
            plain = axes == tuple(range(len(axes)))
            scope[f"axes{k}"] = axes
            found.append(f"r{k}" if plain else f"r{k}.transpose(axes{k})")
        return found

    def dtypes(self) -> list[Any]:
        return [dtype for _, dtype, _ in self.layouts]


def in_memory(array: np.ndarray) -> tuple[int, ...]:
    """The axes of an array as they lie in memory, the one with the longest steps first."""
    axes = range(array.ndim)
    return tuple(
        axes if array.flags.c_contiguous else sorted(axes, key=lambda d: -array.strides[d])
    )


def new_arrays(result: Any, recorded: Recorder) -> list[np.ndarray]:
    """The arrays that a call made for its result.

    Raises:
        Unsuitable: they cannot be made again.
    """
    if isinstance(result, np.generic):
        return [_number(result, recorded)]
    arrays = list(result) if type(result) in (tuple, list) else [result]
    if any(type(v) is not np.ndarray or not v.size for v in arrays):
        raise Unsuitable("a result that is no new array")
    if not all(v.transpose(in_memory(v)).flags.c_contiguous for v in arrays):
        raise Unsuitable("a result with gaps in its memory")
    if any(meet(v, w) for n, v in enumerate(arrays) for w in arrays[:n]):
        raise Unsuitable("results that share memory")
    return arrays


def _number(result: np.generic, recorded: Recorder) -> np.ndarray:
    """The array of rank 0 that a call took its result from; 0 and 1 may be what the host computed.

    Raises:
        Unsuitable: there is none, or the host may have gone on computing.
    """
    for step in reversed(recorded.steps):
        for n in step.prepared.outputs if isinstance(step, Launch) else ():
            base = step.leaves[n].base
            if type(base) is np.ndarray and base.ndim == 0 and base.dtype == result.dtype:
                plain = result.tobytes() not in [np.array(v, base.dtype).tobytes() for v in (0, 1)]
                if plain and base.tobytes() == result.tobytes():
                    return base
                raise Unsuitable("a number that the host may have computed")
    raise Unsuitable("a number that no launch wrote")
