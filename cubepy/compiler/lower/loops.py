"""What loops go over: ranges, lines, and what is written out; coordinates of a position."""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr
from cubepy.compiler.lower.operands import as_index, comptime_int
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import (
    Const,
    LinesValue,
    RangeValue,
    TupleValue,
    UnrollValue,
    Value,
    describe,
    plain,
    tuple_items,
)
from cubepy.errors import ComptimeError, KernelTypeError

MAX_UNROLLED = 1 << 14  # turns that cb.unroll writes out; a compiler would take hours over more


def make_range(args: list[Value]) -> Const | RangeValue:
    """`range(...)`, comptime when its bounds are."""
    if not 1 <= len(args) <= 3:
        raise KernelTypeError(
            f"range takes 1 to 3 arguments, not {len(args)}",
            hint="range(stop), range(start, stop) or range(start, stop, step)",
        )
    for a in args:
        if isinstance(a, Const) and (
            isinstance(a.value, bool) or not hasattr(a.value, "__index__")
        ):
            raise KernelTypeError(f"range needs integers, not {a.value!r}")
    if all(isinstance(a, Const) for a in args):
        return Const(range(*(a.value for a in args)))  # type: ignore[union-attr]
    start, stop = (Const(0), args[0]) if len(args) == 1 else (args[0], args[1])
    return RangeValue(start, stop, args[2] if len(args) == 3 else Const(1))


def unrolled(over: Value) -> Value:
    """`cb.unroll(over)`."""
    if isinstance(over, Const) and isinstance(over.value, int):
        over = Const(range(comptime_int(over, "the number of turns of cb.unroll")))
    if isinstance(over, RangeValue):
        raise ComptimeError(
            "cb.unroll needs a range with comptime bounds",
            hint="make the bound a cb.Comptime parameter",
        )
    if isinstance(over, TupleValue):
        return UnrollValue(over.items)
    if isinstance(over, Const) and isinstance(over.value, (range, tuple, list)):
        if len(over.value) > MAX_UNROLLED:
            raise ComptimeError(
                f"cb.unroll writes out at most {MAX_UNROLLED} turns, not {len(over.value)}",
                hint="loop over range(...), or unroll only an inner loop",
            )
        return UnrollValue(tuple(Const(v) for v in over.value))
    raise ComptimeError(
        f"cb.unroll needs a comptime range or tuple, not {describe(over)}",
        hint="loop over range(...) at run time, or take the count as cb.Comptime[int]",
    )


def written_out(over: Value) -> tuple[Value, ...]:
    """The items that a comprehension goes over."""
    if isinstance(over, Const) and isinstance(over.value, (range, list, tuple)):
        over = unrolled(over)
    if isinstance(over, (UnrollValue, TupleValue)):
        return over.items
    if isinstance(over, RangeValue):
        raise ComptimeError(
            "a tuple needs a range with comptime bounds",
            hint="make the bound a cb.Comptime parameter, or use cb.local(shape, dtype) and a loop",
        )
    raise KernelTypeError(f"{describe(over)} cannot be looped over")


@lowers("unroll")
def _unroll(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    (v,) = unpack(name, args, kwargs, "over")
    return unrolled(v)


@lowers("range")
def _range(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    unroll = kwargs.pop("unroll", Const(True))
    if kwargs:
        raise KernelTypeError(f"cb.range has no parameter {next(iter(kwargs))!r}", hint="unroll=")
    if not isinstance(unroll, Const) or not isinstance(unroll.value, bool):
        raise ComptimeError(f"unroll= must be True or False, not {describe(unroll)}")
    over = make_range(args)
    if unroll.value:
        return over
    if isinstance(over, Const):
        r = over.value
        over = RangeValue(Const(r.start), Const(r.stop), Const(r.step))
    step = comptime_int(over.step, "the step of cb.range(..., unroll=False)")
    if step == 0:
        raise KernelTypeError("range needs a step that is not zero")
    return RangeValue(over.start, over.stop, over.step, rolled=True)


@lowers("lines")
def _lines(s: Scope, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    start, stop, lanes_v = unpack(name, args, kwargs, "start", "stop", "lanes")
    lanes = comptime_int(lanes_v, "the lane count of cb.lines")
    if lanes < 1:
        raise KernelTypeError(f"a line has at least one lane, not {lanes}")
    for bound in (start, stop):
        if isinstance(bound, Const) and (
            isinstance(bound.value, bool) or not hasattr(bound.value, "__index__")
        ):
            raise KernelTypeError(f"cb.lines needs integers, not {bound.value!r}")
        if not isinstance(bound, (Const, Expr)):
            raise KernelTypeError(f"cb.lines needs integers, not {describe(bound)}")
        if isinstance(bound, Expr) and (bound.type.lanes or not bound.type.dtype.is_int):
            raise KernelTypeError(
                f"cb.lines needs integers, not {describe(bound)}",
                hint="cast the bound with cb.cast",
            )
    return LinesValue(start, stop, Const(lanes))


@lowers("unravel")
def _unravel(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    position, shape_v = unpack(name, args, kwargs, "position", "shape")
    shape = tuple_items(shape_v)
    if not shape:
        raise KernelTypeError("cb.unravel needs the length of at least one axis")
    for v in (position, *shape):
        as_index(s, v)  # refuses what is no integer
    found: list[Value] = []
    rest = s.pinned(position, "rest")
    for extent in reversed(shape[1:]):
        extent = s.pinned(extent, "extent")
        found.append(s.pinned(convert.binary("mod", rest, extent, s.index), "at"))
        rest = s.pinned(convert.binary("floordiv", rest, extent, s.index), "rest")
    return plain(TupleValue((rest, *reversed(found))))
