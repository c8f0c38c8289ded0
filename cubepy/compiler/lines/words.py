"""How the words that make lines, tuples and coordinates, and choose by masks, become IR."""

from __future__ import annotations

import ast
from functools import reduce
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.builtin_calls import (
    LOWERED,
    Args,
    Kwargs,
    Lowering,
    line_of,
    lowers,
    shuffled,
    unpack,
)
from cubepy.compiler.ir import (
    Assign,
    Break,
    Continue,
    Expr,
    For,
    If,
    Stmt,
    VType,
    While,
    expressions,
    walk,
)
from cubepy.compiler.lines.loops import LineLoops
from cubepy.compiler.source import stored_names
from cubepy.compiler.values import (
    Const,
    RangeValue,
    TupleValue,
    UnrollValue,
    Value,
    describe,
    plain,
)
from cubepy.errors import ComptimeError, DTypeError, KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt

PURE = (Assign, If, For, While, Break, Continue)
"""Statements of inlined funcs that do no more than compute."""


class Words(LineLoops):
    """Adds conditional expressions on masks and tuples by comprehension to what can be walked."""

    def lane_by_lane(self, mask: Expr, node: ast.IfExp) -> Value:
        """`a if mask else b`.

        Raises:
            KernelTypeError: a side touches memory, which it would do for all lanes.
        """
        mark = len(self.out)
        a, b = self.eval_all(node.body, node.orelse)
        sides = [v for v in (a, b) if isinstance(v, Expr)]
        if any(v.touches_memory for v in sides) or not all(map(_pure, walk(self.out[mark:]))):
            raise KernelTypeError(
                "both sides of a conditional expression on a mask are evaluated, "
                "and one of them touches memory",
                hint="load into a variable before, or use cb.select(mask, a, b)",
            )
        return LOWERED["select"](self, "select", [mask, a, b], {})

    def expr_GeneratorExp(self, node: ast.GeneratorExp) -> Value:
        """`(f(i) for i in ...)`, written out: a tuple."""
        if len(node.generators) > 1:
            raise KernelSyntaxError(
                "a comprehension has one for in a kernel", hint="put one into another"
            )
        (loop,) = node.generators
        names = stored_names(loop.target)
        before = {n: self.frame.env[n] for n in names if n in self.frame.env}
        values: list[Value] = []
        marks: list[int] = []
        for item in self.written_out(self.eval(loop.iter)):
            self.bind_comprehended(loop.target, item)
            if all(self.comptime_truth(test) for test in loop.ifs):
                values.append(self.eval(node.elt))
                marks.append(len(self.out))
        for i in reversed(range(len(values) - 1)):
            values[i] = self.keep(values[i], marks[i])
        for name in names:
            self.frame.env.pop(name, None)
        self.frame.env.update(before)
        return plain(TupleValue(tuple(values)))

    def over_items(self, fn: Any, items: tuple[Value, ...]) -> Value:
        """`min`, `max` or `sum` of a tuple."""
        if fn is sum:
            return reduce(lambda a, b: convert.binary("add", a, b, self.index), items)
        return LOWERED[fn.__name__](self, fn.__name__, [*items], {}) if items[1:] else items[0]

    def parts(self, value: Value) -> tuple[Value, ...]:
        """What zip and enumerate go over: a tuple, or a comptime range or list."""
        if isinstance(value, Const) and isinstance(value.value, (range, list)):
            return tuple(map(Const, value.value))
        return self._tuple(value)

    def written_out(self, over: Value) -> tuple[Value, ...]:
        """The items that a comprehension goes over."""
        if isinstance(over, Const) and isinstance(over.value, (range, list, tuple)):
            over = self.unrolled(over)  # type: ignore[attr-defined]
        if isinstance(over, (UnrollValue, TupleValue)):
            return over.items
        if isinstance(over, RangeValue):
            raise ComptimeError(
                "a tuple needs a range with comptime bounds",
                hint="make the bound a cb.Comptime parameter, "
                "or use cb.local(shape, dtype) and a loop",
            )
        raise KernelTypeError(f"{describe(over)} cannot be looped over")

    def bind_comprehended(self, target: ast.expr, item: Value) -> None:
        """Bind a comprehension's variables, which are its own."""
        if isinstance(target, ast.Name):
            self.frame.env[target.id] = item
        elif isinstance(target, ast.Tuple):
            for t, v in zip(target.elts, self.items_of(item, len(target.elts)), strict=True):
                self.bind_comprehended(t, v)
        else:
            raise self.unsupported(target)

    def comptime_truth(self, node: ast.expr) -> bool:
        """Whether a condition holds that is known when the code is made."""
        value = self.eval(node)
        if not isinstance(value, Const):
            raise ComptimeError(
                f"the condition of a comprehension must be comptime, but it is {describe(value)}"
            )
        return bool(value.value)


def _pure(s: Stmt) -> bool:
    return isinstance(s, PURE) and not any(e.touches_memory for e in expressions(s))


@lowers("iota")
def _iota(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    lanes_v, dtype_v = unpack(name, args, kwargs, "lanes", dtype=Const(dt.i32))
    lanes, dtype = s.lanes_of(lanes_v), s.dtype_of(dtype_v, "the dtype of cb.iota").compute
    if dtype.kind == "b":
        raise DTypeError("cb.iota counts, which a bool cannot", hint="compare it: cb.iota(n) < k")
    if dtype.is_int:
        return Expr("iota", VType(dtype, lanes))
    return convert.cast(Expr("iota", VType(dt.i32, lanes)), dtype)


@lowers("line")
def _line(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or not 1 <= len(args) <= 64:
        raise KernelTypeError(f"cb.line takes 1 to 64 numbers, not {len(args)}")
    numbers = [s.number(v, name) for v in args]
    if any(v.type.lanes for v in numbers):
        raise KernelTypeError("cb.line takes numbers, not lines", hint="join lines with cb.concat")
    met = numbers[0]
    for v in numbers[1:]:
        met = convert.unify(met, v, s.index)[0]
    dtype = met.type.dtype
    values = tuple(convert.to(v, dtype) for v in args)
    return Expr("line", VType(dtype, len(values)), values)


@lowers("keep_first")
def _keep_first(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    line_v, count_v, other_v = unpack(name, args, kwargs, "line", "n", "other")
    line = s.number(line_v, name)
    lanes = line.type.lanes
    if not lanes:
        raise KernelTypeError(f"cb.keep_first needs a line, not a scalar {line.type}")
    other = convert.storable(other_v, line.type.dtype, lanes, f"lanes of a {line.type}")
    if isinstance(count_v, Const):
        count = min(max(s.comptime_int(count_v, "the count of cb.keep_first"), 0), lanes)
        if count in (0, lanes):
            return line if count else other
    count_e = s.as_index(count_v)
    if count_e.type.dtype is not dt.i32:  # what does not fit is more than all lanes, or none
        least, most = (convert.constant(n, count_e.type.dtype) for n in (0, lanes))
        count_e = Expr("call", count_e.type, (count_e, most), "min")
        count_e = Expr("call", count_e.type, (count_e, least), "max")
    here = convert.splat(convert.cast(count_e, dt.i32), lanes)
    inside = Expr("lt", VType(dt.bool_, lanes), (Expr("iota", VType(dt.i32, lanes)), here))
    return Expr("select", VType(line.type.dtype, lanes), (inside, line, other))


@lowers("unravel")
def _unravel(s: Any, name: str, args: Args, kwargs: Kwargs) -> Value:
    position, shape_v = unpack(name, args, kwargs, "position", "shape")
    shape = s._tuple(shape_v)
    if not shape:
        raise KernelTypeError("cb.unravel needs the length of at least one axis")
    for v in (position, *shape):
        s.as_index(v)  # refuses what is no integer
    found: list[Value] = []
    rest = s.pinned(position, "rest")
    for extent in reversed(shape[1:]):
        extent = s.pinned(extent, "extent")
        found.append(s.pinned(convert.binary("mod", rest, extent, s.index), "at"))
        rest = s.pinned(convert.binary("floordiv", rest, extent, s.index), "rest")
    return plain(TupleValue((rest, *reversed(found))))


@lowers("range")
def _range(s: Any, name: str, args: Args, kwargs: Kwargs) -> Value:
    unroll = kwargs.pop("unroll", Const(True))
    if kwargs:
        raise KernelTypeError(f"cb.range has no parameter {next(iter(kwargs))!r}", hint="unroll=")
    if not isinstance(unroll, Const) or not isinstance(unroll.value, bool):
        raise ComptimeError(f"unroll= must be True or False, not {describe(unroll)}")
    over = s.make_range(args)
    if unroll.value:
        return over  # type: ignore[no-any-return]
    if isinstance(over, Const):
        r = over.value
        over = RangeValue(Const(r.start), Const(r.stop), Const(r.step))
    step = s.comptime_int(over.step, "the step of cb.range(..., unroll=False)")
    if step == 0:
        raise KernelTypeError("range needs a step that is not zero")
    return RangeValue(over.start, over.stop, over.step, rolled=True)


@lowers("partition")
def _partition(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, mask = (line_of(s, value, name) for value in unpack(name, args, kwargs, "v", "mask"))
    if mask.type != VType(dt.bool_, v.type.lanes):
        raise KernelTypeError(f"cb.partition needs a mask for {v.type}, not {mask.type}")
    return Expr("call", v.type, (v, mask), name)


@lowers("slice_line")
def _slice(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, start_v, lanes_v = unpack(name, args, kwargs, "v", "start", "lanes")
    x = line_of(s, v, name)
    start, lanes = s.comptime_int(start_v, "the start of a slice"), s.lanes_of(lanes_v)
    if start < 0 or start + lanes > x.type.lanes:
        raise KernelTypeError(f"lanes {start} to {start + lanes - 1} are not lanes of {x.type}")
    return shuffled(x, x, tuple(range(start, start + lanes)))
