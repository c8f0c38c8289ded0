"""Rules of what units of a plane or cube do together."""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import Barrier, Expr
from cubepy.compiler.lower.operands import as_index, comptime_int, number
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value
from cubepy.errors import DTypeError, KernelTypeError
from cubepy.lang.builtins import PLANE_OPS

OF_BOOLS = "ask cb.plane_all or cb.plane_any, or make numbers: cb.cast(v, cb.i32)"


@lowers("sync_cube", "sync_plane")
def _sync(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    unpack(name, args, kwargs)
    if name == "sync_cube" or s.plane > 1:
        s.emit(Barrier(plane=name == "sync_plane"))
    return Const(None)


@lowers(*PLANE_OPS)
def _plane(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    two = "broadcast" in name or "shuffle" in name
    values = unpack(name, args, kwargs, "v", *(["unit"] if two else []))
    v = number(s, values[0], name)
    if v.type.dtype.kind == "b" and name.endswith(("_sum", "_prod", "_max", "_min")):
        raise DTypeError(f"cb.{name} takes numbers, not bools", hint=OF_BOOLS)
    if "broadcast" in name:
        unit = comptime_int(values[1], "the unit of plane_broadcast")
        if not 0 <= unit < s.plane:
            raise KernelTypeError(f"unit {unit} is out of range for a plane of {s.plane}")
    if s.plane == 1:
        if name in ("plane_all", "plane_any"):
            return convert.truth(v)
        if name == "plane_exclusive_sum":
            return convert.constant(0, v.type.dtype, v.type.lanes)
        return v
    if name in ("plane_all", "plane_any"):
        if v.type.lanes:
            v = convert.truth(v)
        return Expr("plane", v.type if v.type.lanes else convert.BOOL, (v,), name)
    rest = tuple(as_index(s, x) for x in values[1:])
    return Expr("plane", v.type, (v, *rest), name)
