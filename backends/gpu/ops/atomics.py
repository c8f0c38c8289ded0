"""Atomic updates on a GPU: native for integers; order tricks for float max and min. How floats are
added is the backend's.

A float of 32 or 64 bits that is not NaN compares as its bits do, as a signed integer when it is
positive and in reverse as an unsigned one when it is negative: so one integer atomic gives the
maximum. The element then holds the right value as long as it held no NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.llvm.ops.memory.atomics import COMBINE, native
from cubepy.backends.llvm.ops.memory.elements import elements
from cubepy.backends.llvm.ops.numbers.convert import decode, encode
from cubepy.backends.llvm.ops.registry import Op, op
from cubepy.backends.llvm.ops.types import (
    I32,
    I64,
    SCALARS,
    Ptr,
    carrier,
    is_float,
    itemsize,
    literal,
    memory_ir,
)
from cubepy.backends.llvm.ops.values import is_nan

ORDER = "monotonic"


def _extreme_float(b: Any, pointer: Any, v: Any, name: str) -> Any:
    """max or min of a float through its bits; NaN as an operand changes nothing."""
    word = I32 if v.type == ir.FloatType() else I64
    at = b.bitcast(pointer, word.as_pointer())
    code = b.bitcast(v, word)
    negative = b.icmp_signed("<", code, word(0))
    with b.if_else(is_nan(b, v)) as (skip, act):
        with skip:
            seen = b.load(at, align=word.width // 8)
            from_skip = b.block
        with act:
            with b.if_else(negative) as (below, above):
                with below:
                    low = b.atomic_rmw("umin" if name == "max" else "umax", at, code, ORDER)
                    from_below = b.block
                with above:
                    high = b.atomic_rmw(name, at, code, ORDER)
                    from_above = b.block
            old = b.phi(word)
            old.add_incoming(low, from_below)
            old.add_incoming(high, from_above)
            from_act = b.block
    out = b.phi(word)
    out.add_incoming(seen, from_skip)
    out.add_incoming(old, from_act)
    return b.bitcast(out, v.type)


def _swap(b: Any, p: Ptr, pointer: Any, change: Any) -> Any:
    """Read, change, and write if nothing came between; narrow elements go through their aligned
    32-bit word.
    """
    size = itemsize(p.dtype)
    word = I64 if size == 8 else I32
    address = b.ptrtoint(pointer, I64)
    shift = None
    if size < 4:
        shift = b.trunc(b.shl(b.and_(address, I64(3)), I64(3)), I32)
        address = b.and_(address, I64(-4))
    at = b.inttoptr(address, word.as_pointer())
    raw = ir.IntType(8 * size)
    first = b.load(at, align=word.width // 8)
    start = b.block
    loop, done = b.append_basic_block("swap.loop"), b.append_basic_block("swap.done")
    b.branch(loop)
    b.position_at_end(loop)
    seen = b.phi(word)
    seen.add_incoming(first, start)
    mine = b.trunc(b.lshr(seen, shift), raw) if shift is not None else seen
    old = decode(b, b.bitcast(mine, memory_ir(p.dtype)), p.dtype)
    new = b.bitcast(change(old, mine), raw)
    if shift is not None:
        mask = b.shl(I32((1 << (8 * size)) - 1), shift)
        new = b.or_(b.and_(seen, b.not_(mask)), b.shl(b.zext(new, I32), shift))
    pair = b.cmpxchg(at, seen, new, ORDER, ORDER)
    seen.add_incoming(b.extract_value(pair, 0), b.block)
    b.cbranch(b.extract_value(pair, 1), done, loop)
    b.position_at_end(done)
    return old


def read_modify_write(add_float: Callable[[Any, Any, Any], Any]) -> Op:
    """The op `atomic_rmw` of a backend; `add_float(builder, pointer, v)` adds an f32 or f64."""

    def define(p: Any, i: Any, v: Any, name: Any) -> Any:
        """`atomic_rmw(p, i, v, op)`: p[i] = p[i] op v as one step; the old value."""
        return _read_modify_write(add_float, p, name)

    return Op("atomic_rmw", define, literals=True)


def _read_modify_write(add_float: Callable[[Any, Any, Any], Any], p: Any, name: Any) -> Any:
    p, text = elements(p), literal(name)
    if text is None:
        return None
    dtype = carrier(p.dtype)
    if text not in COMBINE or (is_float(dtype) and text in ("and", "or", "xor")):
        raise errors.TypingError(f"there is no atomic {text!r} on {p.dtype}")
    wide = itemsize(p.dtype) >= 4
    instruction = native(p.dtype, text)

    def emit(b: Any, at: Any, k: Any, x: Any, _: Any) -> Any:
        pointer = b.gep(at, [k])
        if wide and p.dtype in ("f32", "f64"):
            if text in ("add", "sub"):
                return add_float(
                    b, pointer, x if text == "add" else b.fsub(ir.Constant(x.type, -0.0), x)
                )
            if text in ("max", "min"):
                return _extreme_float(b, pointer, x, text)
            word = I32 if p.dtype == "f32" else I64
            old = b.atomic_rmw(
                "xchg", b.bitcast(pointer, word.as_pointer()), b.bitcast(x, word), ORDER
            )
            return b.bitcast(old, x.type)
        if wide and instruction is not None:
            return decode(
                b, b.atomic_rmw(instruction, pointer, encode(b, x, dtype, p.dtype), ORDER), p.dtype
            )
        return _swap(
            b,
            p,
            pointer,
            lambda old, raw: encode(b, COMBINE[text](b, dtype, old, x), dtype, p.dtype),
        )

    return SCALARS[dtype](p, types.int64, SCALARS[dtype], name), emit


@op
def atomic_cas(p: Any, i: Any, expected: Any, desired: Any) -> Any:
    """`atomic_cas(p, i, expected, desired)`: p[i] = desired if it holds the bits of expected; the
    old value.
    """
    p = elements(p)
    dtype = carrier(p.dtype)
    t = SCALARS[dtype]
    raw = ir.IntType(8 * itemsize(p.dtype))

    def emit(b: Any, at: Any, k: Any, old: Any, new: Any) -> Any:
        pointer = b.gep(at, [k])
        before, after = (b.bitcast(encode(b, v, dtype, p.dtype), raw) for v in (old, new))
        if itemsize(p.dtype) >= 4:
            seen = b.extract_value(
                b.cmpxchg(b.bitcast(pointer, raw.as_pointer()), before, after, ORDER, ORDER), 0
            )
            return decode(b, b.bitcast(seen, memory_ir(p.dtype)), p.dtype)
        same = lambda _, bits: b.select(b.icmp_unsigned("==", bits, before), after, bits)
        return _swap(b, p, pointer, same)

    return t(p, types.int64, t, t), emit
