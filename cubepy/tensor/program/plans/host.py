"""A program's call on the host: NumPy arrays, and an arena that calls lend one another."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.memory import pool
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.mapped import AVAILABLE, Piece, of_piece, without_pages
from cubepy.runtime.memory.pool import POOLED
from cubepy.runtime.memory.spans import beginning, extent, meet
from cubepy.runtime.replay.host import host_replay
from cubepy.runtime.replay.plan import Address, Plan
from cubepy.runtime.replay.record import Launch, Mark, Recorder
from cubepy.runtime.tensor_map import ArrayMap
from cubepy.tensor.program.plans import results
from cubepy.tensor.program.plans.arena import LINE, Buffer, Lifetime, Spare, lodged, planned
from cubepy.tensor.program.plans.operands import ProgramOperands, Result, Span

NUMBERS = frozenset((bool, int, float))
"""What half of the arguments of launches are."""
LODGED = pool.POOLED
"""Bytes of results, and of what may lie in their memory before."""
OFFSET = 16
"""Small memory begins so many bytes after a line of the cache while a program is recorded, so that
no launch counts on more: results are NumPy's, and those begin anywhere."""


class Recording(Recorder):
    """The launches of a program; it knows which memory holds nothing until a launch writes it.

    Attributes:
        fresh: that memory: bytes by address.
        kept: that memory.
        asked: shape, dtype and bytes of each.
        pieces: whether some of it is mapped by itself.
    """

    marks = True

    def __init__(self) -> None:
        super().__init__()
        self.fresh: dict[int, int] = {}
        self.kept: list[Any] = []
        self.asked: list[tuple[Any, ...]] = []
        self.mapped, self.pieces = 0, False

    def memory(self, shape: tuple[int, ...], dtype: Any, size: int) -> Any:
        self.asked.append((shape, dtype, size))
        if size >= pool.POOLED and AVAILABLE:
            pool.host_pool.check(size, self.mapped)
            piece = Piece(size, len(self.kept), self.released)
            self.mapped += size
            self.pieces = True
            self.fresh[beginning(piece.lasting)] = size
            self.kept.append(piece.lasting)  # so that nothing else gets the addresses
            return of_piece(piece, shape, dtype)
        if size >= pool.POOLED:
            size, owner, _ = pool.host_pool.kinds.get(size) or pool.host_pool.kind(size)
            made = np.ndarray(shape, dtype, owner(pool.host_pool.take(size)))
        else:
            raw = np.empty(size + 2 * LINE, np.uint8)
            at = beginning(raw)
            offset = (OFFSET - at) % LINE
            made = np.ndarray(shape, dtype, raw, offset)
            self.fresh[at + offset] = size
            self.kept.append(made)
            return made
        self.fresh[beginning(made)] = size
        self.kept.append(made)
        return made

    def released(self, size: int) -> None:
        """No array uses so many bytes any more."""
        self.mapped -= size

    def forget(self) -> None:
        """Let go of all that was seen: pieces that are results know their recording."""
        self.steps, self.constants, self.flags = [], [], {}
        self.kept, self.asked, self.fresh = [], [], {}

    def launch(self, prepared: Any, leaves: Sequence[Any]) -> None:
        given = [*map(without_pages, leaves)] if self.pieces else [*leaves]
        self.steps.append(Launch(prepared, given))


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


class HostProgram(ProgramOperands):
    """The arrays of a program's call on the host.

    Args:
        recorded: its launches.
        inputs: arrays that share no memory.
        outputs: what it gave.

    Attributes:
        memory: for each new memory of results: its bytes, and whether it has to begin at a line.
        leaves: of arrays of launches, by identity: where they begin, the span of an input that they
            lie in, or the buffer.
        pieces: where buffers lie, by their addresses.
        frames: arenas that no call uses.

    Raises:
        Unsuitable: something that no launch wrote is read, or given.
    """

    recorded: Recording

    def __init__(
        self, recorded: Recording, inputs: Sequence[np.ndarray], outputs: Sequence[Any]
    ) -> None:
        if recorded.allocations:
            raise Unsuitable("memory of a GPU")
        super().__init__(host_replay().table(), recorded, inputs)
        self.frames: list[np.ndarray] = []
        self.leaves: dict[int, tuple[int, Span | None, int]] = {}
        self.pieces: dict[int, Span] = {}
        buffers = self.buffers()
        self.begun = sorted(buffers)
        self.memory: list[tuple[int, bool]] = []
        mine: dict[int, int] = {}
        self.outputs = [self.result(v, buffers, mine) for v in outputs]
        between = [b for at, b in buffers.items() if at not in mine]
        between = self.lodged(between, [buffers[at] for at in mine])
        offsets, self.arena = planned(between)
        self.lifetimes = [
            Lifetime(o, b.size, b.first, b.last) for b, o in zip(between, offsets, strict=True)
        ]
        arena = len(inputs) + len(self.memory)
        for at, n in mine.items():
            self.lies(buffers[at], len(inputs) + n, 0)
        for b, offset in zip(between, offsets, strict=True):
            self.lies(b, arena, offset)
        self.spans += self.pieces.values()
        self.sort_spans()

    def lies(self, b: Buffer, which: int, offset: int) -> None:
        """A buffer is so many bytes from the start of an operand."""
        self.pieces[b.start] = b.start, b.start + b.size, which, b.start - offset

    def addresses(self, leaves: Sequence[Any], writes: Sequence[int], flag: Any) -> list[Address]:
        if flag is not None:
            return super().addresses(leaves, writes, flag)
        found: list[Address] = []
        for n, v in enumerate(leaves):
            if type(v) in NUMBERS:
                found.append(None)
                continue
            leaf = self.leaves.get(id(v))
            if leaf is None or n in writes:
                found.append(self.locate(v, n in writes))
                continue
            start, span, at = leaf
            _, _, which, origin = self.pieces[at] if span is None else span
            found.append(None if which is None else (which, start - origin))
        return found

    def locate(self, value: Any, writes: bool) -> Address:
        leaf = self.leaves.get(id(value))
        if leaf is None:
            return super().locate(value, writes)
        start, found, at = leaf
        first, _, which, origin = self.pieces[at] if found is None else found
        if writes and first in self.read_only:
            raise Unsuitable("an input that is written")
        return None if which is None else (which, start - origin)

    def forget(self) -> None:
        super().forget()
        self.leaves, self.pieces = {}, {}

    def lodged(self, between: list[Buffer], results: list[Buffer]) -> list[Buffer]:
        """Let large buffers lie in memory of large results until those are written (by a loop:
        until it begins, since what its turns write stays); the buffers that are left.
        """
        spare = [Spare(b.size, self.outside(b.first)) for b in results if b.size >= LODGED]
        which = [n for n, b in enumerate(results) if b.size >= LODGED]
        large = [b for b in between if b.size >= LODGED]
        found = lodged(large, spare) if spare else {}
        for n, (k, offset) in found.items():
            self.lies(large[n], len(self.inputs) + which[k], offset)
        gone = {id(large[n]) for n in found}
        return [b for b in between if id(b) not in gone]

    def buffers(self) -> dict[int, Buffer]:
        """The memory that launches write, by address."""
        found: dict[int, Buffer] = {}
        given = sorted(self.recorded.fresh.items())
        starts = [at for at, _ in given]
        known_leaves, flags = self.leaves, self.recorded.flags
        orders: dict[int, tuple[Collection[int], list[int]]] = {}
        for n, step in enumerate(self.recorded.steps):
            writes: Collection[int] = ()
            leaves: list[Any] = []
            order: Sequence[int] = (0,)
            if isinstance(step, Launch):
                leaves = step.leaves
                if id(step.prepared) not in orders:
                    orders[id(step.prepared)] = self.ordered(step)
                writes, order = orders[id(step.prepared)]
            elif not isinstance(step, Mark):
                raise Unsuitable("a copy or a fill")
            elif step.array is not None:
                leaves = [step.array]
            else:
                continue
            flag = flags.get(n)
            for k in order:
                leaf = leaves[k]
                seen = known_leaves.get(id(leaf))
                if seen is not None and leaf is not flag:
                    if seen[1] is not None:
                        continue
                    buffer = found.get(seen[2])
                    if buffer is not None:
                        buffer.last = n
                        continue
                array = leaf.array if isinstance(leaf, ArrayMap) else leaf
                if leaf is flag or type(array) is not np.ndarray or not array.size:
                    continue
                start, (low, high) = address(array), extent(array)
                span = self.span(start + low, start + high)
                if span is not None:
                    self.leaves[id(array)] = start, span, 0
                    continue
                near = bisect_right(starts, start + low) - 1
                at, size = given[near] if near >= 0 else (0, 0)
                fresh = start + low < at + size
                if not fresh:
                    root = whole(array)
                    at, size = beginning(root), root.nbytes
                if start + high > at + size:
                    raise Unsuitable("memory of which only a part is known")
                self.leaves[id(array)] = start, None, at
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

    def ordered(self, step: Launch) -> tuple[Collection[int], list[int]]:
        """The leaves that a launch writes, and those that are arrays: what it only reads comes
        first.
        """
        writes = frozenset(self.table.writes(step.prepared))
        arrays = [k for k, v in enumerate(step.leaves) if isinstance(v, (np.ndarray, ArrayMap))]
        return writes, sorted(arrays, key=lambda k: k in writes)

    def outside(self, at: int) -> int:
        """A step, or the beginning of the outermost loop that it is in."""
        begun: list[int] = []
        for n, step in enumerate(self.recorded.steps[:at]):
            if isinstance(step, Mark) and step.kind == "loop":
                begun.append(n)
            elif isinstance(step, Mark) and step.kind == "again":
                begun.pop()
        return begun[0] if begun else at

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
        known = None if array.size else self.known(array)
        if known is not None:
            return known
        near = bisect_right(self.begun, start + low) - 1
        at = self.begun[near] if near >= 0 else start
        if at in buffers and start + high <= at + buffers[at].size:
            if at not in mine:
                mine[at] = len(self.memory)
                small = buffers[at].size < pool.POOLED
                self.memory.append((buffers[at].size, at % LINE == 0 and small))
            return Result("new", mine[at], array, start - at)
        raise Unsuitable("a result that no launch wrote")

    @staticmethod
    def small(size: int) -> Callable[..., np.ndarray]:
        """What makes an array of so many bytes."""
        return np.empty if size < POOLED else pool.host_pool.empty

    def call(
        self,
        plan: Plan,
        names: Sequence[str],
        scope: dict[str, Any],
        view: Callable[[int, str], str],
        done: Sequence[str] = (),
        reused: Any = None,
    ) -> tuple[list[str], list[str]]:
        go, table, alive = plan.table.ready()
        plan.table.clear()
        scope |= {"go": go, "table": table, "alive": (alive, self.kept), "ndarray": np.ndarray}
        scope |= {"frames": self.frames, "launches": plan.launches}
        given, middle, views = list(names), list[str](), list[str]()
        separate, fresh = results.separate(self), list[str]()
        for k, ((size, line), users) in enumerate(
            zip(self.memory, results.users(self), strict=True)
        ):
            array = self.outputs[users[0]].array
            if users[0] in separate:
                make, n = self.small(size), users[0]
                scope |= {f"empty{k}": make, f"form{k}": array.shape, f"kind{k}": array.dtype}
                lines = middle if reused is None or n not in reused.outputs else fresh
                lines.append(f"r{n} = empty{k}(form{k}, kind{k})")
                given.append(f"r{n}")
                continue
            scope[f"make{k}"] = maker(size, line)
            middle.append(f"m{k} = make{k}()")
            for n in users:
                r = self.outputs[n]
                form = (r.array.shape, r.array.dtype, r.offset, r.array.strides)
                scope |= {f"form{n}_{i}": part for i, part in enumerate(form)}
                views.append(f"r{n} = ndarray(form{n}_0, form{n}_1, m{k}, form{n}_2, form{n}_3)")
            given.append(f"m{k}")
        if fresh:
            scope["reused"] = reused
            middle += ["taken = reused.take()", "if taken is None:", *[f"    {t}" for t in fresh]]
            middle += ["else:", f"    {reused.names}= taken"]
        for n, r in enumerate(self.outputs):
            if r.kind == "input":
                views.append(f"r{n} = {view(n, names[r.of])}")
            elif r.kind == "constant":
                scope[f"r{n}"] = r.array
        if plan.steps:
            size = self.arena
            lent = 0 < size < POOLED  # a larger one is the pool's, which all programs share
            if size:
                scope["new_frame"] = lambda: aligned(size)
                kept = "frames.pop() if frames else " if lent else ""
                middle.append(f"frame = {kept}new_frame()")
                given.append("frame")
            middle.append(f"code = go(table, ({''.join(f'{name}, ' for name in given)}))")
            if lent:
                middle.append("frames.append(frame)")
            middle += [*done, "if code:", "    return again(code, args, kwargs)"]
            middle.append("counters.launches += launches")
        return middle, views


class HostCalls:
    """How calls of a program on the host are recorded.

    Args:
        names: of the arrays of a call.
        written: which of them ops write in place.

    Attributes:
        inputs: the names.
    """

    def __init__(self, names: Sequence[str], written: Collection[int]) -> None:
        self.inputs, self.written = names, written

    def begin(self, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], Recorder]:
        """The arrays of a call, of which none shares memory with another, and what records it."""
        self.arrays, self.recorded = disjoint(arrays), Recording()
        return self.arrays, self.recorded

    def operands(self, outputs: Sequence[Any]) -> HostProgram:
        """Where the arrays of the call were."""
        found = HostProgram(self.recorded, self.arrays, outputs)
        found.write_inputs(self.written)
        return found

    def forget(self) -> None:
        """Let go of the call that was recorded."""
        self.recorded.forget()
        self.arrays, self.recorded = [], Recording()


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
