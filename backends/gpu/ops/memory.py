"""Lines in a GPU's memory: accesses of up to 16 bytes where the address allows it, single elements
where not.

Whether an address is aligned is known to the compiler where it follows from the code (a shared
array, an aligned argument and an index that is a multiple of the line); elsewhere it is a test that
all units answer alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.llvm.ops.memory.elements import elements, line, line_address
from cubepy.backends.llvm.ops.memory.masked import check_mask, same_type
from cubepy.backends.llvm.ops.numbers.convert import decode, encode
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import (
    I16,
    I32,
    I64,
    carrier,
    itemsize,
    literal,
    memory_ir,
    value_type,
)
from cubepy.backends.llvm.ops.values import lane

WIDEST = 16
"""Bytes of the widest access."""


def widest(dtype: str, lanes: int) -> int:
    """Bytes of one access to a line: the largest power of two up to 16 that divides the line."""
    size = lanes * itemsize(dtype)
    return min(size & -size, WIDEST)


def words(dtype: str, lanes: int) -> ir.Type:
    """The type in which a line of narrow elements is moved: 32-bit words, which NVVM
    keeps whole.
    """
    size = lanes * itemsize(dtype)
    if itemsize(dtype) < 4 and size % 4 == 0:
        return ir.VectorType(I32, size // 4) if size > 4 else I32
    return memory_ir(dtype, lanes)


def raw_load(b: Any, dtype: str, address: Any, lanes: int, align: int) -> Any:
    """A line from memory, in pieces as wide as `align`."""
    kind = words(dtype, lanes)
    whole = memory_ir(dtype, lanes)
    size = lanes * itemsize(dtype)
    if align < itemsize(dtype) * lanes and size > align and align >= 4:
        return _pieces_load(b, dtype, address, lanes, align)
    value = b.load(b.bitcast(address, kind.as_pointer()), align=align)
    if kind == whole:
        return value
    return halves(b, value, whole) if itemsize(dtype) == 2 else b.bitcast(value, whole)


def halves(b: Any, value: Any, whole: ir.Type) -> Any:
    """32-bit words as a vector of 16-bit elements, taken apart one by one: NVVM splits a load that
    is only recast.
    """
    out = ir.Constant(whole, ir.Undefined)
    for k in range(whole.count):
        word = (
            b.extract_element(value, I32(k // 2))
            if isinstance(value.type, ir.VectorType)
            else value
        )
        part = b.trunc(b.lshr(word, I32(16)) if k % 2 else word, I16)
        out = b.insert_element(
            out, part if whole.element == I16 else b.bitcast(part, whole.element), I32(k)
        )
    return out


def _pieces_load(b: Any, dtype: str, address: Any, lanes: int, align: int) -> Any:
    per = align // itemsize(dtype)
    piece = words(dtype, per)
    pointer = b.bitcast(address, piece.as_pointer())
    out = ir.Constant(memory_ir(dtype, lanes), ir.Undefined)
    for k in range(lanes // per):
        part = b.load(b.gep(pointer, [I32(k)]), align=align)
        part = b.bitcast(part, memory_ir(dtype, per)) if piece != memory_ir(dtype, per) else part
        for j in range(per):
            out = b.insert_element(out, b.extract_element(part, I32(j)), I32(k * per + j))
    return out


def raw_store(b: Any, dtype: str, address: Any, value: Any, lanes: int, align: int) -> None:
    """A line to memory, in pieces as wide as `align`."""
    per = max(1, min(lanes, align // itemsize(dtype)))
    piece = words(dtype, per)
    pointer = b.bitcast(address, piece.as_pointer())
    for k in range(lanes // per):
        part = ir.Constant(memory_ir(dtype, per), ir.Undefined)
        for j in range(per):
            part = b.insert_element(part, b.extract_element(value, I32(k * per + j)), I32(j))
        if piece != memory_ir(dtype, per):
            part = b.bitcast(part, piece)
        b.store(part, b.gep(pointer, [I32(k)]), align=min(align, per * itemsize(dtype)))


def is_aligned(b: Any, p: Any, at: Any, k: Any, align: int) -> Any:
    """Whether element k of an array of type p lies at a multiple of `align`, as i1.

    The array's start and the index are asked for separately: that is all that LLVM's analysis can
    look through, and the first is known before a loop.
    """
    index = b.icmp_unsigned("==", b.and_(k, I64(align // itemsize(p.dtype) - 1)), I64(0))
    if p.align % align == 0 and p.align:
        return index
    return b.and_(index, b.icmp_unsigned("==", b.and_(b.ptrtoint(at, I64), I64(align - 1)), I64(0)))


def load_elements(
    b: Any, dtype: str, at: Any, k: Any, lanes: int, inside: Callable[[int], Any] | None = None
) -> Any:
    """A line element by element; `inside(j)` says whether lane j may be touched, the
    others are 0.
    """
    memory = memory_ir(dtype, lanes)
    zero = ir.Constant(memory_ir(dtype), None)
    out = ir.Constant(memory, ir.Undefined)
    for j in range(lanes):
        pointer = b.gep(at, [b.add(k, I64(j))])
        if inside is None:
            value = b.load(pointer, align=itemsize(dtype))
        else:
            before = b.block
            with b.if_then(inside(j)):
                some = b.load(pointer, align=itemsize(dtype))
                within = b.block
            value = b.phi(some.type)
            value.add_incoming(zero, before)
            value.add_incoming(some, within)
        out = b.insert_element(out, value, I32(j))
    return out


def store_elements(
    b: Any, dtype: str, at: Any, k: Any, raw: Any, inside: Callable[[int], Any] | None = None
) -> None:
    """A line element by element, where `inside(j)` holds."""
    for j in range(raw.type.count):
        pointer = b.gep(at, [b.add(k, I64(j))])
        if inside is None:
            b.store(lane(b, raw, j), pointer, align=itemsize(dtype))
        else:
            with b.if_then(inside(j)):
                b.store(lane(b, raw, j), pointer, align=itemsize(dtype))


def _line_load(b: Any, p: Any, at: Any, k: Any, n: int) -> Any:
    align = widest(p.dtype, n)
    pointer = line_address(b, p, at, k, n)
    if align == itemsize(p.dtype):
        return load_elements(b, p.dtype, at, k, n)
    with b.if_else(is_aligned(b, p, at, k, align), likely=True) as (wide, narrow):
        with wide:
            whole = raw_load(b, p.dtype, pointer, n, align)
            from_wide = b.block
        with narrow:
            parts = load_elements(b, p.dtype, at, k, n)
            from_narrow = b.block
    out = b.phi(whole.type)
    out.add_incoming(whole, from_wide)
    out.add_incoming(parts, from_narrow)
    return out


def _line_store(b: Any, p: Any, at: Any, k: Any, raw: Any, n: int) -> None:
    align = widest(p.dtype, n)
    if align == itemsize(p.dtype):
        store_elements(b, p.dtype, at, k, raw)
        return
    pointer = line_address(b, p, at, k, n)
    with b.if_else(is_aligned(b, p, at, k, align), likely=True) as (wide, narrow):
        with wide:
            raw_store(b, p.dtype, pointer, raw, n, align)
        with narrow:
            store_elements(b, p.dtype, at, k, raw)


@literal_op
def load_line(p: Any, i: Any, lanes: Any) -> Any:
    """`load_line(p, i, lanes)`: the elements from i on as a line; only the element's alignment is
    needed.
    """
    p, n = elements(p), literal(lanes)
    if n is None:
        return None
    result = value_type(carrier(p.dtype), n)
    return result(p, types.int64, lanes), lambda b, at, k, _: decode(
        b, _line_load(b, p, at, k, n), p.dtype
    )


def _store_line(p: Any, v: Any) -> Any:
    p, v = elements(p), line(v)

    def emit(b: Any, at: Any, k: Any, x: Any) -> None:
        _line_store(b, p, at, k, encode(b, x, v.dtype, p.dtype), v.lanes)

    return types.void(p, types.int64, v), emit


@op
def store_line(p: Any, i: Any, v: Any) -> Any:
    """`store_line(p, i, v)`: the lanes of v to the elements from i on."""
    return _store_line(p, v)


@op
def store_line_stream(p: Any, i: Any, v: Any) -> Any:
    """`store_line_stream(p, i, v)`: `store_line`; data that is written once passes a GPU's caches
    anyway.
    """
    return _store_line(p, v)


@literal_op
def load_line_part(p: Any, i: Any, lanes: Any, n: Any) -> Any:
    """`load_line_part(p, i, lanes, n)`: like `load_line`, but only the first n lanes; the
    others are 0.
    """
    p, count = elements(p), literal(lanes)
    if count is None:
        return None

    def emit(b: Any, at: Any, k: Any, _: Any, n: Any) -> Any:
        with b.if_else(b.icmp_signed(">=", n, I64(count)), likely=True) as (whole, part):
            with whole:
                full = _line_load(b, p, at, k, count)
                from_whole = b.block
            with part:
                some = load_elements(
                    b, p.dtype, at, k, count, lambda j: b.icmp_signed(">", n, I64(j))
                )
                from_part = b.block
        raw = b.phi(full.type)
        raw.add_incoming(full, from_whole)
        raw.add_incoming(some, from_part)
        return decode(b, raw, p.dtype)

    return value_type(carrier(p.dtype), count)(p, types.int64, lanes, types.int64), emit


@literal_op
def load_line_or(p: Any, i: Any, lanes: Any, n: Any, other: Any) -> Any:
    """`load_line_or(p, i, lanes, n, other)`: the first n lanes of `load_line`, else `other`'s."""
    p, count, other = elements(p), literal(lanes), line(other)
    if count is None:
        return None
    result = value_type(carrier(p.dtype), count)
    same_type(result, other)

    def emit(b: Any, at: Any, k: Any, _: Any, n: Any, x: Any) -> Any:
        def inside(j: int) -> Any:
            return b.icmp_signed(">", n, I64(j))

        with b.if_else(b.icmp_signed(">=", n, I64(count)), likely=True) as (whole, part):
            with whole:
                full = decode(b, _line_load(b, p, at, k, count), p.dtype)
                from_whole = b.block
            with part:
                there = decode(b, load_elements(b, p.dtype, at, k, count, inside), p.dtype)
                some = ir.Constant(there.type, ir.Undefined)
                for j in range(count):
                    chosen = b.select(inside(j), lane(b, there, j), lane(b, x, j))
                    some = b.insert_element(some, chosen, I32(j))
                from_part = b.block
        out = b.phi(full.type)
        out.add_incoming(full, from_whole)
        out.add_incoming(some, from_part)
        return out

    return result(p, types.int64, lanes, types.int64, other), emit


@op
def store_line_part(p: Any, i: Any, v: Any, n: Any) -> Any:
    """`store_line_part(p, i, v, n)`: like `store_line`, but only the first n lanes."""
    p, v = elements(p), line(v)

    def emit(b: Any, at: Any, k: Any, x: Any, n: Any) -> None:
        raw = encode(b, x, v.dtype, p.dtype)
        with b.if_else(b.icmp_signed(">=", n, I64(v.lanes)), likely=True) as (whole, part):
            with whole:
                _line_store(b, p, at, k, raw, v.lanes)
            with part:
                store_elements(b, p.dtype, at, k, raw, lambda j: b.icmp_signed(">", n, I64(j)))

    return types.void(p, types.int64, v, types.int64), emit


@op
def gather_line(p: Any, index: Any, mask: Any) -> Any:
    """`gather_line(p, index, mask)`: p[index] in the lanes where mask holds, else 0."""
    p, index, mask = elements(p), line(index), line(mask)
    check_mask(index, mask)

    def emit(b: Any, at: Any, k: Any, m: Any) -> Any:
        out = ir.Constant(memory_ir(p.dtype, index.lanes), ir.Undefined)
        zero = ir.Constant(memory_ir(p.dtype), None)
        for j in range(index.lanes):
            before = b.block
            with b.if_then(lane(b, m, j)):
                some = b.load(b.gep(at, [lane(b, k, j)]), align=itemsize(p.dtype))
                within = b.block
            value = b.phi(some.type)
            value.add_incoming(zero, before)
            value.add_incoming(some, within)
            out = b.insert_element(out, value, I32(j))
        return decode(b, out, p.dtype)

    return value_type(carrier(p.dtype), index.lanes)(p, index, mask), emit


@op
def scatter_line(p: Any, index: Any, v: Any, mask: Any) -> Any:
    """`scatter_line(p, index, v, mask)`: p[index] = v in the lanes where mask holds, lane
    0 first.
    """
    p, index, v, mask = elements(p), line(index), line(v), line(mask)
    check_mask(index, mask)

    def emit(b: Any, at: Any, k: Any, x: Any, m: Any) -> None:
        raw = encode(b, x, v.dtype, p.dtype)
        for j in range(index.lanes):
            with b.if_then(lane(b, m, j)):
                b.store(lane(b, raw, j), b.gep(at, [lane(b, k, j)]), align=itemsize(p.dtype))

    return types.void(p, index, v, mask), emit
