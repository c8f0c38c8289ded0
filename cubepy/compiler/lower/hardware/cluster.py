"""Rules of clusters, of the registers of planes, and of launches that overlap."""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import VType
from cubepy.compiler.lower.hardware.operands import (
    NONE,
    choice,
    element,
    emit,
    flag,
    memory,
    require,
    result,
)
from cubepy.compiler.lower.operands import as_index
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value
from cubepy.errors import DTypeError, KernelTypeError

MAX_CLUSTER = 16


@lowers("cluster")
def _cluster(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    x, y, z = (
        choice(s, v, range(1, MAX_CLUSTER + 1), "a side of a cluster")
        for v in unpack(name, args, kwargs, "x", y=Const(1), z=Const(1))
    )
    if x * y * z > MAX_CLUSTER:
        raise KernelTypeError(f"a cluster has at most {MAX_CLUSTER} cubes, not {x * y * z}")
    if s.cluster not in ((1, 1, 1), (x, y, z)):
        raise KernelTypeError(
            f"the cubes are in clusters of {s.cluster} already and cannot be in clusters of "
            f"{(x, y, z)}"
        )
    s.cluster = (x, y, z)
    return NONE


@lowers("load_cluster")
def _load_cluster(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    from_v, i, rank = unpack(name, args, kwargs, "shared", "i", "rank")
    source = memory(from_v, ("shared",), "the source of cb.load_cluster")
    if source.dtype.bits not in (32, 64):
        raise DTypeError(f"cb.load_cluster reads 32 or 64 bits, not {source.dtype.name}")
    s.read.add(source.name)
    indices = (element(s, source, i, "the source of cb.load_cluster"), as_index(s, rank))
    return result(s, name, VType(source.dtype), (source,), indices, ())


@lowers("store_cluster")
def _store_cluster(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    into, i, value_v, rank = unpack(name, args, kwargs, "shared", "i", "value", "rank")
    target = memory(into, ("shared",), "the target of cb.store_cluster")
    if target.dtype.bits not in (32, 64):
        raise DTypeError(f"cb.store_cluster writes 32 or 64 bits, not {target.dtype.name}")
    value = convert.storable(value_v, target.dtype, 0, "what cb.store_cluster writes to")
    s.written.add(target.name)
    indices = (element(s, target, i, "the target of cb.store_cluster"), value, as_index(s, rank))
    return emit(s, name, (target,), indices)


@lowers("set_registers")
def _set_registers(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    n, grow = unpack(name, args, kwargs, "n", "grow")
    return emit(
        s, name, attrs=(choice(s, n, range(24, 257, 8), "the registers"), flag(grow, "grow"))
    )


@lowers("wait_previous", "start_next")
def _overlap(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    unpack(name, args, kwargs)
    s.overlap = s.overlap or name == "wait_previous"
    return emit(s, name)


@lowers("resident")
def _resident(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    (cubes,) = unpack(name, args, kwargs, "cubes")
    s.resident = choice(s, cubes, range(1, 33), "the cubes of cb.resident")
    return NONE
