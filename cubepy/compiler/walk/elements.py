"""`owner[at]`, and assignments to it."""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr, Store, VType
from cubepy.compiler.lower.operands import comptime_int, indices
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import ArrayValue, Const, TupleValue, Value, describe
from cubepy.compiler.walk.attributes import wrap
from cubepy.errors import ComptimeError, KernelTypeError


def subscript(s: Scope, owner: Value, at: tuple[Value, ...]) -> Value:
    """`owner[at]`."""
    if isinstance(owner, ArrayValue):
        mem = owner.mem
        s.read.add(mem.name)
        return Expr("load", VType(mem.dtype.compute, mem.lanes), indices(s, mem, at), mem)
    if isinstance(owner, Expr) and owner.type.lanes:
        k = comptime_int(at[0], "the lane of a line")
        if not 0 <= k < owner.type.lanes:
            raise KernelTypeError(
                f"lane {k} is out of range: the line has {owner.type.lanes} lanes",
                hint=f"lanes are numbered 0 to {owner.type.lanes - 1}",
            )
        return Expr("extract", VType(owner.type.dtype), (owner,), k)
    if isinstance(owner, TupleValue) and len(at) == 1:
        k = comptime_int(at[0], "the index of a tuple")
        if not -len(owner.items) <= k < len(owner.items):
            raise KernelTypeError(
                f"item {k} is out of range: there are {len(owner.items)}",
                hint=f"items are numbered 0 to {len(owner.items) - 1}; -1 is the last"
                if owner.items
                else "the tuple is empty",
            )
        return owner.items[k]
    if isinstance(owner, Const):
        if not all(isinstance(i, Const) for i in at):
            raise ComptimeError(
                "a comptime value is indexed with a runtime value",
                hint="pass the values as an array instead",
            )
        key = tuple(i.value for i in at)  # type: ignore[union-attr]
        try:
            return wrap(s, s.facts.reads.item(owner.value, key if len(key) > 1 else key[0]))
        except (IndexError, KeyError, TypeError) as error:
            raise KernelTypeError(
                f"{describe(owner)} cannot be indexed with "
                f"{key if len(key) > 1 else key[0]!r}: {error}",
                hint="both are comptime: its items are known when the code is made",
            ) from None
    raise KernelTypeError(f"{describe(owner)} cannot be indexed", hint=_unindexed(owner))


def _unindexed(owner: Value) -> str:
    """What was meant by an index of something that has no items."""
    if isinstance(owner, Expr) and owner.op == "topology":
        return f"a position is a number: cb.{owner.attr}; those along axes end in _X, _Y and _Z"
    return "arrays, lines and tuples have items" if isinstance(owner, Expr) else ""


def store_subscript(s: Scope, owner: Value, at: tuple[Value, ...], value: Value) -> None:
    """`owner[at] = value`."""
    if not isinstance(owner, ArrayValue):
        raise KernelTypeError(
            f"{describe(owner)} cannot be assigned to by index",
            hint="lines and tuples are immutable; make a new one"
            if not isinstance(owner, Const) or isinstance(owner.value, tuple)
            else "what comes from outside is only read; store into an array, or cb.local(...)",
        )
    mem = owner.mem
    s.written.add(mem.name)
    if isinstance(value, Expr) and value.type.lanes and not mem.lanes:
        raise KernelTypeError(
            "a line cannot be stored into one element",
            hint=f"use {mem.argument or mem.name}.store(i, line)",
        )
    what = f"the array {mem.argument or mem.name!r}"
    s.emit(Store(mem, indices(s, mem, at), convert.storable(value, mem.dtype, mem.lanes, what)))
