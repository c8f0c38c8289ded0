"""Lines of which only some lanes are in memory: ends of arrays, gathers and scatters.

Memory of a lane that is masked off is never touched.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.llvm.ops.memory.elements import elements, line, line_address
from cubepy.backends.llvm.ops.numbers.convert import decode, encode
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import (
    I32,
    I64,
    Line,
    carrier,
    itemsize,
    literal,
    memory_ir,
    value_type,
)
from cubepy.backends.llvm.ops.values import const, first_lanes, intrinsic, lane, splatted


def _align(dtype: str) -> Any:
    return ir.Constant(I32, itemsize(dtype))


@literal_op
def load_line_part(p: Any, i: Any, lanes: Any, n: Any) -> Any:
    """`load_line_part(p, i, lanes, n)`: like `load_line`, but only the first n lanes; the
    others are 0.
    """
    p, count = elements(p), literal(lanes)
    if count is None:
        return None
    memory = memory_ir(p.dtype, count)

    def emit(b: Any, at: Any, k: Any, _: Any, n: Any) -> Any:
        pointer = line_address(b, p, at, k, count)
        with b.if_else(b.icmp_signed(">=", n, ir.Constant(I64, count)), likely=True) as (
            whole,
            part,
        ):
            with whole:
                full = b.load(pointer, align=itemsize(p.dtype))
                from_whole = b.block
            with part:
                args = [
                    pointer,
                    _align(p.dtype),
                    first_lanes(b, n, count),
                    ir.Constant(memory, None),
                ]
                some = intrinsic(b, "llvm.masked.load", memory, args, [memory, pointer.type])
                from_part = b.block
        raw = b.phi(memory)
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
    result, memory = value_type(carrier(p.dtype), count), memory_ir(p.dtype, count)
    same_type(result, other)

    def emit(b: Any, at: Any, k: Any, _: Any, n: Any, x: Any) -> Any:
        address = line_address(b, p, at, k, count)
        with b.if_else(b.icmp_signed(">=", n, ir.Constant(I64, count)), likely=True) as (
            whole,
            part,
        ):
            with whole:
                full = decode(b, b.load(address, align=itemsize(p.dtype)), p.dtype)
                from_whole = b.block
            with part:
                mask = first_lanes(b, n, count)
                rest = x if x.type == memory else ir.Constant(memory, None)
                args = [address, _align(p.dtype), mask, rest]
                some = intrinsic(b, "llvm.masked.load", memory, args, [memory, address.type])
                if x.type != memory:  # carried in another dtype than memory has
                    some = b.select(mask, decode(b, some, p.dtype), x)
                from_part = b.block
        out = b.phi(full.type)
        out.add_incoming(full, from_whole)
        out.add_incoming(some, from_part)
        return out

    return result(p, types.int64, lanes, types.int64, other), emit


def same_type(result: Any, other: Any) -> None:
    """Refuse lanes of another type than what is loaded."""
    if result != other:
        raise errors.TypingError(f"lanes of {result} cannot be taken from {other}")


@op
def store_line_part(p: Any, i: Any, v: Any, n: Any) -> Any:
    """`store_line_part(p, i, v, n)`: like `store_line`, but only the first n lanes."""
    p, v = elements(p), line(v)

    def emit(b: Any, at: Any, k: Any, x: Any, n: Any) -> None:
        pointer = line_address(b, p, at, k, v.lanes)
        raw = encode(b, x, v.dtype, p.dtype)
        with b.if_else(b.icmp_signed(">=", n, ir.Constant(I64, v.lanes)), likely=True) as (
            whole,
            part,
        ):
            with whole:
                b.store(raw, pointer, align=itemsize(p.dtype))
            with part:
                _store_first(b, p, raw, pointer, n)

    return types.void(p, types.int64, v, types.int64), emit


def _store_first(b: Any, p: Any, raw: Any, pointer: Any, n: Any) -> None:
    """Store the first n lanes of a line as it lies in memory; n is less than its lanes.

    One lane is a scalar store. LLVM 22.1.0 makes wrong code for AVX-512 of a masked store whose
    mask is, in the end, a constant of one lane, and whose value is a `trunc`: it stores the lane as
    it was before, over its neighbours (llvm/llvm-project#179489). As n need not be a constant here
    to be one after inlining and unrolling, it is told apart when the program runs, so that where a
    mask is left n is anything but 1.
    """

    def masked() -> None:
        args = [raw, pointer, _align(p.dtype), first_lanes(b, n, raw.type.count)]
        intrinsic(b, "llvm.masked.store", ir.VoidType(), args, [raw.type, pointer.type])

    element = raw.type.element
    if not isinstance(element, ir.IntType) or element.width == 64:  # nothing is truncated to these
        masked()
        return
    with b.if_else(b.icmp_signed("==", n, ir.Constant(I64, 1))) as (one, more):
        with one:
            first = b.bitcast(pointer, element.as_pointer())
            b.store(lane(b, raw, 0), first, align=itemsize(p.dtype))
        with more:
            masked()


def _addresses(b: Any, p: Any, at: Any, index: Any, lanes: int) -> Any:
    """A vector of the elements' addresses."""
    base = splatted(b, b.ptrtoint(at, I64), lanes)
    bytes_off = b.mul(index, const(index.type, itemsize(p.dtype)))
    return b.inttoptr(b.add(base, bytes_off), ir.VectorType(memory_ir(p.dtype).as_pointer(), lanes))


def check_mask(index: Line, mask: Line) -> None:
    """Refuse indices and masks that do not go together."""
    if index.dtype != "i64" or mask != Line("bool_", index.lanes):
        raise errors.TypingError(
            f"indices {index} and mask {mask}: need i64 and bool_ lines of one length"
        )


@op
def gather_line(p: Any, index: Any, mask: Any) -> Any:
    """`gather_line(p, index, mask)`: p[index] in the lanes where mask holds, else 0."""
    p, index, mask = elements(p), line(index), line(mask)
    check_mask(index, mask)
    memory = memory_ir(p.dtype, index.lanes)

    def emit(b: Any, at: Any, k: Any, m: Any) -> Any:
        pointers = _addresses(b, p, at, k, index.lanes)
        args = [pointers, _align(p.dtype), m, ir.Constant(memory, None)]
        return decode(
            b, intrinsic(b, "llvm.masked.gather", memory, args, [memory, pointers.type]), p.dtype
        )

    return value_type(carrier(p.dtype), index.lanes)(p, index, mask), emit


@op
def scatter_line(p: Any, index: Any, v: Any, mask: Any) -> Any:
    """`scatter_line(p, index, v, mask)`: p[index] = v in the lanes where mask holds, lane
    0 first.
    """
    p, index, v, mask = elements(p), line(index), line(v), line(mask)
    check_mask(index, mask)
    if v.lanes != index.lanes:
        raise errors.TypingError(f"{v} does not go with the indices {index}")

    def emit(b: Any, at: Any, k: Any, x: Any, m: Any) -> None:
        pointers, raw = _addresses(b, p, at, k, index.lanes), encode(b, x, v.dtype, p.dtype)
        args = [raw, pointers, _align(p.dtype), m]
        intrinsic(b, "llvm.masked.scatter", ir.VoidType(), args, [raw.type, pointers.type])

    return types.void(p, index, v, mask), emit
