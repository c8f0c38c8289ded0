"""Machine code that replays launches on arrays of the host (see `llvm.replay_table`), written with
llvmlite alone.

A call with one table and one tuple of arrays does what takes Python a microsecond for every launch.
An operand is an array of the tuple (its number), or an address that stands in one (which, from 1
on, in the bits from PART on). The head of a table is the address of the parallel driver, and
the words of scratch memory, which is on the stack. Rows of this backend are:

    scratch     word of the blocks, byte of the scratch memory: there goes its address
    flags       word of the blocks, another one, which is a flag: there goes its address
    steps       number, entry, cubes, word of its block, chunks (0: this thread alone), threads,
        faults, word of a flag that must be zero then (-1: none)

Where the entry is 0, a step says which row comes next:

    0           jump: rows from here
    1           fork: word of the address of a byte, rows from here if that is zero
    2           again: word of a counter, rows from here to the first, words of pairs (word of an
        address, bytes that it moves on each time): the first, one past the last. Behind the counter
        are how often, a zero, and the address of a byte that ends the loop (0: there is none)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from cubepy.backends.cpu.threads import choice
from cubepy.backends.llvm.machine_code import DATA, ITEMS, REFUSED, loaded
from cubepy.backends.llvm.replay_table import LINE, Address, ReplayCode, Table
from cubepy.backends.llvm.word_code import number
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.memory.spans import beginning
from cubepy.runtime.replay.plan import PART

SYMBOL = "cubepy_replay"
KINDS = {"scratch": 2, "flags": 2, "steps": 8}
DRIVER, SCRATCH, HEAD = range(3)  # words of the head
JUMP, FORK, AGAIN = range(3)  # steps that are no launches
MOST = 4096  # bytes of scratch memory on the stack


class _Function(ReplayCode):
    """The function while it is written."""

    def __init__(self) -> None:
        super().__init__(SYMBOL, 2, HEAD, KINDS)
        self.own = self.room(self.load(self.table, SCRATCH))

    def operand(self, which: Any) -> Any:
        """The address of the elements of an array of the tuple, or one that stands in them."""
        b, items = self.b, self.b.add(self.inside.args[1], number(ITEMS))
        item, part = b.and_(which, number((1 << PART) - 1)), b.ashr(which, number(PART))
        at = self.load(b.add(self.load(self.word_at(items, item)), number(DATA)))
        whole = b.icmp_signed("==", part, number(0))
        word = self.load(b.select(whole, self.table, self.word_at(at, b.sub(part, number(1)))))
        return b.select(whole, at, word)

    def scratch(self, row: Any) -> None:
        """Where the address of scratch memory goes."""
        at = self.word_at(self.block, self.load(row))
        self.store(at, self.b.add(self.own, self.load(row, 1)))

    def flags(self, row: Any) -> None:
        """Where the address of a flag goes."""
        at, flag = (self.word_at(self.block, self.load(row, n)) for n in (0, 1))
        self.store(at, flag)

    def steps(self, row: Any) -> None:
        """Run a launch, or say which row comes next."""
        b, after = self.b, self.next_row
        with b.if_else(b.icmp_signed("==", self.load(row, 1), number(0))) as (control, launch):
            with control:
                self.control(row, after)
            with launch:
                self.run(row)

    def control(self, row: Any, after: Any) -> None:
        """Where it goes on: `after` is where that is kept."""
        b, load, kind = self.b, self.load, self.load(row, 2)

        def go(distance: Any) -> None:
            b.store(b.add(row, b.mul(distance, number(8 * KINDS["steps"]))), after)

        with b.if_then(b.icmp_signed("==", kind, number(JUMP))):
            go(load(row, 3))
        with b.if_then(b.icmp_signed("==", kind, number(FORK))):
            at = load(self.word_at(self.block, load(row, 3)))
            chosen = b.load(b.inttoptr(at, ir.IntType(8).as_pointer()))
            with b.if_then(b.icmp_signed("==", chosen, ir.Constant(ir.IntType(8), 0))):
                go(load(row, 4))
        with b.if_then(b.icmp_signed("==", kind, number(AGAIN))):
            counter = self.word_at(self.block, load(row, 3))
            done, end = b.add(load(counter), number(1)), load(counter, 3)
            end = b.select(b.icmp_signed("==", end, number(0)), b.add(counter, number(16)), end)
            ends = b.load(b.inttoptr(end, ir.IntType(8).as_pointer()))
            goes_on = b.icmp_signed("==", ends, ir.Constant(ir.IntType(8), 0))
            more = b.and_(b.icmp_signed("<", done, load(counter, 1)), goes_on)
            self.store(counter, b.select(more, done, number(0)))
            times = b.select(more, number(1), b.sub(number(1), done))  # else back to the start
            first, last = load(row, 5), load(row, 6)

            def move(pair: Any) -> None:
                at = self.word_at(self.block, load(pair))
                self.store(at, b.add(load(at), b.mul(load(pair, 1), times)))

            pairs = b.sdiv(b.sub(last, first), number(2))
            self.rows(self.word_at(self.block, first), pairs, 2, move)
            with b.if_then(more):
                go(load(row, 4))

    def run(self, row: Any) -> None:
        """Run a launch, and look at what it reports."""
        b, load, nothing = self.b, self.load, ir.VoidType()
        entry, cubes, chunks, threads = (load(row, n) for n in (1, 2, 4, 5))
        mine = self.word_at(self.block, load(row, 3))
        with b.if_else(b.icmp_signed("==", chunks, number(0))) as (alone, together):
            with alone:
                self.call_at(entry, number(0), cubes, mine, gives=nothing)
            with together:
                job = (entry, cubes, chunks, threads, mine, number(0))
                self.call_at(load(self.table, DRIVER), *job, gives=nothing)
        faults, judged = load(row, 6), load(row, 7)
        with b.if_then(b.icmp_signed("!=", faults, number(0))):
            self.leave(b.icmp_signed("!=", load(faults), number(0)), load(row))
        with b.if_then(b.icmp_signed(">=", judged, number(0))):
            raised = load(self.word_at(self.block, judged))
            self.refuse(b.icmp_signed("!=", raised, number(0)))

    def entry(self) -> None:
        """The function that Python calls; other threads go on meanwhile."""
        given = self.begin(SYMBOL).args[1]
        table = self.python("PyLong_AsLongLong", self.load(given))
        objects = self.load(given, 1)
        thread = self.python("PyEval_SaveThread")
        code = self.b.call(self.inside, (table, objects))
        self.python("PyEval_RestoreThread", thread, gives=ir.VoidType())
        self.b.ret(self.python("PyLong_FromLongLong", code))


def text() -> str:
    """The function `replay(table, tuple)` of Python's objects as LLVM IR.

    It gives 0, REFUSED with nothing done (or no more than steps up to a flag), or the number of a
    step, from 1, that reported a fault.
    """
    code = _Function()
    code.read()
    code.entry()
    return code.text()


@cache
def entry() -> Any:
    """The machine code for Python, or None.

    It reads tuples and arrays where the usual Python and NumPy keep them; None where they do not.
    """
    probe = (np.zeros(3), np.zeros(2))
    items = (ctypes.c_ssize_t * 2).from_address(id(probe) + ITEMS)
    if list(items) != [id(v) for v in probe]:
        return None
    at = [ctypes.c_ssize_t.from_address(id(v) + DATA).value for v in probe]
    if at != [v.__array_interface__["data"][0] for v in probe]:
        return None
    return loaded(SYMBOL, text, __file__)


class HostTable(Table):
    """A table of launches on the host."""

    def __init__(self) -> None:
        super().__init__(KINDS)
        self.taken, self.runners = 0, list[Any]()
        self.begun: list[tuple[int, int]] = []  # forks and loops: their rows, and a word or a count
        self.starts: list[
            list[tuple[int, int]]
        ] = []  # by row: addresses of arrays, and their words

    def scratch(self, size: int) -> int | None:
        """Take memory on the stack that only the launches see: at which byte it begins, or None
        where there is no more.
        """
        begin = self.taken
        if begin + size > MOST:
            return None
        self.taken += -(-size // LINE) * LINE
        return begin

    def launch(
        self, runner: Any, leaves: Sequence[Any], addresses: Sequence[Address | None], flag: Any
    ) -> None:
        """Add a launch (see `llvm.replay_table.Table`); a word before its block is the flag, so
        that every repetition has its own.
        """
        if not hasattr(runner, "step") or runner.untried:
            raise Unsuitable("a launch that still finds out whether threads pay")
        if flag is not None:
            self.words([0])
        begin = self.words(runner.words(leaves, addresses))
        self.step(*runner.step(begin), begin - 1 if flag is not None else -1)
        self.runners.append(runner)
        starts: list[tuple[int, int]] = []
        self.starts.append(starts)
        given = self.rows["operands"]
        for value, address, (slot, is_array, _) in zip(
            leaves, addresses, runner.slots, strict=True
        ):
            if self.begun and is_array and isinstance(value, np.ndarray):
                starts.append((beginning(value), begin + slot))
            if address is None:
                if is_array and value is flag:
                    self.rows["flags"].append((begin + slot, begin - 1))
            elif address[0] < 0:
                self.rows["scratch"].append((begin + slot, address[1]))
            else:
                given.append((begin + slot, *address))

    def mark(self, mark: Any, address: Address | None) -> None:
        rows = self.rows["steps"]
        here, words = len(rows), [JUMP, 1, 0, 0, 0, 0]
        if mark.kind == "fork":
            if address is None:
                raise Unsuitable("a branch that is always the same")
            at = self.words([0])
            self.put(at, *address)
            self.begun.append((here, at))
        elif mark.kind == "loop":
            self.begun.append((here, mark.times))
        elif mark.kind == "otherwise":
            fork, at = self.begun.pop()
            rows[fork] = (fork + 1, 0, FORK, at, here + 1 - fork, 0, 0, 0)
            self.begun.append((here, 0))
        elif mark.kind == "join":
            jump, _ = self.begun.pop()
            rows[jump] = (jump + 1, 0, JUMP, here - jump, 0, 0, 0, 0)
        else:
            loop, count = self.begun.pop()
            counter = self.words([0, count, 0, 0])
            if address is not None:
                self.put(counter + 3, *address)
            words = [AGAIN, counter, loop + 1 - here, *self.moved(mark.moves), 0]
        self.step(0, *words)
        self.runners.append(None)
        self.starts.append([])

    def moved(self, moves: Sequence[tuple[int, int, int, int]]) -> tuple[int, int]:
        """Where the pairs are that say which addresses a loop moves."""
        pairs = []
        for first, last, start, distance in moves:
            found = [w for at in self.starts[first:last] for one, w in at if one == start]
            if len(found) != 1:
                raise Unsuitable("a slice of a loop that is no array of one launch")
            pairs += [found[0], distance]
        at = self.words(pairs)
        return at, at + len(pairs)

    def ready(self) -> tuple[Callable[..., int], int, Any]:
        parallel = any(r is not None and r.parallel for r in self.runners)
        driver = choice.driver() if parallel else None
        table = self.laid_out([driver.address if driver else 0, self.taken // 8])
        go = entry()
        if driver is not None:
            go = driver.guarded(go)
        return go, ctypes.addressof(table), (table, self.runners)

    def failed(self, code: int) -> None:
        if code != REFUSED:
            self.runners[code - 1].report()
