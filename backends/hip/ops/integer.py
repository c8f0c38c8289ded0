"""Bytes on an AMD GPU: the dot product of four pairs is one instruction; and numbers that LLVM does
not know.
"""

from __future__ import annotations

from typing import Any

from numba.core import types

from cubepy.backends.gpu.ops.integer import dot_i8_by
from cubepy.backends.hip.ops.topology import call, cubes
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I1, I32, I64

SIGN_BITS = 0x80808080


def _dot(b: Any, u: Any, v: Any, s: Any) -> Any:
    dot = _mixed if b.module.architecture.major >= 11 else _signed
    return dot(b, u, v, s)


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


dot_i8 = dot_i8_by(_dot)


@op
def opaque(x: Any) -> Any:
    """`opaque(x)`: x, a 64-bit integer that the code generator does not know.

    The highest bit of a launch's number of cubes, which is never set, is added: two instructions of
    the plane. Loops with such a step are not unrolled.
    """

    def emit(b: Any, x: Any) -> Any:
        return b.add(x, b.zext(b.lshr(cubes(b, 2), I32(31)), I64))

    return types.int64(types.int64), emit
