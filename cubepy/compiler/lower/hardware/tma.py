"""Rules of asynchronous copies: of a few bytes by each unit, and of boxes by the copy engine."""

from __future__ import annotations

import math

from cubepy.compiler import convert
from cubepy.compiler.ir import DebugAssert, Expr, Mem
from cubepy.compiler.lower.hardware.operands import (
    NONE,
    TRUE,
    barrier,
    choice,
    element,
    emit,
    flag,
    holds,
    memory,
    require,
    words,
)
from cubepy.compiler.lower.operands import as_index
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value, tuple_items
from cubepy.errors import DTypeError, KernelTypeError
from cubepy.lang import dtypes as dt

UNIT = 16
"""Bytes between which a box may begin along the innermost axis: elsewhere the copy engine stops
the kernel with an illegal instruction (seen on an H200; PTX's reference does not say so).
"""


@lowers("copy_async")
def _copy_async(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    to_v, i, from_v, j, n_v, valid = unpack(
        name, args, kwargs, "shared", "i", "array", "j", "nbytes", valid=TRUE
    )
    to = memory(to_v, ("shared",), "the target of cb.copy_async")
    source = memory(from_v, ("global",), "the source of cb.copy_async")
    if not holds(to, source.dtype):
        raise DTypeError(
            f"cb.copy_async copies from {source.dtype.name} to {to.dtype.name}; it does not convert"
        )
    nbytes = choice(s, n_v, (4, 8, 16), "the bytes of cb.copy_async")
    indices = (
        element(s, to, i, "the target of cb.copy_async"),
        element(s, source, j, "the source of cb.copy_async"),
    )
    s.written.add(to.name)
    s.read.add(source.name)
    ok = convert.condition(valid)
    if isinstance(ok, Const):
        if ok.value:
            return emit(s, name, (to, source), indices, (nbytes,))
        ok = convert.constant(False, dt.bool_)
    return emit(s, "copy_async_if", (to, source), (*indices, ok), (nbytes,))  # type: ignore[arg-type]


@lowers("copy_async_commit", "tma_commit", "fence_async", "wgmma_commit", "sync_cluster")
def _plain(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    unpack(name, args, kwargs)
    return emit(s, name)


@lowers("copy_async_wait")
def _copy_wait(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    (n,) = unpack(name, args, kwargs, "n")
    return emit(s, name, attrs=(choice(s, n, range(32), "the groups of cb.copy_async_wait"),))


def coordinates(s: Scope, mem: Mem, value: Value, name: str) -> tuple[Expr, ...]:
    """Where a box starts, one index for each axis of the map's array."""
    coords = tuple_items(value) if not isinstance(value, Expr) else (value,)
    if len(coords) != mem.ndim:
        raise KernelTypeError(
            f"cb.{name} needs {mem.ndim} coordinates for the map {mem.argument!r}, not "
            f"{len(coords)}"
        )
    indices = tuple(as_index(s, c) for c in coords)
    whole = UNIT // mem.dtype.itemsize
    last = coords[-1]
    rule = (
        f"the innermost coordinate of cb.{name} must be a multiple of {whole} {mem.dtype.name} "
        f"({UNIT} bytes)"
    )
    if whole > 1 and isinstance(last, Const) and last.value % whole:
        raise KernelTypeError(
            f"{rule}, not {last.value}", hint="copy a box that begins earlier and skip its start"
        )
    if whole > 1 and s.debug:
        rest = convert.binary("mod", indices[-1], Const(whole), s.index)
        s.emit(DebugAssert(convert.to(convert.compare("eq", rest, Const(0)), dt.bool_), rule))
        begin = convert.binary("sub", indices[-1], rest, s.index)  # so that the device goes on
        return (*indices[:-1], as_index(s, begin))
    return indices


def _fits(tile: Mem, source: Mem, name: str) -> None:
    if not holds(tile, source.dtype):
        raise DTypeError(
            f"cb.{name} copies between {tile.dtype.name} in shared memory and a map of "
            f"{source.dtype.name}; it does not convert"
        )
    if math.prod(tile.shape or ()) < math.prod(source.shape or ()):
        raise KernelTypeError(
            f"the box {source.shape} of the map {source.argument!r} has more elements than "
            f"the shared memory {tile.shape}"
        )


@lowers("tma_load")
def _tma_load(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    to_v, i, map_v, coords, bar, b, mask = unpack(
        name, args, kwargs, "shared", "i", "map", "coords", "bar", "b", multicast=NONE
    )
    to = memory(to_v, ("shared",), "the target of cb.tma_load")
    source = memory(map_v, ("map",), "the source of cb.tma_load")
    _fits(to, source, name)
    signal = barrier(s, bar, name)
    s.written.add(to.name)
    s.read.add(source.name)
    where = (element(s, to, i, "the target of cb.tma_load"), element(s, signal, b, "a barrier"))
    several = not (isinstance(mask, Const) and mask.value is None)
    if several:
        require(s, "cluster")
        where = (*where, as_index(s, mask))  # type: ignore[assignment]
    op = "tma_load_multicast" if several else "tma_load"
    return emit(s, op, (to, signal, source), (*where, *coordinates(s, source, coords, name)))


@lowers("tma_store")
def _tma_store(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    map_v, coords, from_v, i = unpack(name, args, kwargs, "map", "coords", "shared", "i")
    target = memory(map_v, ("map",), "the target of cb.tma_store")
    source = memory(from_v, ("shared",), "the source of cb.tma_store")
    _fits(source, target, name)
    s.read.add(source.name)
    s.written.add(target.name)
    where = element(s, source, i, "the source of cb.tma_store")
    return emit(s, name, (source, target), (where, *coordinates(s, target, coords, name)))


@lowers("tma_wait")
def _tma_wait(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    n, read = unpack(name, args, kwargs, "n", read=TRUE)
    return emit(
        s, name, attrs=(choice(s, n, range(32), "the groups of cb.tma_wait"), flag(read, "read"))
    )


@lowers("tma_prefetch")
def _tma_prefetch(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    (map_v,) = unpack(name, args, kwargs, "map")
    return emit(s, name, (memory(map_v, ("map",), "what cb.tma_prefetch takes"),))


@lowers("add_line")
def _add_line(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    target, i, line = unpack(name, args, kwargs, "array", "i", "line")
    mem = memory(target, ("global",), "the target of cb.add_line")
    if mem.dtype is not dt.f32:
        raise DTypeError(f"cb.add_line adds to f32, not to {mem.dtype.name}")
    value = words(s, line, (2, 4), "what cb.add_line adds", dt.f32)
    s.written.add(mem.name)
    return emit(s, name, (mem,), (value, element(s, mem, i, "the target of cb.add_line")))
