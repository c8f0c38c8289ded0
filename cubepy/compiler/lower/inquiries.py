"""Rules of what asks or tells: comptime values, the device, prints and assertions while
debugging.
"""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import DebugAssert, DebugPrint
from cubepy.compiler.lower.operands import number
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value, describe
from cubepy.errors import ComptimeError
from cubepy.lang import dtypes as dt


@lowers("comptime")
def _comptime(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    (v,) = unpack(name, args, kwargs, "expr")
    if not isinstance(v, Const):
        raise ComptimeError(
            f"cb.comptime was given {describe(v)}",
            hint="comptime values come from cb.Comptime parameters",
        )
    return v


@lowers("device_properties")
def _properties(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    unpack(name, args, kwargs)
    return Const(s.properties)


@lowers("debug_print")
def _print(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    if s.debug:
        s.emit(
            DebugPrint(tuple(v.value if isinstance(v, Const) else number(s, v, name) for v in args))
        )
    return Const(None)


@lowers("debug_assert")
def _assert(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    cond, message = unpack(name, args, kwargs, "condition", message=Const("assertion failed"))
    if not isinstance(message, Const):
        raise ComptimeError("the message of cb.debug_assert must be comptime")
    if s.debug:
        c = convert.condition(cond)
        s.emit(DebugAssert(convert.to(c, dt.bool_), str(message.value)))
    return Const(None)
