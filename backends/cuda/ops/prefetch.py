"""Asking for memory before it is needed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.cuda.ops.topology import asm
from cubepy.backends.llvm.ops.memory.elements import pointer
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I8, I64


@op
def prefetch(p: Any, i: Any) -> Any:
    """`prefetch(p, i)`: ask for the sector of p[i] in the second-level cache."""
    p = pointer(p)

    def emit(b: Any, at: Any, k: Any) -> None:
        address = b.ptrtoint(b.bitcast(b.gep(at, [k]), I8.as_pointer()), I64)
        asm(b, ir.VoidType(), "prefetch.L2 [$0];", "l", [address])

    return types.void(p, types.int64), emit
