"""Writing small functions of 64-bit words as LLVM IR: what the machine code of the host is
made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.machine_code import ADDRESSES, MOST, NAMES

word = ir.IntType(64)


def number(value: int) -> Any:
    """A word in code."""
    return ir.Constant(word, value)


class WordCode:
    """A module while it is written; numbers are words, and so are addresses.

    What it calls, and other addresses of a process, stand in a table of the module that is filled
    when it is loaded, so that the code itself is the same in every process and can be kept (see
    `machine_code.loaded`).

    Args:
        symbol: what the module and the function that Python calls are named.

    Attributes:
        b: writes into the function that was begun last.
        next_row: where the address of the row is kept that `rows` goes to next.
    """

    def __init__(self, symbol: str) -> None:
        self.symbol, self.module = symbol, ir.Module(symbol)
        self.b: Any = None
        self.next_row: Any = None
        self.names: list[str] = []
        self.addresses = ir.GlobalVariable(
            self.module, ir.ArrayType(word, MOST), symbol + ADDRESSES
        )
        self.addresses.initializer = ir.Constant(self.addresses.value_type, None)

    def begin(self, name: str, arguments: int = 3, linkage: str = "") -> Any:
        """Begin a function of words; Python calls those that have three."""
        made = ir.Function(self.module, ir.FunctionType(word, [word] * arguments), name)
        made.linkage = linkage
        self.b = ir.IRBuilder(made.append_basic_block())
        return made

    def load(self, address: Any, words: int = 0) -> Any:
        """The word so many words after an address."""
        b = self.b
        at = b.add(address, number(8 * words)) if words else address
        return b.load(b.inttoptr(at, word.as_pointer()))

    def store(self, address: Any, value: Any) -> None:
        """Write a word."""
        self.b.store(value, self.b.inttoptr(address, word.as_pointer()))

    def word_at(self, block: Any, which: Any) -> Any:
        """The address of a word of a block."""
        return self.b.add(block, self.b.mul(which, number(8)))

    def rows(self, at: Any, count: Any, size: int, body: Callable[[Any], None]) -> Any:
        """`body(address of the row)` for rows of `size` words; gives the address after them."""
        b = self.b
        with b.goto_entry_block():
            pointer = b.alloca(word)  # on the stack: LLVM takes 15 ms to reduce a loop's arithmetic
        end = b.add(at, b.mul(count, number(8 * size)))
        head, inside, after = (b.append_basic_block() for _ in range(3))
        b.store(at, pointer)
        b.branch(head)
        b.position_at_end(head)
        row = b.load(pointer)
        b.cbranch(b.icmp_unsigned("<", row, end), inside, after)
        b.position_at_end(inside)
        b.store(b.add(row, number(8 * size)), pointer)
        self.next_row = pointer
        body(row)
        b.branch(head)
        b.position_at_end(after)
        return end

    def copy(self, source: Any, words: Any, target: Any) -> Any:
        """Copy words; gives the address after those that were read."""
        distance = self.b.sub(target, source)
        return self.rows(
            source, words, 1, lambda row: self.store(self.b.add(row, distance), self.load(row))
        )

    def leave(self, condition: Any, value: Any) -> None:
        """Give a value where a condition holds."""
        with self.b.if_then(condition):
            self.b.ret(value)

    def known(self, name: str) -> Any:
        """An address that is found by its name when the module is loaded: a function of Python, or
        what is given then.
        """
        if name not in self.names:
            self.names.append(name)
        zero, at = (
            ir.Constant(ir.IntType(32), 0),
            ir.Constant(ir.IntType(32), self.names.index(name)),
        )
        return self.b.load(self.b.gep(self.addresses, (zero, at)))

    def call_at(self, address: Any, *arguments: Any, gives: Any = word) -> Any:
        """Call a function by its address; arguments of 32 bits are those whose type says so."""
        kind = ir.FunctionType(gives, [a.type for a in arguments]).as_pointer()
        return self.b.call(self.b.inttoptr(address, kind), arguments)

    def python(self, name: str, *arguments: Any, gives: Any = word) -> Any:
        """Call a function of Python."""
        return self.call_at(self.known(name), *arguments, gives=gives)

    def text(self) -> str:
        """The module as LLVM IR."""
        assert len(self.names) <= MOST
        data = bytearray("\n".join(self.names).encode() + b"\0")
        names = ir.GlobalVariable(
            self.module, ir.ArrayType(ir.IntType(8), len(data)), self.symbol + NAMES
        )
        names.initializer, names.global_constant = ir.Constant(names.value_type, data), True
        return str(self.module)
