"""Products of bytes on a GPU that has an instruction for four of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import errors

from cubepy.backends.llvm.ops.memory.elements import line
from cubepy.backends.llvm.ops.registry import Op, op
from cubepy.backends.llvm.ops.types import I32, Line
from cubepy.backends.llvm.ops.values import lane


def dot_i8_by(one: Callable[..., Any]) -> Op:
    """The op `dot_i8` of an instruction.

    Args:
        one: of a builder, words of four bytes of x (u8) and y (i8), and a number: the number plus
            the sum of the four products.
    """

    @op
    def dot_i8(acc: Any, x: Any, y: Any) -> Any:
        """`dot_i8(acc, x, y)`: acc (i32, L lanes) plus the sums of four neighbouring products x
        (u8) * y (i8); exact.
        """
        acc, x, y = line(acc), line(x), line(y)
        n = acc.lanes
        if (acc.dtype, x, y) != ("i32", Line("u8", 4 * n), Line("i8", 4 * n)):
            raise errors.TypingError(
                f"dot_i8 needs lines i32 x L, u8 x 4L, i8 x 4L, not {acc}, {x}, {y}"
            )

        def emit(b: Any, s: Any, u: Any, v: Any) -> Any:
            words = ir.VectorType(I32, n)
            u, v = b.bitcast(u, words), b.bitcast(v, words)
            out = s
            for k in range(n):
                made = one(b, lane(b, u, k), lane(b, v, k), lane(b, s, k))
                out = b.insert_element(out, made, I32(k))
            return out

        return acc(acc, x, y), emit

    return dot_i8
