"""Lanes parted by a mask: by a table of permutations where the host has AVX2, else one lane after
the other.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, errors

from cubepy.backends.llvm.ops.host import host_features
from cubepy.backends.llvm.ops.memory.elements import line
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I8, I32, I64, SCALARS, Line
from cubepy.backends.llvm.ops.values import math, on_gpu

WORDS = ir.VectorType(I32, 8)  # what `vpermd` moves


def numbered(b: Any, mask: Any, width: int) -> Any:
    """The integer of `width` bits whose bit k says whether lane k holds."""
    return b.zext(b.bitcast(mask, ir.IntType(mask.type.count)), ir.IntType(width))


@op
def line_count(mask: Any) -> Any:
    """`line_count(mask)`: how many lanes hold."""
    mask = line(mask)
    if mask.dtype != "bool_":
        raise errors.TypingError(f"line_count is not defined for {mask}")
    width = 32 if mask.lanes < 32 else 64

    def emit(b: Any, m: Any) -> Any:
        if mask.lanes in (32, 64):
            number = b.bitcast(m, ir.IntType(mask.lanes))
        else:
            number = numbered(b, m, width)
        count = math(b, "ctpop", number)
        return count if number.type == I32 else b.trunc(count, I32)

    return SCALARS["i32"](mask), emit


def _orders(b: Any, lanes: int) -> Any:
    """The table: for every mask of so many lanes the words of a line of 32 bytes in their new
    order, a byte each.
    """
    name = f"cubepy.partition.{lanes}"
    found = b.module.globals.get(name)
    if found is None:
        words, table = 8 // lanes, bytearray()
        for mask in range(1 << lanes):
            order = sorted(range(lanes), key=lambda k: not mask >> k & 1)
            table += bytes(words * k + w for k in order for w in range(words))
        found = cgutils.global_constant(
            b.module, name, ir.Constant(ir.ArrayType(I8, len(table)), table)
        )
    return found


def _by_table(b: Any, v: Any, mask: Any) -> Any:
    at = b.shl(numbered(b, mask, 64), ir.Constant(I64, 3))
    row = b.gep(_orders(b, v.type.count), [ir.Constant(I64, 0), at], inbounds=True)
    small = ir.VectorType(I8, 8)
    order = b.zext(b.load(b.bitcast(row, small.as_pointer()), align=8, typ=small), WORDS)
    fn = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(WORDS, [WORDS, WORDS]), "llvm.x86.avx2.permd"
    )
    return b.bitcast(b.call(fn, [b.bitcast(v, WORDS), order]), v.type)


def _lane_by_lane(b: Any, v: Any, mask: Any) -> Any:
    lanes = range(v.type.count)
    held = [b.extract_element(mask, ir.Constant(I32, k)) for k in lanes]
    front, back, out = ir.Constant(I32, 0), ir.Constant(I32, 0), v
    for one in held:
        back = b.add(back, b.zext(one, I32))
    for k, one in enumerate(held):
        out = b.insert_element(
            out, b.extract_element(v, ir.Constant(I32, k)), b.select(one, front, back)
        )
        step = b.zext(one, I32)
        front, back = b.add(front, step), b.sub(b.add(back, ir.Constant(I32, 1)), step)
    return out


@op
def partition(v: Any, mask: Any) -> Any:
    """`partition(v, mask)`: the lanes of v where the mask holds, then the others, both in order."""
    v, mask = line(v), line(mask)
    if mask != Line("bool_", v.lanes):
        raise errors.TypingError(f"partition needs a mask of {v.lanes} lanes, not {mask}")
    word = v.dtype in ("i32", "u32", "f32") and v.lanes == 8
    table = word or (v.dtype in ("i64", "u64", "f64") and v.lanes == 4)

    def emit(b: Any, x: Any, m: Any) -> Any:
        by_table = table and not on_gpu(b) and "avx2" in host_features()
        return (_by_table if by_table else _lane_by_lane)(b, x, m)

    return v(v, mask), emit
