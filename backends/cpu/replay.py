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

import ctypes
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from cubepy.backends.llvm.machine_code import DATA, ITEMS, REFUSED, builtin
from cubepy.backends.llvm.word_code import WordCode, number, word

HEAD = 8
DRIVER = HEAD - 1
SYMBOL = "cubepy_replay"


class _Function(WordCode):
    """The function while it is written."""

    def __init__(self) -> None:
        self.module = ir.Module(SYMBOL)
        self.all = self.begin(f"{SYMBOL}_all", 2, "internal")
        self.table, self.objects = self.all.args

    def data(self, which: Any) -> Any:
        """The address of the elements of an array of the tuple."""
        item = self.load(self.word_at(self.b.add(self.objects, number(ITEMS)), which))
        return self.load(self.b.add(item, number(DATA)))

    def entry(self) -> None:
        """The function that Python calls."""
        function = self.begin(SYMBOL)
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
    code = _Function()
    b, load, data, table = code.b, code.load, code.data, code.table
    words = load(table)
    block = b.ptrtoint(b.alloca(word, words), word)

    def overlap(row: Any, _: Any) -> None:
        first, second = data(load(row)), data(load(row, 3))
        one = b.icmp_signed("<", b.add(first, load(row, 1)), b.add(second, load(row, 5)))
        two = b.icmp_signed("<", b.add(second, load(row, 4)), b.add(first, load(row, 2)))
        code.leave(b.and_(one, two), number(REFUSED))

    def relation(row: Any, _: Any) -> None:
        apart = b.sub(data(load(row, 1)), data(load(row)))
        code.leave(b.icmp_signed("!=", apart, load(row, 2)), number(REFUSED))

    def alignment(row: Any, _: Any) -> None:
        code.leave(
            b.icmp_signed("!=", b.and_(data(load(row)), number(63)), load(row, 1)), number(REFUSED)
        )

    def place(row: Any, _: Any) -> None:
        code.store(code.word_at(block, load(row)), b.add(data(load(row, 1)), load(row, 2)))

    def flag(row: Any, _: Any) -> None:
        code.store(code.word_at(block, load(row)), code.word_at(block, load(row, 1)))

    def step(row: Any, n: Any) -> None:
        entry, cubes, mine, chunks = (
            load(row),
            load(row, 1),
            code.word_at(block, load(row, 2)),
            load(row, 3),
        )
        with b.if_else(b.icmp_signed("==", chunks, number(0))) as (alone, together):
            with alone:
                code.call(entry, number(0), cubes, mine)
            with together:
                code.call(load(table, DRIVER), entry, cubes, chunks, load(row, 4), mine, number(0))
        faults = load(row, 5)
        with b.if_then(b.icmp_signed("!=", faults, number(0))):
            code.leave(b.icmp_signed("!=", load(faults), number(0)), b.add(n, number(1)))
        judged = load(row, 6)
        with b.if_then(b.icmp_signed(">=", judged, number(0))):
            code.leave(
                b.icmp_signed("!=", load(code.word_at(block, judged)), number(0)), number(REFUSED)
            )

    at = b.add(table, number(8 * HEAD))
    at = code.rows(at, words, 1, lambda row, k: code.store(code.word_at(block, k), load(row)))
    for n, (size, body) in enumerate(
        ((6, overlap), (3, relation), (2, alignment), (3, place), (2, flag), (7, step)), 1
    ):
        at = code.rows(at, load(table, n), size, body)
    b.ret(number(0))
    code.entry()
    return str(code.module)


@cache
def entry() -> Any:
    """The machine code `replay(table, tuple of arrays)` for Python, or None.

    It reads tuples and arrays where the usual Python and NumPy keep them; None where they do not.
    """
    probe = (np.zeros(3), np.zeros(2))
    items = (ctypes.c_ssize_t * 2).from_address(id(probe) + ITEMS)
    if list(items) != [id(v) for v in probe]:
        return None
    at = [ctypes.c_ssize_t.from_address(id(v) + DATA).value for v in probe]
    if at != [v.__array_interface__["data"][0] for v in probe]:
        return None
    return builtin(text(), SYMBOL)
