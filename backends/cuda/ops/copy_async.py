"""Copies from global to shared memory that run beside the unit's own work (`cp.async`)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.cuda.ops.ptx import (
    VOID,
    asm,
    global_address,
    nothing,
    pointer,
    shared_address,
    size,
)
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import I32, literal


@literal_op
def copy_async(to: Any, source: Any, i: Any, j: Any, nbytes: Any) -> Any:
    """`copy_async(to, source, i, j, nbytes)`: start copying 4, 8 or 16 bytes from source[j]
    to to[i].
    """
    return _copy(to, source, i, j, None, nbytes)


@literal_op
def copy_async_if(to: Any, source: Any, i: Any, j: Any, valid: Any, nbytes: Any) -> Any:
    """`copy_async_if(..., valid, nbytes)`: the same; where not valid, zeros are written and nothing
    is read.
    """
    return _copy(to, source, i, j, valid, nbytes)


def _copy(to: Any, source: Any, i: Any, j: Any, valid: Any, nbytes: Any) -> Any:
    to, source, n = pointer(to), pointer(source), literal(nbytes)
    if n is None:
        return None
    # 16 bytes go past the first-level cache; narrower copies cannot.
    head = f"cp.async.{'cg' if n == 16 else 'ca'}.shared.global [$0], [$1], {n}"

    def emit(b: Any, target: Any, base: Any, k: Any, at: Any, *rest: Any) -> None:
        args = [shared_address(b, target, k, size(to)), global_address(b, base, at)]
        if valid is None:
            asm(b, VOID, head + ";", args)
        else:
            read = b.select(rest[0], ir.Constant(I32, n), ir.Constant(I32, 0))
            asm(b, VOID, head + ", $2;", [*args, read])

    flags = () if valid is None else (types.boolean,)
    return types.void(to, source, types.int64, types.int64, *flags, nbytes), emit


@op
def copy_async_commit() -> Any:
    """`copy_async_commit()`: the copies started since the last commit are one group."""
    return nothing("cp.async.commit_group;")


@literal_op
def copy_async_wait(pending: Any) -> Any:
    """`copy_async_wait(n)`: wait until at most n of this unit's groups are still under way."""
    n = literal(pending)
    if n is None:
        return None
    return types.void(pending), lambda b, _: asm(b, VOID, f"cp.async.wait_group {n};", []) and None
