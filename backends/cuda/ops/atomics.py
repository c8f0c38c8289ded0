"""Atomic updates on NVIDIA GPUs: as on others, with their own sums of floats."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from cubepy.backends.gpu.ops.atomics import atomic_cas, read_modify_write
from cubepy.backends.llvm.ops.memory.elements import elements
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I32, I64

__all__ = ["add_line", "atomic_cas", "atomic_rmw"]


def _add_float(b: Any, pointer: Any, v: Any) -> Any:
    suffix = "f32" if v.type == ir.FloatType() else "f64"
    name = f"llvm.nvvm.atomic.load.add.{suffix}.p0{suffix}"
    fn = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(v.type, [pointer.type, v.type]), name
    )
    return b.call(fn, [pointer, v])


@op
def add_line(p: Any, v: Any, i: Any) -> Any:
    """`add_line(p, v, i)`: p[i : i + lanes] += v, each element atomically; sm_90."""
    p = elements(p)
    n = v.lanes
    regs = ", ".join(f"${k + 1}" for k in range(n))

    def emit(b: Any, at: Any, x: Any, k: Any) -> None:
        pointer = b.ptrtoint(b.gep(at, [k]), I64)
        kind = ir.FunctionType(ir.VoidType(), [I64] + [ir.FloatType()] * n)
        text = f"red.global.add.v{n}.f32 [$0], {{{regs}}};"
        code = ir.InlineAsm(
            kind, text, ",".join(["l"] + ["f"] * n + ["~{memory}"]), side_effect=True
        )
        b.call(code, [pointer, *(b.extract_element(x, I32(j)) for j in range(n))])

    return types.void(p, v, types.int64), emit


atomic_rmw = read_modify_write(_add_float)
