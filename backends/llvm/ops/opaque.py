"""A number that the code generator is not to know, for loops that it must not unroll."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I64
from cubepy.backends.llvm.ops.values import on_gpu


@op
def opaque(x: Any) -> Any:
    """`opaque(x)`: x, a 64-bit integer, as if it came from outside; no instruction on a CPU, a move on a GPU."""

    def emit(b: Any, x: Any) -> Any:
        text, constraints = ("mov.b64 $0, $1;", "=l,l") if on_gpu(b) else ("", "=r,0")
        fn = ir.FunctionType(I64, [I64])
        return b.call(ir.InlineAsm(fn, text, constraints, side_effect=False), [x])

    return types.int64(types.int64), emit
