"""Machine code that repeats the launches of a call on a GPU: one call from Python, however many launches.

Python needs half a microsecond to pass the arguments of a launch to the driver, and more to put addresses into blocks.
Here a table holds everything but the addresses and the stream. The code looks at the addresses, copies the blocks
onto its stack (threads share a table), puts the addresses in and calls the driver. Words of a table, all int64:

    context, rows of each kind below, addresses of functions
    rows of the kinds
    alignments  address, what its low seven bits must be
    overlaps    address, its first byte and one past the last, another one and its two: nothing may be in both
    relations   address, another one, bytes from it to that
    words       the blocks: they are copied
    places      word of the blocks, address, bytes from there
    maps        word where a tensor map begins, address, bytes from there
    parameters  word of the blocks at which each parameter of each launch begins
    steps       kind, function, three cubes, three units, bytes of shared memory, first parameter or word, configuration
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from llvmlite import ir

from cubepy.backends.cuda.native import driver
from cubepy.backends.cuda.native.tensor_maps import encoded
from cubepy.backends.cuda.run import F32, INTEGER, MAP_WORDS, CudaRunner
from cubepy.backends.llvm.machine_code import REFUSED, builtin, python_function
from cubepy.backends.llvm.word_code import WordCode
from cubepy.runtime.backend import Unsuitable

SYMBOL = "cubepy_cuda_replay"
ROWS = ("alignments", "overlaps", "relations", "words", "places", "maps", "parameters", "steps")
SIZES = (2, 6, 3, 1, 3, 3, 1, 11)
FUNCTIONS = (
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuTensorMapReplaceAddress",
)
HEAD = 1 + len(ROWS) + len(FUNCTIONS)
PLAIN, CONFIGURED, OTHER = range(3)  # kinds of steps
MOST = 64
"""Addresses that a call can have."""
_STREAM = 4  # the word of a configuration where the stream is
_LINE = 64  # tensor maps begin at multiples of it
_word, _int = ir.IntType(64), ir.IntType(32)


class _Function(WordCode):
    """The functions while they are written."""

    def __init__(self) -> None:
        self.module = ir.Module(SYMBOL)
        function = self.all = self.begin(f"{SYMBOL}_all", 3, "internal")
        self.table, self.stream, self.given = function.args

    def room(self, words: Any) -> Any:
        """The address of so many words on the stack."""
        made = self.b.alloca(_word, words)
        made.align = _LINE
        return self.b.ptrtoint(made, _word)

    def address(self, which: Any) -> Any:
        """One of the addresses that were given."""
        return self.load(self.word_at(self.given, which))

    def driver(self, address: Any, *arguments: Any, gives: Any = _int) -> Any:
        """Call a function by its address; arguments of 32 bits are those whose type says so."""
        kind = ir.FunctionType(gives, [a.type for a in arguments]).as_pointer()
        return self.b.call(self.b.inttoptr(address, kind), arguments)

    def functions(self, table: Any) -> list[Any]:
        """The addresses of functions of the driver."""
        return [self.load(table, 1 + len(ROWS) + n) for n in range(len(FUNCTIONS))]

    def entry(self) -> None:
        """The function that Python calls: it turns Python's numbers into words, and lets other threads go on.

        It works in the context of the table, and leaves that of the thread as it was.
        """
        function = self.begin(SYMBOL)
        b = self.b
        _, values, count = function.args
        words = self.room(count)

        def number(row: Any, n: Any) -> None:
            self.store(
                self.word_at(words, n),
                self.driver(python_function("PyLong_AsLongLong"), self.load(row), gives=_word),
            )

        self.rows(values, count, 1, number)
        thread = self.driver(python_function("PyEval_SaveThread"), gives=_word)
        given, table, own = (
            self.word_at(words, ir.Constant(_word, 2)),
            self.load(words),
            self.room(ir.Constant(_word, 1)),
        )
        current, push, pop = self.functions(table)[:3]
        self.store(own, ir.Constant(_word, 0))
        self.driver(current, own)
        elsewhere = b.icmp_signed("!=", self.load(own), self.load(table))
        with b.if_then(elsewhere):
            self.driver(push, self.load(table))
        code = b.call(self.all, (table, self.load(words, 1), given))
        with b.if_then(elsewhere):
            self.driver(pop, own)
        self.driver(python_function("PyEval_RestoreThread"), thread, gives=ir.VoidType())
        b.ret(self.driver(python_function("PyLong_FromLongLong"), code, gives=_word))


def text() -> str:
    """The function `(table, stream, addresses...)` of Python's numbers as LLVM IR.

    It gives 0, REFUSED with nothing done, or the driver's error above 32 bits of the number of a step, from 1.
    """
    f = _Function()
    b, load, table = f.b, f.load, f.table
    number = partial(ir.Constant, _word)
    counts = {name: load(table, 1 + n) for n, name in enumerate(ROWS)}
    launch, extended, replace = f.functions(table)[3:]
    block, parameters, code = f.room(counts["words"]), f.room(counts["parameters"]), b.alloca(_int)

    def alignment(row: Any, _: Any) -> None:
        low = b.and_(f.address(load(row)), number(127))
        f.leave(b.icmp_signed("!=", low, load(row, 1)), number(REFUSED))

    def overlap(row: Any, _: Any) -> None:
        first, second = f.address(load(row)), f.address(load(row, 3))
        one = b.icmp_signed("<", b.add(first, load(row, 1)), b.add(second, load(row, 5)))
        two = b.icmp_signed("<", b.add(second, load(row, 4)), b.add(first, load(row, 2)))
        f.leave(b.and_(one, two), number(REFUSED))

    def relation(row: Any, _: Any) -> None:
        apart = b.sub(f.address(load(row, 1)), f.address(load(row)))
        f.leave(b.icmp_signed("!=", apart, load(row, 2)), number(REFUSED))

    def copy(row: Any, n: Any) -> None:
        f.store(f.word_at(block, n), load(row))

    def place(row: Any, _: Any) -> None:
        f.store(f.word_at(block, load(row)), b.add(f.address(load(row, 1)), load(row, 2)))

    def tensor_map(row: Any, n: Any) -> None:
        failed = f.driver(
            replace, f.word_at(block, load(row)), b.add(f.address(load(row, 1)), load(row, 2))
        )
        f.leave(b.icmp_signed("!=", failed, ir.Constant(_int, 0)), number(REFUSED))

    def parameter(row: Any, n: Any) -> None:
        f.store(f.word_at(parameters, n), f.word_at(block, load(row)))

    def step(row: Any, n: Any) -> None:
        kind, function = load(row), load(row, 1)
        first = load(row, 9)
        taken = f.word_at(parameters, first)
        with b.if_else(b.icmp_signed("==", kind, number(PLAIN))) as (plain, special):
            with plain:
                sizes = [b.trunc(load(row, k), _int) for k in range(2, 9)]
                b.store(f.driver(launch, function, *sizes, f.stream, taken, number(0)), code)
            with (
                special,
                b.if_else(b.icmp_signed("==", kind, number(CONFIGURED))) as (configured, other),
            ):
                with configured:
                    config = f.word_at(block, load(row, 10))
                    f.store(f.word_at(config, number(_STREAM)), f.stream)
                    b.store(f.driver(extended, config, function, taken, number(0)), code)
                with other:
                    words = f.word_at(block, first)
                    b.store(
                        f.driver(function, load(words), load(words, 1), load(words, 2), f.stream),
                        code,
                    )
        failed = b.load(code)
        with b.if_then(b.icmp_signed("!=", failed, ir.Constant(_int, 0))):
            b.ret(b.or_(b.shl(b.zext(failed, _word), number(32)), b.add(n, number(1))))

    at = b.add(table, number(8 * HEAD))
    bodies = (alignment, overlap, relation, copy, place, tensor_map, parameter, step)
    for name, size, body in zip(ROWS, SIZES, bodies, strict=True):
        at = f.rows(at, counts[name], size, body)
    b.ret(number(0))
    f.entry()
    return str(f.module)


@cache
def entry() -> Any:
    """The machine code for Python: through ctypes the call would take longer than the code itself."""
    return builtin(text(), SYMBOL)


class Table:
    """What the machine code reads, while it is put together.

    Addresses are numbered: those of the call's arrays, then those of the memory that it takes.

    Args:
        context: the native context of the GPU.

    Attributes:
        names: of the kernels, by step.
    """

    def __init__(self, context: int) -> None:
        self.context = context
        self.rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in ROWS}
        self.names: list[str] = []
        self.alive: list[Any] = []

    def align(self, which: int, low: int) -> None:
        """An address must have these low seven bits."""
        self.rows["alignments"].append((which, low))

    def apart(self, one: int, extent: tuple[int, int], other: int, its: tuple[int, int]) -> None:
        """The spans of two arrays must not meet."""
        self.rows["overlaps"].append((one, *extent, other, *its))

    def relate(self, one: int, other: int, distance: int) -> None:
        """The second array must begin so many bytes after the first one."""
        self.rows["relations"].append((one, other, distance))

    def _words(self, words: Sequence[int], step: int = 1) -> int:
        mine = self.rows["words"]
        mine += [(0,)] * (-len(mine) % step)
        begin = len(mine)
        mine += [(w,) for w in words]
        return begin

    def launch(
        self, runner: CudaRunner, leaves: Sequence[Any], places: Sequence[tuple[int, int] | None]
    ) -> None:
        """Add a launch.

        Args:
            runner: of arrays with these layouts.
            leaves: arguments as they were in one call, from which numbers and tensor maps are taken.
            places: for each of them, which address it is relative to and how far, or None where it stays as it is.

        Raises:
            Unsuitable: a kernel that reports faults.
        """
        if runner.empty:
            return
        if any(leaves[n].address & runner.loose for n, _, _ in runner.arrays):
            runner = runner.elsewhere(leaves)
        if runner.fault_word >= 0:
            raise Unsuitable("a kernel that reports faults")
        words = list(runner.block)
        for n, place, kind in runner.numbers:
            words[place] = _bits(leaves[n], kind)
        begin = self._words(words)
        for n, place, _ in runner.arrays:
            self._place(begin + place, leaves[n].address, places[n])
        starts = {place: begin + place for place in runner.starts}
        for n, place, _ in runner.maps:
            at = starts[place] = self._words(
                struct.unpack(f"{MAP_WORDS}q", encoded(leaves[n])), _LINE // 8
            )
            where = places[n]
            if where is not None:
                if not _address("cuTensorMapReplaceAddress"):
                    raise Unsuitable("a driver that cannot move tensor maps")
                self.rows["maps"].append((at, *where))
        first, config = len(self.rows["parameters"]), 0
        self.rows["parameters"] += [(starts[place],) for place in runner.starts]
        if runner.config is not None:
            raw = bytes(runner.config)
            config = self._words(struct.unpack(f"{len(raw) // 8}q", raw))
        kind = PLAIN if runner.config is None else CONFIGURED
        self.rows["steps"].append(
            (kind, runner.head[0].value or 0, *runner.head[1:], first, config)
        )
        self.names.append(runner.exe.program.name)
        self.alive.append(runner)

    def _place(self, word: int, address: int, where: tuple[int, int] | None) -> None:
        if where is None:
            self.rows["words"][word] = (address,)
        else:
            self.rows["places"].append((word, *where))

    def other(self, name: str, values: Sequence[tuple[int, tuple[int, int] | None]]) -> None:
        """Add a call of a function of the driver with three words and the stream."""
        begin = self._words([0, 0, 0])
        for n, (value, where) in enumerate(values):
            self._place(begin + n, value, where)
        self.rows["steps"].append((OTHER, _address(name), *[0] * 7, begin, 0))
        self.names.append(name)

    def ready(self, count: int) -> tuple[Callable[..., int], int, Any]:
        """The machine code for so many addresses, the address of its table, and what keeps that alive.

        Raises:
            Unsuitable: nothing is launched, or there are too many addresses.
        """
        if not self.rows["steps"] or count > MOST:
            raise Unsuitable("no launch, or too many arrays")
        functions = [_address(name) for name in FUNCTIONS]
        head = [self.context, *(len(self.rows[name]) for name in ROWS), *functions]
        words = [*head, *(w for name in ROWS for row in self.rows[name] for w in row)]
        table = (ctypes.c_int64 * len(words))(*words)
        return entry(), ctypes.addressof(table), (table, self.alive)

    def failed(self, code: int) -> int:
        """What to do after a code that is not 0: REFUSED, or the driver's error as an exception."""
        if code != REFUSED:
            name = self.names[(code & 0xFFFFFFFF) - 1]
            driver.check(code >> 32, f"launching {name}")
        return code


@cache
def _address(name: str) -> int:
    """Where a function of the driver is; 0 when it has none."""
    try:
        return ctypes.cast(driver.api()[name], ctypes.c_void_p).value or 0
    except AttributeError:
        return 0


def _bits(value: Any, kind: int) -> int:
    """A number as the word of a block."""
    if kind == INTEGER:
        value = int(value) & (1 << 64) - 1
        return value - (1 << 64) if value >= 1 << 63 else value
    raw = struct.pack("<fi", value, 0) if kind == F32 else struct.pack("<d", value)
    return int(struct.unpack("<q", raw)[0])
