"""Reading and writing memory: elements, lines, pointers, and registers of a unit (`stack`)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.llvm.ops.numbers.convert import convert, decode, encode
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import (
    I32,
    I64,
    Line,
    Ptr,
    bits,
    carrier,
    described,
    ir_type,
    is_float,
    itemsize,
    literal,
    memory_ir,
    value_type,
)
from cubepy.backends.llvm.ops.values import const, intrinsic

ALIGNMENT = 64
"""Of stack memory: a cache line, and the widest vector register."""


def pointer(t: Any) -> Ptr:
    """The type of an argument that has to be a pointer."""
    if not isinstance(t, Ptr):
        raise errors.TypingError(f"{t} is not a pointer")
    return t


def line(t: Any) -> Line:
    """The type of an argument that has to be a line."""
    if not isinstance(t, Line):
        raise errors.TypingError(f"{t} is not a line")
    return t


def _line_alignment(p: Ptr) -> int:
    """Alignment of a line on the stack: what its size guarantees at every index."""
    if p.lanes & (p.lanes - 1) or (not is_float(p.dtype) and bits(p.dtype) == 1):
        return 1
    return min(ALIGNMENT, p.lanes * itemsize(p.dtype))


def element_type(p: Ptr) -> Any:
    """The numba type of what a pointer's `load` gives."""
    return value_type(carrier(p.dtype), p.lanes)


def load_at(b: Any, p: Ptr, address: Any) -> Any:
    """Read one element."""
    if p.lanes:
        return b.load(address, align=_line_alignment(p))
    return decode(b, b.load(address, align=itemsize(p.dtype)), p.dtype)


def store_at(b: Any, p: Ptr, address: Any, v: Any, dtype: str) -> None:
    """Write one element; `v` is carried as `dtype`."""
    if p.lanes:
        b.store(convert(b, v, dtype, p.dtype), address, align=_line_alignment(p))
    else:
        b.store(encode(b, v, dtype, p.dtype), address, align=itemsize(p.dtype))


def _stored(p: Ptr, v: Any) -> str:
    """The dtype of a value to store in an element."""
    dtype, lanes = described(v)
    if lanes != p.lanes:
        raise errors.TypingError(f"{v} is not an element of {p}")
    return dtype


@op
def load(p: Any, i: Any) -> Any:
    """`load(p, i)`: p[i]."""
    p = pointer(p)
    return element_type(p)(p, types.int64), lambda b, at, k: load_at(b, p, b.gep(at, [k]))


@op
def store(p: Any, i: Any, v: Any) -> Any:
    """`store(p, i, v)`: p[i] = v, converted."""
    p = pointer(p)
    dtype = _stored(p, v)
    sig = types.void(p, types.int64, types.unliteral(v))
    return sig, lambda b, at, k, x: store_at(b, p, b.gep(at, [k]), x, dtype)


@op
def below(i: Any, n: Any) -> Any:
    """`below(i, n)`: whether 0 <= i < n, by one comparison; n is not negative, and of 32 bits where
    i is.
    """
    narrow = types.unliteral(i) == types.int32
    kind = types.int32 if narrow else types.int64

    def emit(b: Any, at: Any, length: Any) -> Any:
        return b.icmp_unsigned("<", at, b.trunc(length, I32) if narrow else length)

    return types.boolean(kind, types.int64), emit


@op
def load_if(p: Any, i: Any, ok: Any) -> Any:
    """`load_if(p, i, ok)`: p[i] if ok, else 0 and memory is not touched."""
    p = pointer(p)
    result = element_type(p)

    def emit(b: Any, at: Any, k: Any, ok: Any) -> Any:
        before = b.block
        with b.if_then(ok):
            value = load_at(b, p, b.gep(at, [k]))
            inside = b.block
        out = b.phi(value.type)
        out.add_incoming(ir.Constant(value.type, None), before)
        out.add_incoming(value, inside)
        return out

    return result(p, types.int64, types.boolean), emit


@op
def store_if(p: Any, i: Any, v: Any, ok: Any) -> Any:
    """`store_if(p, i, v, ok)`: p[i] = v if ok."""
    p = pointer(p)
    dtype = _stored(p, v)

    def emit(b: Any, at: Any, k: Any, x: Any, ok: Any) -> None:
        with b.if_then(ok):
            store_at(b, p, b.gep(at, [k]), x, dtype)

    return types.void(p, types.int64, types.unliteral(v), types.boolean), emit


def line_address(b: Any, p: Ptr, at: Any, k: Any, lanes: int) -> Any:
    """The address of element k as a pointer to a line in memory."""
    return b.bitcast(b.gep(at, [k]), memory_ir(p.dtype, lanes).as_pointer())


def elements(p: Any) -> Ptr:
    """The type of a pointer that has to point to single elements."""
    p = pointer(p)
    if p.lanes:
        raise errors.TypingError(f"{p} points to lines: load and store take them whole")
    return p


@literal_op
def load_line(p: Any, i: Any, lanes: Any) -> Any:
    """`load_line(p, i, lanes)`: the elements from i on as a line; only the element's alignment is
    needed.
    """
    p, n = elements(p), literal(lanes)
    if n is None:
        return None

    def emit(b: Any, at: Any, k: Any, _: Any) -> Any:
        return decode(b, b.load(line_address(b, p, at, k, n), align=itemsize(p.dtype)), p.dtype)

    return value_type(carrier(p.dtype), n)(p, types.int64, lanes), emit


@op
def store_line(p: Any, i: Any, v: Any) -> Any:
    """`store_line(p, i, v)`: the lanes of v to the elements from i on."""
    p, v = elements(p), line(v)

    def emit(b: Any, at: Any, k: Any, x: Any) -> None:
        b.store(
            encode(b, x, v.dtype, p.dtype),
            line_address(b, p, at, k, v.lanes),
            align=itemsize(p.dtype),
        )

    return types.void(p, types.int64, v), emit


@op
def store_line_stream(p: Any, i: Any, v: Any) -> Any:
    """`store_line_stream(p, i, v)`: `store_line` past the caches; the place is aligned to the
    line's size.
    """
    p, v = elements(p), line(v)
    size = v.lanes * itemsize(p.dtype)

    def emit(b: Any, at: Any, k: Any, x: Any) -> None:
        pointer = line_address(b, p, at, k, v.lanes)
        instruction = b.store(
            encode(b, x, v.dtype, p.dtype), pointer, align=min(size & -size, ALIGNMENT)
        )
        instruction.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(I32, 1)]))

    return types.void(p, types.int64, v), emit


@op
def offset(p: Any, i: Any) -> Any:
    """`offset(p, i)`: a pointer to p[i]."""
    p = pointer(p)
    return p(p, types.int64), lambda b, at, k: b.gep(at, [k])


@literal_op
def ptr_at(block: Any, slot: Any, dtype: Any) -> Any:
    """`ptr_at(block, slot, dtype)`: a 64-bit word of an argument block as a pointer."""
    block, k, name = pointer(block), literal(slot), literal(dtype)
    if k is None or name is None:
        return None
    out = Ptr(name)

    def emit(b: Any, at: Any, *_: Any) -> Any:
        word = b.load(b.gep(at, [ir.Constant(I64, k)]), align=8)
        return b.inttoptr(word, memory_ir(name).as_pointer())

    return out(block, slot, dtype), emit


@literal_op
def stack(dtype: Any, lanes: Any, length: Any) -> Any:
    """`stack(dtype, lanes, length)`: uninitialised memory of this call; registers where LLVM can
    promote it.

    It is one array allocated in the function's entry block, which is what LLVM's SROA takes apart.
    """
    name, n, count = literal(dtype), literal(lanes), literal(length)
    if name is None or n is None or count is None:
        return None
    p = Ptr(carrier(name), n) if n else Ptr(name)
    element = ir_type(p.dtype, n) if n else memory_ir(name)
    value_type(carrier(name), n)  # refuses unknown dtypes and too many lanes

    def emit(b: Any, *_: Any) -> Any:
        with b.goto_entry_block():  # numba's alloca_once would also store zeros, one by one
            pointer = b.alloca(ir.ArrayType(element, count))
        pointer.align = ALIGNMENT
        return b.gep(pointer, [ir.Constant(I64, 0)] * 2)

    return p(dtype, lanes, length), emit


@op
def prefetch(p: Any, i: Any) -> Any:
    """`prefetch(p, i)`: ask for the cache line of p[i]."""
    p = pointer(p)

    def emit(b: Any, at: Any, k: Any) -> None:
        pointer = b.bitcast(b.gep(at, [k]), ir.IntType(8).as_pointer())
        intrinsic(
            b,
            "llvm.prefetch",
            ir.VoidType(),
            [pointer, const(I32, 0), const(I32, 3), const(I32, 1)],
            [pointer.type],
        )

    return types.void(p, types.int64), emit
