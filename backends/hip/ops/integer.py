"""Bytes on an AMD GPU: the dot product of four pairs is one instruction; and numbers that LLVM does
not know.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.hip.ops.topology import call, cubes
from cubepy.backends.llvm.ops.memory.elements import line
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I1, I32, I64, Line
from cubepy.backends.llvm.ops.values import lane

SIGN_BITS = 0x80808080


@op
def dot_i8(acc: Any, x: Any, y: Any) -> Any:
    """`dot_i8(acc, x, y)`: acc (i32, L lanes) plus the sums of four neighbouring products x (u8) *
    y (i8); exact.
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
        dot = _mixed if b.module.architecture.major >= 11 else _signed
        out = s
        for k in range(n):
            one = dot(b, lane(b, u, k), lane(b, v, k), lane(b, s, k))
            out = b.insert_element(out, one, I32(k))
        return out

    return acc(acc, x, y), emit


def _mixed(b: Any, u: Any, v: Any, s: Any) -> Any:
    """RDNA's instruction takes operands with and without sign."""
    return call(b, "sudot4", I32, I1(0), u, I1(1), v, s, I1(0))


def _signed(b: Any, u: Any, v: Any, s: Any) -> Any:
    """CDNA's takes two with signs: u - 128 is one, and 128 times the sum of v is missing then.

    That is -128 * v * -1, four times: a product with -128 taken away.
    """
    lowered = b.xor(u, I32(SIGN_BITS))
    out = call(b, "sdot4", I32, lowered, v, s, I1(0))
    missing = call(b, "sdot4", I32, I32(SIGN_BITS), v, I32(0), I1(0))
    return b.sub(out, missing)


@op
def opaque(x: Any) -> Any:
    """`opaque(x)`: x, a 64-bit integer that the code generator does not know.

    The highest bit of a launch's number of cubes, which is never set, is added: two instructions of
    the plane. Loops with such a step are not unrolled.
    """

    def emit(b: Any, x: Any) -> Any:
        return b.add(x, b.zext(b.lshr(cubes(b, 2), I32(31)), I64))

    return types.int64(types.int64), emit
