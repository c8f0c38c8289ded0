"""Elements and lines of arrays: reading, writing, prefetching; shared and local memory."""

from __future__ import annotations

import math

from cubepy.compiler import convert
from cubepy.compiler.ir import Alloc, Expr, Mem, Prefetch, Store, VType
from cubepy.compiler.lower.operands import (
    as_index,
    comptime_int,
    dtype_of,
    indices,
    lanes_of,
    shape_of,
)
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import ArrayValue, Const, TupleValue, Value, tuple_items
from cubepy.errors import DTypeError, KernelTypeError, SharedMemoryError
from cubepy.lang.dtypes import DType


def array_method(s: Scope, owner: ArrayValue, method: str, args: Args, kwargs: Kwargs) -> Value:
    """`a.load(...)`, `a.store(...)`, `a.prefetch(...)`."""
    mem = owner.mem
    if mem.lanes:
        raise KernelTypeError(f"the elements of {mem.name} are lines already; index it")
    if method == "load":
        where, lanes_v, valid_v, other_v = unpack(
            "load", args, kwargs, "i", "lanes", valid=Const(None), other=Const(None)
        )
        lanes = lanes_of(lanes_v)
        indices, linear = line_position(s, mem, where)
        valid = valid_lanes(s, valid_v, lanes)
        filled = not (isinstance(other_v, Const) and other_v.value is None)
        extra = () if valid is None else (valid,)
        if filled:
            what = f"lanes of the array {mem.argument or mem.name!r}"
            extra = (*extra, convert.storable(other_v, mem.dtype, lanes, what))
        s.read.add(mem.name)
        return Expr(
            "line_load",
            VType(mem.dtype.compute, lanes),
            (*indices, *extra),
            (mem, linear, valid is not None, filled),
        )
    if method == "prefetch":
        (where,) = unpack("prefetch", args, kwargs, "i")
        indices, linear = line_position(s, mem, where)
        s.emit(Prefetch(mem, indices, linear))
        return Const(None)
    where, line, valid_v = unpack(method, args, kwargs, "i", "line", valid=Const(None))
    indices, linear = line_position(s, mem, where)
    lanes = line.type.lanes if isinstance(line, Expr) and line.type.lanes else 1
    value = convert.storable(line, mem.dtype, lanes, f"the array {mem.argument or mem.name!r}")
    valid = valid_lanes(s, valid_v, lanes)
    s.written.add(mem.name)
    s.emit(Store(mem, indices, value, linear, valid, stream=method == "store_stream"))
    return Const(None)


def valid_lanes(s: Scope, value: Value, lanes: int) -> Expr | None:
    """How many lanes of a line are there; None for all, as where a comptime count says so."""
    if isinstance(value, Const) and (value.value is None or comptime_int(value, "valid=") >= lanes):
        return None
    return as_index(s, value)


def line_position(s: Scope, mem: Mem, where: Value) -> tuple[tuple[Expr, ...], bool]:
    """Where a line starts: a position in C order, or a tuple of coordinates."""
    if (isinstance(where, Const) and isinstance(where.value, tuple)) or isinstance(
        where, TupleValue
    ):
        coords = tuple_items(where)
        return indices(s, mem, coords), mem.ndim == 1
    return (as_index(s, where),), True


def allocate(s: Scope, kind: str, shape: tuple[int, ...], dtype: DType, lanes: int = 0) -> Value:
    """Allocate shared or local memory."""
    if dtype.storage_only:
        raise DTypeError(
            f"{kind} memory cannot hold {dtype.name}", hint=f"use cb.{dtype.compute.name}"
        )
    mem = Mem(s.fresh(kind), kind, dtype, len(shape), shape, "contiguous", lanes)
    if kind == "shared":
        s.shared.append(mem)
        total = sum(math.prod(m.shape or ()) * m.dtype.itemsize for m in s.shared)
        if total > s.shared_limit:
            raise SharedMemoryError(
                f"the kernel asks for {total} bytes of shared memory; "
                f"the device has {s.shared_limit} for a cube",
                hint="use smaller tiles, or a narrower dtype",
            )
    else:
        s.emit(Alloc(mem))
    return ArrayValue(mem)


@lowers("shared")
def _shared(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    shape, dtype = unpack(name, args, kwargs, "shape", "dtype")
    return allocate(
        s, "shared", shape_of(shape, "shared memory"), dtype_of(dtype, "the dtype of shared memory")
    )


@lowers("local")
def _local(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    shape, dtype, lanes_v = unpack(name, args, kwargs, "shape", "dtype", lanes=Const(0))
    lanes = lanes_of(lanes_v, least=0)
    return allocate(
        s,
        "local",
        shape_of(shape, "local memory"),
        dtype_of(dtype, "the dtype of local memory"),
        lanes,
    )
