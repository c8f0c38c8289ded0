"""Machine code that repeats recorded launches, written with llvmlite alone.

A call with one table and one tuple of arrays does what takes Python a microsecond for every launch: look at the
addresses, put them into argument blocks, run. The blocks are copied onto the stack, so that threads can share a table.
Words of a table, all int64:

    words of all blocks, overlaps, relations, alignments, places, flags, steps, address of the parallel driver
    the blocks
    overlaps    written array, its first byte and one past the last, another array and its two: nothing may be in both
    relations   array, another one, bytes from it to that
    alignments  array, whose address must be so many bytes past a multiple of 64
    places      word of the blocks, array, bytes from its start: there goes the address
    flags       word of the blocks, another one, which is a flag: there goes its address
    steps       entry, cubes, word of its block, chunks (0: this thread alone), threads, faults,
                word of a flag that must be zero then (-1: none)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from cubepy.backends.cpu.entries import python_function

HEAD = 8
DRIVER = HEAD - 1
DATA = (
    object.__basicsize__
)  # where the address of an array's elements is in NumPy's object (see runtime.pointers)
ITEMS = tuple.__basicsize__  # where the first item is in a tuple
REFUSED = -1
SYMBOL = "cubepy_replay"

_word = ir.IntType(64)


def _number(value: int) -> Any:
    return ir.Constant(_word, value)


class Code:
    """The function while it is written."""

    def __init__(self) -> None:
        self.module = ir.Module(SYMBOL)
        self.all = ir.Function(self.module, ir.FunctionType(_word, [_word, _word]), f"{SYMBOL}_all")
        self.all.linkage = "internal"
        self.table, self.objects = self.all.args
        self.b = ir.IRBuilder(self.all.append_basic_block())

    def load(self, address: Any, words: int = 0) -> Any:
        """The word so many words after an address."""
        b = self.b
        return b.load(b.inttoptr(b.add(address, _number(8 * words)), _word.as_pointer()))

    def store(self, address: Any, value: Any) -> None:
        """Write a word."""
        self.b.store(value, self.b.inttoptr(address, _word.as_pointer()))

    def word(self, block: Any, number: Any) -> Any:
        """The address of a word of a block."""
        return self.b.add(block, self.b.mul(number, _number(8)))

    def data(self, which: Any) -> Any:
        """The address of the elements of an array of the tuple."""
        item = self.load(self.word(self.b.add(self.objects, _number(ITEMS)), which))
        return self.load(self.b.add(item, _number(DATA)))

    def rows(self, at: Any, count: Any, size: int, body: Callable[[Any, Any], None]) -> Any:
        """`body(address of the row, its number)` for rows of `size` words; gives the address after them."""
        b, before = self.b, self.b.block
        head, inside, after = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        k = b.phi(_word)
        k.add_incoming(_number(0), before)
        b.cbranch(b.icmp_signed("<", k, count), inside, after)
        b.position_at_end(inside)
        body(b.add(at, b.mul(k, _number(8 * size))), k)
        k.add_incoming(b.add(k, _number(1)), b.block)
        b.branch(head)
        b.position_at_end(after)
        return b.add(at, b.mul(count, _number(8 * size)))

    def leave(self, condition: Any, value: Any) -> None:
        """Give a value where a condition holds."""
        with self.b.if_then(condition):
            self.b.ret(value)

    def call(self, address: Any, *arguments: Any) -> None:
        """Call a function of words."""
        kind = ir.FunctionType(ir.VoidType(), [_word] * len(arguments)).as_pointer()
        self.b.call(self.b.inttoptr(address, kind), arguments)

    def python(self, name: str, *arguments: Any, gives: Any = _word) -> Any:
        """Call a function of Python."""
        kind = ir.FunctionType(gives, [_word] * len(arguments)).as_pointer()
        return self.b.call(self.b.inttoptr(python_function(name), kind), arguments)

    def entry(self) -> None:
        """The function that Python calls."""
        function = ir.Function(self.module, ir.FunctionType(_word, [_word] * 3), SYMBOL)
        self.b = ir.IRBuilder(function.append_basic_block())
        table = self.python("PyLong_AsLongLong", self.load(function.args[1]))
        objects = self.load(function.args[1], 1)
        thread = self.python("PyEval_SaveThread")
        code = self.b.call(self.all, (table, objects))
        self.python("PyEval_RestoreThread", thread, gives=ir.VoidType())
        self.b.ret(self.python("PyLong_FromLongLong", code))


def text() -> str:
    """The function `replay(table, tuple)` of Python's objects as LLVM IR; other threads go on meanwhile.

    It gives 0, REFUSED with nothing done (or no more than steps up to a flag), or the number of a step, from 1, that
    reported a fault.
    """
    code = Code()
    b, load, data, table = code.b, code.load, code.data, code.table
    words = load(table)
    block = b.ptrtoint(b.alloca(_word, words), _word)

    def overlap(row: Any, _: Any) -> None:
        first, second = data(load(row)), data(load(row, 3))
        one = b.icmp_signed("<", b.add(first, load(row, 1)), b.add(second, load(row, 5)))
        two = b.icmp_signed("<", b.add(second, load(row, 4)), b.add(first, load(row, 2)))
        code.leave(b.and_(one, two), _number(REFUSED))

    def relation(row: Any, _: Any) -> None:
        apart = b.sub(data(load(row, 1)), data(load(row)))
        code.leave(b.icmp_signed("!=", apart, load(row, 2)), _number(REFUSED))

    def alignment(row: Any, _: Any) -> None:
        code.leave(
            b.icmp_signed("!=", b.and_(data(load(row)), _number(63)), load(row, 1)),
            _number(REFUSED),
        )

    def place(row: Any, _: Any) -> None:
        code.store(code.word(block, load(row)), b.add(data(load(row, 1)), load(row, 2)))

    def flag(row: Any, _: Any) -> None:
        code.store(code.word(block, load(row)), code.word(block, load(row, 1)))

    def step(row: Any, number: Any) -> None:
        entry, cubes, mine, chunks = (
            load(row),
            load(row, 1),
            code.word(block, load(row, 2)),
            load(row, 3),
        )
        with b.if_else(b.icmp_signed("==", chunks, _number(0))) as (alone, together):
            with alone:
                code.call(entry, _number(0), cubes, mine)
            with together:
                code.call(load(table, DRIVER), entry, cubes, chunks, load(row, 4), mine, _number(0))
        faults = load(row, 5)
        with b.if_then(b.icmp_signed("!=", faults, _number(0))):
            code.leave(b.icmp_signed("!=", load(faults), _number(0)), b.add(number, _number(1)))
        judged = load(row, 6)
        with b.if_then(b.icmp_signed(">=", judged, _number(0))):
            code.leave(
                b.icmp_signed("!=", load(code.word(block, judged)), _number(0)), _number(REFUSED)
            )

    at = b.add(table, _number(8 * HEAD))
    at = code.rows(at, words, 1, lambda row, k: code.store(code.word(block, k), load(row)))
    for n, (size, body) in enumerate(
        ((6, overlap), (3, relation), (2, alignment), (3, place), (2, flag), (7, step)), 1
    ):
        at = code.rows(at, load(table, n), size, body)
    b.ret(_number(0))
    code.entry()
    return str(code.module)
