"""Where the arrays of a program are: its inputs, its results, and one arena for all between.

A record of the program's launches is read twice: first to find the memory that they write and when
each piece is used, then to say of every address which operand it is in. An operand is an array of
the tuple that the machine code gets: the inputs, memory for results, the arena.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.memory import pool
from cubepy.runtime.memory.mapped import AVAILABLE, Piece, of_piece, without_pages
from cubepy.runtime.memory.spans import beginning, extent, meet
from cubepy.runtime.replay.host import host_replay
from cubepy.runtime.replay.plan import Address, Operands
from cubepy.runtime.replay.record import Launch, Mark, Recorder
from cubepy.runtime.tensor_map import ArrayMap
from cubepy.tensor.program.arena import LINE, Buffer, Lifetime, planned

OFFSET = 16
"""Small memory begins so many bytes after a line of the cache while a program is recorded, so that
no launch counts on more: results are NumPy's, and those begin anywhere."""


class Recording(Recorder):
    """The launches of a program; it knows which memory holds nothing until a launch writes it.

    Attributes:
        fresh: that memory: bytes by address.
    """

    marks = True

    def __init__(self) -> None:
        super().__init__()
        self.fresh: dict[int, int] = {}
        self.kept: list[Any] = []
        self.mapped = 0

    def memory(self, shape: tuple[int, ...], dtype: Any, size: int) -> Any:
        if size >= pool.POOLED and AVAILABLE:
            pool.host_pool.check(size, self.mapped)
            piece = Piece(size, len(self.kept), self.released)
            self.mapped += size
            self.fresh[beginning(piece.lasting)] = size
            self.kept.append(piece.lasting)  # so that nothing else gets the addresses
            return of_piece(piece, shape, dtype)
        if size >= pool.POOLED:
            size, owner = pool.host_pool.kinds.get(size) or pool.host_pool.kind(size)
            made = np.ndarray(shape, dtype, owner(pool.host_pool.take(size)))
        else:
            raw = np.empty(size + 2 * LINE, np.uint8)
            made = np.ndarray(shape, dtype, raw, (OFFSET - beginning(raw)) % LINE)
        self.fresh[beginning(made)] = size
        self.kept.append(made)
        return made

    def released(self, size: int) -> None:
        """No array uses so many bytes any more."""
        self.mapped -= size

    def launch(self, prepared: Any, leaves: Sequence[Any]) -> None:
        super().launch(prepared, [without_pages(leaf) for leaf in leaves])


@dataclass
class Result:
    """An output of a program.

    Attributes:
        kind: "new" (memory of the call), "input" (a view of an input) or "constant".
        of: which memory, which input, or the array.
        array: as it was when it was recorded.
        offset: bytes from the start of the memory.
    """

    kind: str
    of: Any
    array: np.ndarray
    offset: int = 0


def whole(array: np.ndarray) -> np.ndarray:
    """The array whose memory an array is a view of."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def disjoint(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays of which none shares memory with another one: as they are, or copies with the same
    strides.
    """
    spans = [beginning(a) + end for a in arrays for end in extent(a)]
    order = sorted(range(len(arrays)), key=lambda n: spans[2 * n])
    ends = [spans[2 * n + 1] for n in order]
    if all(ends[k] <= spans[2 * n] for k, n in enumerate(order[1:])):
        return list(arrays)
    found: list[np.ndarray] = []
    for array in arrays:
        if any(meet(array, other) for other in found):
            low, high = extent(array)
            raw = np.empty(high - low, np.uint8)
            copy = np.ndarray(array.shape, array.dtype, raw, -low, array.strides)
            copy[...] = array
            array = copy
        found.append(array)
    return found


class ProgramOperands(Operands):
    """The arrays of a program's call: inputs, memory of results, the arena.

    Args:
        recorded: its launches.
        inputs: arrays that share no memory.
        outputs: what it gave.

    Attributes:
        arena: bytes of the arena.
        lifetimes: what is in the arena, and when.
        results: what the outputs are.
        memory: for each new memory of results: its bytes, and whether it has to begin at a line.

    Raises:
        Unsuitable: something that no launch wrote is read, or given.
    """

    def __init__(
        self, recorded: Recording, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        if recorded.allocations:
            raise Unsuitable("memory of a GPU")
        self.recorded, self.inputs = recorded, inputs
        super().__init__(host_replay().table(), list(enumerate(inputs)), (), recorded.constants)
        self.given, self.kept = (), [*recorded.constants]  # what is only read may overlap
        self.starts, self.order = self.sorted_spans()
        buffers = self.buffers()
        self.memory: list[tuple[int, bool]] = []
        mine: dict[int, int] = {}
        self.outputs = [self.result(v, buffers, mine) for v in outputs]
        between = [b for at, b in buffers.items() if at not in mine]
        offsets, self.arena = planned(between)
        self.lifetimes = [
            Lifetime(o, b.size, b.first, b.last) for b, o in zip(between, offsets, strict=True)
        ]
        arena = len(inputs) + len(self.memory)
        for at, n in mine.items():
            b = buffers[at]
            self.spans.append((b.start, b.start + b.size, len(inputs) + n, b.start))
        for b, offset in zip(between, offsets, strict=True):
            self.spans.append((b.start, b.start + b.size, arena, b.start - offset))
        self.starts, self.order = self.sorted_spans()

    def sorted_spans(self) -> tuple[list[int], list[tuple[int, int, int | None, int]]]:
        """The spans by their first bytes."""
        order = sorted(s for s in self.spans if s[0] < s[1])
        return [s[0] for s in order], order

    def span(self, first: int, behind: int) -> tuple[int, int, int | None, int] | None:
        """The span that bytes lie in; None where nothing is known of them."""
        n = bisect_right(self.starts, first) - 1
        if n >= 0 and first < self.order[n][1]:
            if behind <= self.order[n][1]:
                return self.order[n]
            raise Unsuitable("memory of which only a part is known")
        if n + 1 < len(self.order) and self.starts[n + 1] < behind:
            raise Unsuitable("memory of which only a part is known")
        return None

    def buffers(self) -> dict[int, Buffer]:
        """The memory that launches write, by address."""
        found: dict[int, Buffer] = {}
        given = sorted(self.recorded.fresh.items())
        starts = [at for at, _ in given]
        for n, step in enumerate(self.recorded.steps):
            writes: set[int] = set()
            leaves: list[Any] = []
            if isinstance(step, Launch):
                writes, leaves = set(self.table.writes(step.prepared)), step.leaves
            elif not isinstance(step, Mark):
                raise Unsuitable("a copy or a fill")
            elif step.array is not None:
                leaves = [step.array]
            flag = self.recorded.flags.get(n)
            for k, leaf in sorted(enumerate(leaves), key=lambda one: one[0] in writes):
                array = leaf.array if isinstance(leaf, ArrayMap) else leaf
                if leaf is flag or type(array) is not np.ndarray or not array.size:
                    continue
                start, (low, high) = beginning(array), extent(array)
                if self.span(start + low, start + high) is not None:
                    continue
                near = bisect_right(starts, start + low) - 1
                fresh = near >= 0 and start + low < sum(given[near])
                root = whole(array)
                at, size = given[near] if fresh else (beginning(root), root.nbytes)
                known = found.get(at)
                if known is not None:
                    known.last = n
                elif k not in writes:
                    raise Unsuitable("memory that no launch wrote")
                elif not fresh and (start != at or array.nbytes != size):
                    raise Unsuitable("memory of which a launch wrote only a part")
                else:
                    found[at] = Buffer(at, size, n, n)
        self.through_loops(found.values())
        return found

    def through_loops(self, buffers: Iterable[Buffer]) -> None:
        """What is there before or behind a loop, and used in it, is there in all of it."""
        begun: list[int] = []
        for n, step in enumerate(self.recorded.steps):
            if isinstance(step, Mark) and step.kind == "loop":
                begun.append(n)
            elif isinstance(step, Mark) and step.kind == "again":
                loop = begun.pop()
                for b in buffers:
                    if b.first < loop <= b.last or b.first <= n < b.last:
                        b.first, b.last = min(b.first, loop), max(b.last, n)

    def result(self, array: Any, buffers: dict[int, Buffer], mine: dict[int, int]) -> Result:
        """What an output is; memory that is written for it becomes that of a result."""
        if type(array) is not np.ndarray:
            raise Unsuitable(f"a result that is {type(array).__name__}")
        start, (low, high) = beginning(array), extent(array)
        if array.size and (found := self.span(start + low, start + high)) is not None:
            if found[2] is not None:
                return Result("input", found[2], array)
            return Result("constant", array, array)
        for n, given in enumerate(self.inputs):
            if given is array:
                return Result("input", n, array)
        if array.size == 0:
            return Result("constant", array, array)
        for at, b in buffers.items():
            if at <= start + low and start + high <= at + b.size:
                if at not in mine:
                    mine[at] = len(self.memory)
                    small = b.size < pool.POOLED
                    self.memory.append((b.size, at % LINE == 0 and small))
                return Result("new", mine[at], array, start - at)
        raise Unsuitable("a result that no launch wrote")

    def forget(self) -> None:
        """Let go of the arrays of the call that was recorded."""
        self.recorded, self.inputs, self.outputs, self.spans = Recording(), (), [], []

    @staticmethod
    def small(size: int) -> Callable[..., np.ndarray]:
        """What makes an array of so many bytes."""
        return np.empty if size < pool.POOLED else pool.host_pool.empty

    def locate(self, value: Any, writes: bool) -> Address:
        array = value.array if isinstance(value, ArrayMap) else value
        if type(array) is not np.ndarray:
            return super().locate(value, writes)
        start, (low, high) = beginning(array), extent(array)
        if low == high:
            return None  # nothing is read there
        found = self.span(start + low, start + high)
        if found is None:
            raise Unsuitable("memory that nobody gave")
        which, origin = found[2:]
        if writes and (which is None or which < len(self.inputs)):
            raise Unsuitable("an input that is written")
        return None if which is None else (which, start - origin)


def aligned(size: int) -> np.ndarray:
    """So many bytes that begin at a line of the cache."""
    if size >= pool.POOLED:
        return pool.host_pool.empty((size,), np.uint8)
    raw = np.empty(size + LINE, np.uint8)
    at = -beginning(raw) % LINE
    return raw[at : at + size]


def maker(size: int, line: bool) -> Callable[[], np.ndarray]:
    """What makes memory for results."""
    if line:
        return lambda: aligned(size)
    shape, byte = (size,), np.dtype(np.uint8)
    return lambda: pool.host_pool.empty(shape, byte)
