"""Atomic updates of memory. Where the machine has no instruction for the dtype, a
compare-and-swap loop. What a single thread has for itself is updated by `own_rmw` and `own_cas`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.llvm.ops.memory.elements import elements, load_at, store_at
from cubepy.backends.llvm.ops.numbers.arithmetic import (
    add_values,
    maxnum_values,
    minnum_values,
    sub_values,
)
from cubepy.backends.llvm.ops.numbers.convert import decode, encode
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import (
    SCALARS,
    Ptr,
    carrier,
    is_float,
    is_signed,
    itemsize,
    literal,
    memory_ir,
)

ORDER = "seq_cst"
COMBINE = {
    "add": add_values,
    "sub": sub_values,
    "max": maxnum_values,
    "min": minnum_values,
    "and": lambda b, d, x, y: b.and_(x, y),
    "or": lambda b, d, x, y: b.or_(x, y),
    "xor": lambda b, d, x, y: b.xor(x, y),
    "xchg": lambda b, d, x, y: y,
}


def native(dtype: str, name: str) -> str | None:
    """The LLVM instruction's name of an update, if memory of this dtype has one."""
    if dtype in ("f32", "f64"):
        return {"add": "fadd", "sub": "fsub"}.get(name)
    if dtype == "bool_":
        return name if name in ("and", "or", "xor") else None
    if dtype in SCALARS:
        return f"u{name}" if name in ("max", "min") and not is_signed(dtype) else name
    return None


def _words(b: Any, p: Ptr, at: Any) -> tuple[Any, Any]:
    """The address of an element as one of an integer, and that integer's type."""
    word = ir.IntType(8 * itemsize(p.dtype))
    return b.bitcast(at, word.as_pointer()), word


def _swap_loop(b: Any, p: Ptr, at: Any, v: Any, name: str) -> Any:
    """Read, combine, and write if nothing came between; the old value."""
    pointer, word = _words(b, p, at)
    memory, dtype = memory_ir(p.dtype), carrier(p.dtype)
    first = b.load(pointer, align=itemsize(p.dtype))
    start = b.block
    loop, done = b.append_basic_block("swap.loop"), b.append_basic_block("swap.done")
    b.branch(loop)
    b.position_at_end(loop)
    seen = b.phi(word)
    seen.add_incoming(first, start)
    old = decode(b, b.bitcast(seen, memory), p.dtype)
    new = encode(b, COMBINE[name](b, dtype, old, v), dtype, p.dtype)
    pair = b.cmpxchg(pointer, seen, b.bitcast(new, word), ORDER, ORDER)
    seen.add_incoming(b.extract_value(pair, 0), b.block)
    b.cbranch(b.extract_value(pair, 1), done, loop)
    b.position_at_end(done)
    return old


def _update(p: Any, v: Any, name: Any, own: bool) -> Any:
    """The signature and the code of p[i] = p[i] op v, which gives the old value."""
    p, text = elements(p), literal(name)
    if text is None:
        return None
    dtype = carrier(p.dtype)
    if text not in COMBINE or (is_float(dtype) and text in ("and", "or", "xor")):
        raise errors.TypingError(f"there is no atomic {text!r} on {p.dtype}")
    if dtype == "bool_" and text in ("add", "sub", "max", "min"):
        raise errors.TypingError("booleans have no atomic arithmetic")
    instruction = native(p.dtype, text)

    def emit(b: Any, at: Any, k: Any, x: Any, _: Any) -> Any:
        pointer = b.gep(at, [k])
        if own:
            old = load_at(b, p, pointer)
            store_at(b, p, pointer, COMBINE[text](b, dtype, old, x), dtype)
            return old
        if instruction is None:
            return _swap_loop(b, p, pointer, x, text)
        return decode(
            b, b.atomic_rmw(instruction, pointer, encode(b, x, dtype, p.dtype), ORDER), p.dtype
        )

    return SCALARS[dtype](p, types.int64, SCALARS[dtype], name), emit


@literal_op
def atomic_rmw(p: Any, i: Any, v: Any, name: Any) -> Any:
    """`atomic_rmw(p, i, v, op)`: p[i] = p[i] op v as one step; the old value."""
    return _update(p, v, name, own=False)


@literal_op
def own_rmw(p: Any, i: Any, v: Any, name: Any) -> Any:
    """`own_rmw(p, i, v, op)`: the same of memory that no other thread touches."""
    return _update(p, v, name, own=True)


def _swap(p: Any, own: bool) -> Any:
    """The signature and the code of p[i] = desired if it holds expected."""
    p = elements(p)
    dtype = carrier(p.dtype)
    t = SCALARS[dtype]

    def emit(b: Any, at: Any, k: Any, old: Any, new: Any) -> Any:
        pointer, word = _words(b, p, b.gep(at, [k]))
        before, after = (b.bitcast(encode(b, v, dtype, p.dtype), word) for v in (old, new))
        if own:
            seen = b.load(pointer, align=itemsize(p.dtype))
            with b.if_then(b.icmp_unsigned("==", seen, before)):
                b.store(after, pointer, align=itemsize(p.dtype))
        else:
            seen = b.extract_value(b.cmpxchg(pointer, before, after, ORDER, ORDER), 0)
        return decode(b, b.bitcast(seen, memory_ir(p.dtype)), p.dtype)

    return t(p, types.int64, t, t), emit


@op
def atomic_cas(p: Any, i: Any, expected: Any, desired: Any) -> Any:
    """`atomic_cas(p, i, expected, desired)`: p[i] = desired if it holds the bits of expected; the
    old value.
    """
    return _swap(p, own=False)


@op
def own_cas(p: Any, i: Any, expected: Any, desired: Any) -> Any:
    """`own_cas(p, i, expected, desired)`: the same of memory that no other thread touches."""
    return _swap(p, own=True)


@op
def take(address: Any) -> Any:
    """`take(address)`: add 1 to the int64 at an address as one step; the old value."""

    def emit(b: Any, at: Any) -> Any:
        word = ir.IntType(64)
        return b.atomic_rmw("add", b.inttoptr(at, word.as_pointer()), ir.Constant(word, 1), ORDER)

    return types.int64(types.int64), emit
