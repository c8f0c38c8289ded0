"""Calls of Python's own functions: translated ones, and any of comptime values."""

from __future__ import annotations

import inspect
import math
import pdb
from functools import reduce
from typing import Any

import numpy as np

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr
from cubepy.compiler.lower.loops import make_range, written_out
from cubepy.compiler.lower.registry import LOWERED
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import (
    ArrayValue,
    Const,
    RangeValue,
    TupleValue,
    UnrollValue,
    Value,
    describe,
    plain,
    refuse_loop_with,
    tuple_items,
)
from cubepy.compiler.walk.attributes import ELSEWHERE, array_attribute, wrap
from cubepy.compiler.walk.elements import subscript
from cubepy.errors import ComptimeError, CubeError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.builtins import BUILTINS, FLOAT_MATH
from cubepy.lang.mathematics import MATHEMATICS, NUMPY_NAMES

MATH = {
    getattr(math, name): name for name in (*FLOAT_MATH, *MATHEMATICS, "pow") if hasattr(math, name)
}

MATH[math.fabs] = "abs"

CHANGING = frozenset({"random", "secrets", "time"})
"""Modules of the host whose functions give something else in each call."""
SUSPECT = CHANGING | {"numpy", "None"}
"""Packages that such functions say they are of; methods of generators name none."""

PYTHON = {abs: "abs", min: "min", max: "max", round: "round", pow: "pow"}


def python_call(s: Scope, fn: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call something of Python's: a translated function, or any function of comptime values."""
    values = [*args, *kwargs.values()]
    if fn is range:
        return make_range(args)
    if fn is len:
        return length(s, args[0])
    if fn is breakpoint or fn is pdb.set_trace:
        return Const(None)  # stops on the python backend only
    if fn is print:
        return LOWERED["debug_print"](s, "debug_print", args, {})
    if fn is zip or (fn is enumerate and len(args) == 1):
        loops = (UnrollValue, RangeValue)
        refuse_loop_with(fn.__name__, [a for a in args if not isinstance(a, loops)])
        rows_of = [parts(a) for a in args]
        counted = fn is enumerate
        rows = zip(*((map(Const, range(len(rows_of[0]))), *rows_of) if counted else rows_of))
        return plain(TupleValue(tuple(plain(TupleValue(r)) for r in rows)))
    if fn is reversed and len(args) == 1:
        return backwards(s, args[0])
    numbers = [v.value for v in values if isinstance(v, Const)]
    if len(numbers) == len(values):
        if str(getattr(fn, "__module__", None)).partition(".")[0] in SUSPECT:
            refuse_chance(fn)
        refuse_change(fn)
        s.facts.reads.call(fn, tuple(numbers))
        try:
            return wrap(s, fn(*numbers[: len(args)], **dict(zip(kwargs, numbers[len(args) :]))))
        except (CubeError, RecursionError):
            raise
        except Exception as error:
            raise ComptimeError(
                f"{_name(fn)} failed at compile time: {type(error).__name__}: {error}",
                hint="with comptime values it is called once, when the code is made",
            ) from error
    try:
        known = MATH.get(fn) or PYTHON.get(fn)
    except TypeError:
        known = None
    if fn in (min, max, sum) and len(args) == 1 and isinstance(args[0], TupleValue):
        return over_items(s, fn, args[0].items)
    if known is not None:
        return LOWERED[known](s, known, args, kwargs)
    if fn in (int, float, bool):
        return python_cast(s, fn, args)
    if fn in (any, all) and len(args) == 1:
        return any_or_all(s, fn, tuple_items(args[0]))
    if fn is divmod and len(args) == 2:
        both = s.pinned(args[0]), s.pinned(args[1])
        parts_of = (convert.binary(op, *both, s.index) for op in ("floordiv", "mod"))
        return plain(TupleValue(tuple(parts_of)))
    if fn is tuple and len(args) == 1:
        return plain(TupleValue(written_out(args[0])))
    raise KernelTypeError(
        f"{_name(fn)} cannot be called with runtime values in a kernel", hint=_instead(fn)
    )


def python_cast(s: Scope, fn: Any, args: list[Value]) -> Value:
    """`int(x)`, `float(x)`, `bool(x)` of a runtime value."""
    if len(args) != 1:
        raise KernelTypeError(f"{fn.__name__} takes one argument")
    if fn is bool:
        return convert.condition(args[0])
    value = convert.runtime(args[0], s.index)
    have = value.type.dtype
    if fn is float:
        return convert.cast(value, dt.float_for(have)) if not have.is_float else value
    return value if have.is_int else convert.cast(value, dt.i64 if have is dt.f64 else dt.i32)


def length(s: Scope, value: Value) -> Value:
    """`len(value)`."""
    if isinstance(value, TupleValue):
        return Const(len(value.items))
    if isinstance(value, ArrayValue):
        return subscript(s, array_attribute(s, value, "shape"), (Const(0),))
    if isinstance(value, Const) and hasattr(value.value, "__len__"):
        return Const(len(value.value))
    if isinstance(value, Expr) and value.type.lanes:
        return Const(value.type.lanes)
    raise KernelTypeError(
        f"{describe(value)} has no length",
        hint="arrays, lines and tuples have; a tuple of one item is written (a,)",
    )


def over_items(s: Scope, fn: Any, items: tuple[Value, ...]) -> Value:
    """`min`, `max` or `sum` of a tuple."""
    if fn is sum:
        return reduce(lambda a, b: convert.binary("add", a, b, s.index), items)
    return LOWERED[fn.__name__](s, fn.__name__, [*items], {}) if items[1:] else items[0]


def any_or_all(s: Scope, fn: Any, items: tuple[Value, ...]) -> Value:
    """`any` or `all` of a tuple."""
    result: Value = Const(fn is all)
    for item in map(convert.condition, items):
        if isinstance(result, Const):
            result = item if result.value is (fn is all) else result
        elif isinstance(item, Expr):
            result = convert.binary("and_" if fn is all else "or_", result, item, s.index)
        elif item.value is not (fn is all):  # type: ignore[union-attr]
            return item
    return result


def backwards(s: Scope, value: Value) -> Value:
    """`reversed` of a tuple, or of a range whose step is 1.

    Raises:
        KernelTypeError: of anything else.
    """
    if isinstance(value, Const) and isinstance(value.value, range):
        return Const(value.value[::-1])
    if isinstance(value, RangeValue):
        if not (isinstance(value.step, Const) and value.step.value == 1):
            raise KernelTypeError(
                "reversed goes over a range with step 1 in a kernel",
                hint="write the range that counts down, as in range(last, first - 1, -step)",
            )
        first, last = (
            convert.binary("sub", v, Const(1), s.index) for v in (value.start, value.stop)
        )
        return make_range([last, first, Const(-1)])
    return plain(TupleValue(tuple_items(value)[::-1]))


MUTABLE = (list, dict, set, bytearray)
HARMLESS = frozenset(
    "copy count index get items keys values union intersection difference".split()
    + "issubset issuperset isdisjoint".split()
)
"""Methods of lists, dicts and sets that change nothing."""


def refuse_change(fn: Any) -> None:
    """Refuse methods that change a list, dict or set from outside.

    Raises:
        ComptimeError: it is one of them: the change would happen once, when the code is made.
    """
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, MUTABLE) and fn.__name__ not in HARMLESS:
        raise ComptimeError(
            f"{fn.__name__} would change a {type(owner).__name__} once, when the code is made",
            hint="lists, dicts and sets from outside are only read; store into an array argument",
        )


def refuse_chance(fn: Any) -> None:
    """Refuse functions of the host that give something else in each call.

    Raises:
        ComptimeError: it is one.
    """
    owner = type(getattr(fn, "__self__", None)).__module__
    known = str(getattr(fn, "__module__", None) or owner)
    if known in CHANGING or owner in CHANGING or f"{known}.".startswith("numpy.random."):
        raise ComptimeError(
            f"{_name(fn)} gives something else in each call, and would be called once, when the "
            "code is made",
            hint="random numbers are cb.to_uniform(cb.philox((position,), (seed,))[0]); pass what "
            "is read on the host as an argument",
        )


def parts(value: Value) -> tuple[Value, ...]:
    """What zip and enumerate go over: a tuple, a comptime range or list, or cb.unroll of one.

    Raises:
        ComptimeError: a range whose bounds are known at run time only.
    """
    if isinstance(value, (UnrollValue, RangeValue)):
        return written_out(value)
    if isinstance(value, Const) and isinstance(value.value, (range, list)):
        return tuple(map(Const, value.value))
    return tuple_items(value)


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or repr(fn)


ALIASES = NUMPY_NAMES | {  # NumPy's names of builtins
    "absolute": "abs",
    "clip": "clamp",
    "maximum": "nan_max",
    "minimum": "nan_min",
    "power": "pow",
    "where": "select",
}


def _instead(fn: Any) -> str:
    """The hint for a host function that was called with runtime values."""
    if inspect.isfunction(fn) and str(fn.__module__).partition(".")[0] == "cubepy":
        there = (
            ELSEWHERE.get(fn.__name__) or "call it outside, and pass what it gives as an argument"
        )
        return f"it is for the host; {there}"
    if inspect.isfunction(fn):
        return f"{'write a def and ' * (fn.__name__ == '<lambda>')}decorate it with @cb.func"
    if isinstance(fn, type) and issubclass(fn, (np.integer, np.floating, np.bool_)):
        return f"cb.{dt.as_dtype(fn).name}(x) does it in a kernel"
    name = str(getattr(fn, "__name__", ""))
    name = ALIASES.get(name, name)
    if fn in (isinstance, type, hasattr, getattr):
        return "ask for x.dtype, x.ndim or v.lanes: they are comptime"
    return (
        f"cb.{name} does it in a kernel"
        if name in BUILTINS
        else "kernels call cb.* and functions under @cb.func"
    )
