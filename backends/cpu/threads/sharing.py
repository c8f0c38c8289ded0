"""Machine code that shares the cubes of a launch among threads, written with llvmlite alone.

Cubes are cut into pieces, and each thread owns neighbouring ones. It does these first, so that the
same thread writes the same part of a result in every call and finds it in its core's caches. Then
it helps: it goes around and takes what others have not begun, so that a thread that is held up, or
never came, does not hold up the launch. Threads begin at different places among their own pieces:
often all threads read the same (a product's second matrix), in the order of their pieces, and cores
that ask for one line at the same time wait for each other.

Words of a job, all int64; a counter has a line of the caches to itself, and the next, which CPUs
fetch with it:

    0 to LINE           entry, cubes, pieces, threads, arguments
    LINE * (1 + t) ...  of thread t: how many of its pieces were taken, how many it has, the first
                        one, where it begins
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.word_code import WordCode, number, word

LINE = 16
SHARE, ALONE, WORK = "cubepy_share", "cubepy_share_alone", "cubepy_work"
BUILTIN = "_builtin"
LOOP = "loop"
ARGUMENTS = 6
nothing = ir.VoidType()

Start = Callable[["Code", Any, Any], None]
"""`start(code, job, threads)` writes what makes `work(thread, job)` run on every thread, and waits
for all.
"""


class Code(WordCode):
    """A module while it is written; numbers are int64, and so are addresses."""

    def __init__(self) -> None:
        super().__init__(SHARE)
        self.here: dict[str, Any] = {}

    def function(self, name: str, arguments: int, gives: Any = None) -> Any:
        """Begin a function of words."""
        made = ir.Function(self.module, ir.FunctionType(gives or nothing, [word] * arguments), name)
        self.b, self.here = ir.IRBuilder(made.append_basic_block()), {}
        return made

    def known(self, name: str) -> Any:
        """An address that is known when the module is loaded; a function reads it once, before its
        loops.
        """
        if name not in self.here:
            with self.b.goto_entry_block():
                self.here[name] = super().known(name)
        return self.here[name]

    def address(self, words: Any, which: Any) -> Any:
        """The pointer to one of the words at an address."""
        return self.b.inttoptr(self.b.add(words, self.b.mul(which, number(8))), word.as_pointer())

    def cut(self, part: Any, of: Any, among: Any) -> Any:
        """Where a part begins when `of` things are cut into `among` parts."""
        return self.b.sdiv(self.b.mul(part, of), among)

    @contextmanager
    def repeat(self) -> Iterator[Any]:
        """What is written inside is repeated until it branches to what this gives."""
        with self.repeat_counted() as (_, after):
            yield after

    @contextmanager
    def repeat_counted(self) -> Iterator[tuple[Any, Any]]:
        """The same; gives how often it was repeated, too."""
        b, before = self.b, self.b.block
        inside, after = b.append_basic_block(), b.append_basic_block()
        b.branch(inside)
        b.position_at_end(inside)
        count = b.phi(word)
        count.add_incoming(number(0), before)
        yield count, after
        count.add_incoming(b.add(count, number(1)), b.block)
        b.branch(inside)
        b.position_at_end(after)

    @contextmanager
    def count(self, limit: Any) -> Iterator[Any]:
        """What is written inside runs for 0, 1, ... below a limit, which is at least 1."""
        b, before = self.b, self.b.block
        inside, after = b.append_basic_block(), b.append_basic_block()
        b.branch(inside)
        b.position_at_end(inside)
        k = b.phi(word)
        k.add_incoming(number(0), before)
        yield k
        following = b.add(k, number(1))
        k.add_incoming(following, b.block)
        b.cbranch(b.icmp_signed("<", following, limit), inside, after)
        b.position_at_end(after)

    def branch_if(self, condition: Any, to: Any) -> None:
        """Branch to a block where a condition holds."""
        stay = self.b.append_basic_block()
        self.b.cbranch(condition, to, stay)
        self.b.position_at_end(stay)

    def work(self) -> None:
        """`work(thread, job)`: what one thread does."""
        thread, job = self.function(WORK, 2).args
        b = self.b
        entry, cubes, pieces, threads, arguments = (
            b.load(self.address(job, number(n))) for n in range(5)
        )
        with self.count(threads) as step:
            whose = b.srem(b.add(thread, step), threads)
            at = b.mul(b.add(whose, number(1)), number(LINE))
            counter = self.address(job, at)
            count, first, begin = (
                b.load(self.address(job, b.add(at, number(n)))) for n in range(1, 4)
            )
            with (
                self.repeat() as over
            ):  # look before taking: what is only read stays in other cores' caches
                self.branch_if(
                    b.icmp_signed(">=", b.load_atomic(counter, "monotonic", 8), count), over
                )
                taken = b.atomic_rmw("add", counter, number(1), "monotonic")
                self.branch_if(b.icmp_signed(">=", taken, count), over)
                turned = b.add(taken, begin)
                around = b.select(b.icmp_signed("<", turned, count), number(0), count)
                piece = b.add(first, b.sub(turned, around))
                last = self.cut(b.add(piece, number(1)), cubes, pieces)
                cube = self.cut(piece, cubes, pieces)
                self.call_at(entry, cube, last, arguments, gives=nothing)
        b.ret_void()

    def share(self, name: str, start: Start) -> None:
        """`share(entry, cubes, pieces, threads, arguments, done)`: the whole launch."""
        entry, cubes, pieces, threads, arguments, done = self.function(name, ARGUMENTS).args
        b = self.b
        room = b.alloca(word, b.mul(b.add(threads, number(1)), number(LINE)))
        room.align = 64
        job = b.ptrtoint(room, word)
        for n, value in enumerate((entry, cubes, pieces, threads, arguments)):
            b.store(value, self.address(job, number(n)))
        with self.count(threads) as thread:
            first, end = (
                self.cut(thread, pieces, threads),
                self.cut(b.add(thread, number(1)), pieces, threads),
            )
            first = b.select(b.icmp_signed("<", first, done), done, first)
            count = b.sub(end, first)
            at = b.mul(b.add(thread, number(1)), number(LINE))
            for n, value in enumerate((number(0), count, first, self.cut(thread, count, threads))):
                b.store(value, self.address(job, b.add(at, number(n))))
        start(self, job, threads)
        b.ret_void()

    def builtin(self, name: str) -> None:
        """`share` as Python calls it; other threads go on meanwhile."""
        _, values, _ = self.function(name + BUILTIN, 3, word).args
        b = self.b
        words = [self.python("PyLong_AsLongLong", self.load(values, n)) for n in range(ARGUMENTS)]
        thread = self.python("PyEval_SaveThread")
        b.call(self.module.get_global(name), words)
        self.python("PyEval_RestoreThread", thread, gives=nothing)
        b.ret(self.python("PyLong_FromLongLong", number(0)))


def text(start: Start, more: Callable[[Code], None] | None = None) -> str:
    """The functions SHARE, and ALONE for one thread, as LLVM IR; with BUILTIN behind their names as
    Python calls them.

    `share(entry, cubes, pieces, threads, arguments, done)` runs `cubes` cubes of the kernel at
    address `entry` in `pieces` pieces on `threads` threads; the first `done` pieces are done
    already. `more` writes what `start` needs.
    """
    code = Code()
    code.work()
    if more is not None:
        more(code)
    for name, way in ((SHARE, start), (ALONE, alone)):
        code.share(name, way)
        code.builtin(name)
    return code.text()


def alone(code: Code, job: Any, threads: Any) -> None:
    """Start nothing: this thread helps all others."""
    code.b.call(code.module.get_global(WORK), (number(0), job))


def by_numba(code: Code, job: Any, threads: Any) -> None:
    """Start by a function `loop(work, job, threads)`, whose address is known as LOOP (see
    `driver`).
    """
    work = code.b.ptrtoint(code.module.get_global(WORK), word)
    code.call_at(code.known(LOOP), work, job, threads, gives=nothing)
