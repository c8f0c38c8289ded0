"""Where a unit is, shared memory, barriers and prefetches, on an AMD GPU."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from cubepy.backends.gpu.ops.topology import multiple, shared_memory
from cubepy.backends.llvm.ops.memory.elements import pointer
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import I8, I32, I64, literal

__all__ = [
    "cube_count",
    "cube_position",
    "lane_position",
    "multiple",
    "no_unroll",
    "prefetch",
    "shared_memory",
    "sync_cube",
    "sync_plane",
    "unit_position",
]
VOID = ir.VoidType()
CONSTANT = 4
"""LLVM's address space of memory that no kernel writes."""
_AXES = "xyz"


def call(b: Any, name: str, result: ir.Type, *args: Any) -> Any:
    """Call an intrinsic of AMD GPUs."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.amdgcn.{name}"), args)


def _ranged(b: Any, value: Any, low: int, high: int) -> Any:
    """A word whose value is known to be in [low, high), as i64."""
    value.set_metadata("range", b.module.add_metadata([I32(low), I32(high)]))
    return b.zext(value, I64)


@literal_op
def unit_position(axis: Any, count: Any) -> Any:
    """`unit_position(axis, count)`: this unit's position in its cube; count: units of the cube
    along the axis.
    """
    a, n = literal(axis), literal(count)
    if a is None or n is None:
        return None

    def emit(b: Any, *_: Any) -> Any:
        return _ranged(b, call(b, f"workitem.id.{_AXES[a]}", I32), 0, n) if n > 1 else I64(0)

    return types.int64(axis, count), emit


@literal_op
def cube_position(axis: Any) -> Any:
    """`cube_position(axis)`: the cube's position in the launch."""
    a = literal(axis)
    if a is None:
        return None
    return types.int64(axis), lambda b, _: b.zext(call(b, f"workgroup.id.{_AXES[a]}", I32), I64)


def cubes(b: Any, axis: int) -> Any:
    """The launch's cubes along an axis, as i32: HIP leaves them behind a kernel's own arguments."""
    base = call(b, "implicitarg.ptr", I8.as_pointer(CONSTANT))
    address = b.bitcast(b.gep(base, [I64(4 * axis)]), I32.as_pointer(CONSTANT))
    value = b.load(address, align=4)
    value.set_metadata("invariant.load", b.module.add_metadata([]))
    return value


@literal_op
def cube_count(axis: Any) -> Any:
    """`cube_count(axis)`: cubes of the launch along an axis."""
    a = literal(axis)
    if a is None:
        return None
    return types.int64(axis), lambda b, _: _ranged(b, cubes(b, a), 1, 2**31 - 1)


def lane_of(b: Any) -> Any:
    """This unit's position in its plane, as i32: the units of the plane below it, counted."""
    low = call(b, "mbcnt.lo", I32, I32(-1), I32(0))
    if b.module.architecture.plane == 32:
        return low
    return call(b, "mbcnt.hi", I32, I32(-1), low)


@op
def lane_position() -> Any:
    """`lane_position()`: this unit's position in its plane."""
    return types.int64(), lambda b: b.zext(lane_of(b), I64)


@op
def no_unroll() -> Any:
    """`no_unroll()`: nothing; the step of such a loop is not known to LLVM, which leaves it."""
    return types.void(), lambda b: None


def _synchronised(b: Any, scope: str, barrier: str) -> None:
    b.fence("release", scope)
    call(b, barrier, VOID).attributes.add("convergent")
    b.fence("acquire", scope)


@op
def sync_cube() -> Any:
    """`sync_cube()`: wait until every unit of the cube is here; orders shared memory."""
    return types.void(), lambda b: _synchronised(b, "workgroup", "s.barrier")


@op
def sync_plane() -> Any:
    """`sync_plane()`: orders shared memory among the units of the plane, which run together."""
    return types.void(), lambda b: _synchronised(b, "wavefront", "wave.barrier")


@op
def prefetch(p: Any, i: Any) -> Any:
    """`prefetch(p, i)`: nothing; before gfx12 there is no such instruction."""
    return types.void(pointer(p), types.int64), lambda b, at, k: None
