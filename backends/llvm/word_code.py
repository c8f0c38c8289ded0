"""Writing small functions of 64-bit words as LLVM IR: what the machine code of the host is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.machine_code import python_function

word = ir.IntType(64)


def number(value: int) -> Any:
    """A word in code."""
    return ir.Constant(word, value)


class WordCode:
    """A module while it is written; numbers are words, and so are addresses.

    Attributes:
        b: writes into the function that was begun last.
    """

    module: ir.Module
    b: Any

    def begin(self, name: str, arguments: int = 3, linkage: str = "") -> Any:
        """Begin a function of words; Python calls those that have three."""
        made = ir.Function(self.module, ir.FunctionType(word, [word] * arguments), name)
        made.linkage = linkage
        self.b = ir.IRBuilder(made.append_basic_block())
        return made

    def load(self, address: Any, words: int = 0) -> Any:
        """The word so many words after an address."""
        b = self.b
        return b.load(b.inttoptr(b.add(address, number(8 * words)), word.as_pointer()))

    def store(self, address: Any, value: Any) -> None:
        """Write a word."""
        self.b.store(value, self.b.inttoptr(address, word.as_pointer()))

    def word_at(self, block: Any, which: Any) -> Any:
        """The address of a word of a block."""
        return self.b.add(block, self.b.mul(which, number(8)))

    def rows(self, at: Any, count: Any, size: int, body: Callable[[Any, Any], None]) -> Any:
        """`body(address of the row, its number)` for rows of `size` words; gives the address after them."""
        b, before = self.b, self.b.block
        head, inside, after = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        k = b.phi(word)
        k.add_incoming(number(0), before)
        b.cbranch(b.icmp_signed("<", k, count), inside, after)
        b.position_at_end(inside)
        body(b.add(at, b.mul(k, number(8 * size))), k)
        k.add_incoming(b.add(k, number(1)), b.block)
        b.branch(head)
        b.position_at_end(after)
        return b.add(at, b.mul(count, number(8 * size)))

    def leave(self, condition: Any, value: Any) -> None:
        """Give a value where a condition holds."""
        with self.b.if_then(condition):
            self.b.ret(value)

    def call(self, address: Any, *arguments: Any) -> None:
        """Call a function of words."""
        kind = ir.FunctionType(ir.VoidType(), [word] * len(arguments)).as_pointer()
        self.b.call(self.b.inttoptr(address, kind), arguments)

    def python(self, name: str, *arguments: Any, gives: Any = word) -> Any:
        """Call a function of Python."""
        kind = ir.FunctionType(gives, [word] * len(arguments)).as_pointer()
        return self.b.call(self.b.inttoptr(python_function(name), kind), arguments)
