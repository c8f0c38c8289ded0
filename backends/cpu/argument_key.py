"""Machine code that says what arguments are laid out like: one call, where Python would ask every
array for its dtype, shape and strides and make a tuple of them.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from cubepy.backends.llvm.machine_code import DATA, ITEMS, loaded
from cubepy.backends.llvm.word_code import WordCode, number, word

SYMBOL = "cubepy_layouts"
RANK, SHAPE, STRIDES, DTYPE = (
    DATA + 8 * n for n in (1, 2, 3, 5)
)  # in NumPy's object: an int, two addresses, an object
TYPE, COUNT = object.__basicsize__ - 8, ITEMS - 8  # of an object; of a tuple's items
TEXT = bytes.__basicsize__ - 1  # where the bytes are in bytes
ARRAY = 1  # an array, not the address of an object, comes next
_int = ir.IntType(32)


class _Function(WordCode):
    """`f(tuple)` as it is written: for each array ARRAY, its dtype, rank, shape and strides; else
    the object.
    """

    def __init__(self) -> None:
        super().__init__(SYMBOL)
        function = self.begin(SYMBOL)
        self.objects = self.load(function.args[1])
        self.count = self.field(self.objects, COUNT)
        self.at = self.b.alloca(word)

    def field(self, thing: Any, offset: int) -> Any:
        """A word of an object."""
        return self.load(self.b.add(thing, number(offset)))

    def rank(self, array: Any) -> Any:
        """The number of axes."""
        rank = self.b.inttoptr(self.b.add(array, number(RANK)), _int.as_pointer())
        return self.b.sext(self.b.load(rank), word)

    def is_array(self, thing: Any) -> Any:
        """Whether an object is an array of NumPy and of no class derived from it."""
        return self.b.icmp_signed("==", self.field(thing, TYPE), self.known("ndarray"))

    def put(self, value: Any) -> None:
        """Write a word and go on."""
        at = self.b.load(self.at)
        self.store(at, value)
        self.b.store(self.b.add(at, number(8)), self.at)

    def items(self, body: Any) -> None:
        """`body(object)` for every item of the tuple."""
        self.rows(
            self.b.add(self.objects, number(ITEMS)), self.count, 1, lambda row: body(self.load(row))
        )


def text() -> str:
    """The function as LLVM IR."""
    f = _Function()
    b = f.b
    b.store(number(0), f.at)

    def measure(thing: Any) -> None:
        with b.if_else(f.is_array(thing)) as (array, other):
            with array:
                words = b.add(b.mul(f.rank(thing), number(2)), number(3))
                b.store(b.add(b.load(f.at), words), f.at)
            with other:
                b.store(b.add(b.load(f.at), number(1)), f.at)

    f.items(measure)
    made = f.python("PyBytes_FromStringAndSize", number(0), b.mul(b.load(f.at), number(8)))
    f.leave(b.icmp_signed("==", made, number(0)), made)
    b.store(b.add(made, number(TEXT)), f.at)

    def write(thing: Any) -> None:
        with b.if_else(f.is_array(thing)) as (array, other):
            with array:
                rank = f.rank(thing)
                for value in (number(ARRAY), f.field(thing, DTYPE), rank):
                    f.put(value)
                for lengths in (SHAPE, STRIDES):
                    f.rows(f.field(thing, lengths), rank, 1, lambda row: f.put(f.load(row)))
            with other:
                f.put(thing)

    f.items(write)
    b.ret(made)
    return f.text()


@cache
def layouts() -> Any:
    """The function, or None where NumPy's arrays are not laid out as it takes them to be."""
    probe = np.zeros((3, 5), np.float32)[:, ::2]

    def word(offset: int, at: int = id(probe)) -> int:
        return ctypes.c_ssize_t.from_address(at + offset).value

    rank = ctypes.c_int.from_address(id(probe) + RANK).value
    if (rank, word(DTYPE), word(STRIDES) - word(SHAPE)) != (2, id(probe.dtype), 16):
        return None
    if [word(8 * n, word(SHAPE)) for n in range(4)] != [*probe.shape, *probe.strides]:
        return None
    return loaded(SYMBOL, text, __file__, ndarray=id(np.ndarray))
