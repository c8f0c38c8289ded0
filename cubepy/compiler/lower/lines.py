"""Rules of lines: made from values, joined, cut, chosen from, multiplied in pairs."""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr, VType
from cubepy.compiler.lower.operands import (
    as_index,
    comptime_int,
    dtype_of,
    lanes_of,
    line_of,
    number,
    shuffled,
)
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value
from cubepy.errors import ComptimeError, DTypeError, KernelTypeError
from cubepy.lang import dtypes as dt


@lowers("splat")
def _splat(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, lanes_v = unpack(name, args, kwargs, "v", "lanes")
    x = number(s, v, name)
    lanes = lanes_of(lanes_v)
    if not x.type.lanes:
        return convert.splat(x, lanes)
    if x.type.lanes != lanes:
        raise KernelTypeError(
            f"cb.splat takes a scalar, or a line of the {lanes} lanes that it gives, not {x.type}"
        )
    return x


@lowers("concat", "interleave")
def _concat(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    a, b = (line_of(s, v, name) for v in unpack(name, args, kwargs, "a", "b"))
    if a.type.dtype is not b.type.dtype or (name == "interleave" and a.type.lanes != b.type.lanes):
        raise KernelTypeError(f"cb.{name} needs lines of one kind, not {a.type} and {b.type}")
    n, m = a.type.lanes, b.type.lanes
    order = range(n + m) if name == "concat" else [k // 2 + (k % 2) * n for k in range(2 * n)]
    return shuffled(a, b, tuple(order))


@lowers("shuffle")
def _shuffle(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    a, b, lanes = unpack(name, args, kwargs, "a", "b", "lanes")
    if not isinstance(lanes, Const):
        raise ComptimeError("the lanes of cb.shuffle must be comptime")
    return shuffled(line_of(s, a, name), line_of(s, b, name), tuple(lanes.value))


@lowers("iota")
def _iota(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    lanes_v, dtype_v = unpack(name, args, kwargs, "lanes", dtype=Const(dt.i32))
    lanes, dtype = lanes_of(lanes_v), dtype_of(dtype_v, "the dtype of cb.iota").compute
    if dtype.kind == "b":
        raise DTypeError("cb.iota counts, which a bool cannot", hint="compare it: cb.iota(n) < k")
    if dtype.is_int:
        return Expr("iota", VType(dtype, lanes))
    return convert.cast(Expr("iota", VType(dt.i32, lanes)), dtype)


@lowers("line")
def _line(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or not 1 <= len(args) <= 64:
        raise KernelTypeError(f"cb.line takes 1 to 64 numbers, not {len(args)}")
    numbers = [number(s, v, name) for v in args]
    if any(v.type.lanes for v in numbers):
        raise KernelTypeError("cb.line takes numbers, not lines", hint="join lines with cb.concat")
    met = numbers[0]
    for v in numbers[1:]:
        met = convert.unify(met, v, s.index)[0]
    dtype = met.type.dtype
    values = tuple(convert.to(v, dtype) for v in args)
    return Expr("line", VType(dtype, len(values)), values)


@lowers("keep_first")
def _keep_first(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    line_v, count_v, other_v = unpack(name, args, kwargs, "line", "n", "other")
    line = number(s, line_v, name)
    lanes = line.type.lanes
    if not lanes:
        raise KernelTypeError(f"cb.keep_first needs a line, not a scalar {line.type}")
    other = convert.storable(other_v, line.type.dtype, lanes, f"lanes of a {line.type}")
    if isinstance(count_v, Const):
        count = min(max(comptime_int(count_v, "the count of cb.keep_first"), 0), lanes)
        if count in (0, lanes):
            return line if count else other
    count_e = as_index(s, count_v)
    if count_e.type.dtype is not dt.i32:  # what does not fit is more than all lanes, or none
        least, most = (convert.constant(n, count_e.type.dtype) for n in (0, lanes))
        count_e = Expr("call", count_e.type, (count_e, most), "min")
        count_e = Expr("call", count_e.type, (count_e, least), "max")
    here = convert.splat(convert.cast(count_e, dt.i32), lanes)
    inside = Expr("lt", VType(dt.bool_, lanes), (Expr("iota", VType(dt.i32, lanes)), here))
    return Expr("select", VType(line.type.dtype, lanes), (inside, line, other))


@lowers("partition")
def _partition(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, mask = (line_of(s, value, name) for value in unpack(name, args, kwargs, "v", "mask"))
    if mask.type != VType(dt.bool_, v.type.lanes):
        raise KernelTypeError(f"cb.partition needs a mask for {v.type}, not {mask.type}")
    return Expr("call", v.type, (v, mask), name)


@lowers("slice_line")
def _slice(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, start_v, lanes_v = unpack(name, args, kwargs, "v", "start", "lanes")
    x = line_of(s, v, name)
    start, lanes = comptime_int(start_v, "the start of a slice"), lanes_of(lanes_v)
    if start < 0 or start + lanes > x.type.lanes:
        raise KernelTypeError(f"lanes {start} to {start + lanes - 1} are not lanes of {x.type}")
    return shuffled(x, x, tuple(range(start, start + lanes)))


@lowers("dot_i8")
def _dot(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    *given, most_v = unpack(name, args, kwargs, "acc", "a", "b", most=Const(255))
    acc, a, b = (number(s, v, name) for v in given)
    most = comptime_int(most_v, "the most of cb.dot_i8")
    lanes = acc.type.lanes
    want = (VType(dt.i32, lanes), VType(dt.u8, 4 * lanes), VType(dt.i8, 4 * lanes))
    if not lanes or (acc.type, a.type, b.type) != want:
        raise KernelTypeError(
            f"cb.dot_i8 needs lines (i32 of L, u8 of 4L, i8 of 4L), not ({acc.type}, "
            f"{a.type}, {b.type})"
        )
    small = most <= 128 and "byte_pairs" in s.properties.features
    return Expr("call", acc.type, (acc, a, b), "dot_i7" if small else "dot_i8")


@lowers("dot_bf16")
def _dot_pairs(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    acc, a, b = (number(s, v, name) for v in unpack(name, args, kwargs, "acc", "a", "b"))
    lanes = acc.type.lanes
    words = VType(dt.u32, lanes)
    if not lanes or (acc.type, a.type, b.type) != (VType(dt.f32, lanes), words, words):
        raise KernelTypeError(
            f"cb.dot_bf16 needs lines (f32 of L, u32 of L, u32 of L), not ({acc.type}, "
            f"{a.type}, {b.type})"
        )
    return Expr("call", acc.type, (acc, a, b), "dot_bf16")


def reduce_line(line: Expr, how: str) -> Value:
    """`line.sum()` and its like."""
    if how in ("any", "all"):
        return Expr(f"line_{how}", convert.BOOL, (convert.truth(line),))
    dtype = line.type.dtype
    if dtype.kind == "b" and how == "sum":
        return Expr("line_count", VType(dt.i32), (line,))
    if dtype.kind == "b":
        line, dtype = convert.cast(line, dt.i32), dt.i32
    return Expr(f"line_{how}", VType(dtype), (line,))
