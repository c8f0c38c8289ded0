"""Shared memory, and what is known of numbers: the same on every GPU."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import I8, I64, Ptr, literal, memory_ir

SHARED = "cubepy_shared"
SHARED_SPACE = 3
ALIGNMENT = 1024


@literal_op
def shared_memory(dtype: Any, offset: Any) -> Any:
    """`shared_memory(dtype, offset)`: a pointer into the cube's shared memory, `offset` bytes from
    its start.
    """
    name, at = literal(dtype), literal(offset)
    if name is None or at is None:
        return None
    # LLVM's analysis does not look through the change of address space, so the type says what is
    # known.
    out = Ptr(name, align=at & -at if at else ALIGNMENT)

    def emit(b: Any, *_: Any) -> Any:
        variable = b.module.globals.get(SHARED)
        if variable is None:
            variable = ir.GlobalVariable(b.module, ir.ArrayType(I8, 0), SHARED, SHARED_SPACE)
            variable.linkage = "external"
            variable.align = ALIGNMENT
        start = b.gep(variable, [I64(0), I64(at)])
        element = memory_ir(name)
        return b.addrspacecast(
            b.bitcast(start, element.as_pointer(SHARED_SPACE)), element.as_pointer()
        )

    return out(dtype, offset), emit


@literal_op
def multiple(value: Any, step: Any) -> Any:
    """`multiple(value, step)`: value, which is known to be a multiple of a power of two."""
    k = literal(step)
    if k is None:
        return None
    return types.int64(types.int64, step), lambda b, v, _: b.and_(v, I64(-k))
