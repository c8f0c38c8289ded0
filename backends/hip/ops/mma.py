"""Matrix products of a plane: MFMA on CDNA, WMMA on RDNA."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from cubepy.backends.hip.codegen.matrix import INTRINSICS
from cubepy.backends.hip.ops.topology import call
from cubepy.backends.llvm.ops.memory.elements import line
from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import I1, I16, I32, I64, Line, literal


class BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite does not know."""

    def __str__(self) -> str:
        return "bfloat"


KINDS = {
    "half": (ir.HalfType(), 16),
    "bfloat": (BFloat(), 16),
    "i16": (I16, 16),
    "i32": (I32, 32),
    "i64": (I64, 64),
}
MANGLED = {"half": "f16"}


def _taken_as(kind: str, words: int) -> tuple[ir.Type, str]:
    """The type that an instruction takes so many words as, and what its name says of it."""
    element, bits = KINDS[kind]
    n = words * 32 // bits
    if n == 1:
        return element, kind
    return ir.VectorType(element, n), f"v{n}{MANGLED.get(kind, kind)}"


@literal_op
def mma(x: Any, y: Any, c: Any, dtype: Any) -> Any:
    """`mma(x, y, c, dtype)`: c plus the product of the plane's fragments x and y, words of a
    dtype.
    """
    name = literal(dtype)
    if name is None:
        return None
    x, y, c = line(x), line(y), line(c)

    def emit(b: Any, u: Any, v: Any, sums: Any, _: Any) -> Any:
        architecture = b.module.architecture
        side = math.isqrt(c.lanes * architecture.plane)
        intrinsic, kind, _ = INTRINSICS[architecture.name][name, side]
        operand, suffix = _taken_as(kind, x.lanes)
        u, v = b.bitcast(u, operand), b.bitcast(v, operand)
        if intrinsic.startswith("mfma"):  # neither operand is repeated or permuted
            return call(b, intrinsic, sums.type, u, v, sums, I32(0), I32(0), I32(0))
        full = f"{intrinsic}.v{c.lanes}{c.dtype}.{suffix}"
        if c.dtype == "i32":  # both have signs, sums wrap around
            return call(b, full, sums.type, I1(1), u, I1(1), v, sums, I1(0))
        return call(b, full, sums.type, u, v, sums)

    return Line(c.dtype, c.lanes)(x, y, c, dtype), emit
