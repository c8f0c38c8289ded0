"""Lines from scalars and scalars from lines: splat, shuffles, reductions.

Reductions are a pairwise tree in a fixed order, so that a sum does not depend on the machine.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.llvm.ops.elementwise import Emitter
from cubepy.backends.llvm.ops.memory.elements import line
from cubepy.backends.llvm.ops.numbers.arithmetic import (
    add_values,
    maxnum_values,
    minnum_values,
    mul_values,
)
from cubepy.backends.llvm.ops.registry import Op, literal_op, op
from cubepy.backends.llvm.ops.types import I32, Line, described, ir_type, literal, value_type
from cubepy.backends.llvm.ops.values import lane, shuffled, splatted


@literal_op
def splat(v: Any, lanes: Any) -> Any:
    """`splat(v, lanes)`: v in every lane."""
    n = literal(lanes)
    if n is None:
        return None
    dtype, width = described(v)
    if width:
        raise errors.TypingError(f"splat takes a scalar, not {v}")
    return value_type(dtype, n)(types.unliteral(v), lanes), lambda b, x, _: splatted(b, x, n)


@literal_op
def iota(dtype: Any, lanes: Any) -> Any:
    """`iota(dtype, lanes)`: 0, 1, 2, ..."""
    name, n = literal(dtype), literal(lanes)
    if name is None or n is None:
        return None
    result = value_type(name, n)
    return result(dtype, lanes), lambda b, *_: ir.Constant(ir_type(name, n), list(range(n)))


def _lane_number(v: Line, k: int) -> ir.Constant:
    if not 0 <= k < v.lanes:
        raise errors.TypingError(f"{v} has no lane {k}")
    return ir.Constant(I32, k)


@literal_op
def extract(v: Any, k: Any) -> Any:
    """`extract(v, k)`: lane k."""
    v, number = line(v), literal(k)
    if number is None:
        return None
    where = _lane_number(v, number)
    return value_type(v.dtype)(v, k), lambda b, x, _: b.extract_element(x, where)


@literal_op
def insert(v: Any, k: Any, x: Any) -> Any:
    """`insert(v, k, x)`: v with x in lane k."""
    v, number = line(v), literal(k)
    if number is None:
        return None
    where = _lane_number(v, number)
    return v(v, k, value_type(v.dtype)), lambda b, y, _, x: b.insert_element(y, x, where)


def _two_lines(x: Any, y: Any) -> tuple[Line, Line]:
    x, y = line(x), line(y)
    if x.dtype != y.dtype:
        raise errors.TypingError(f"{x} and {y} have different dtypes")
    return x, y


def picked(b: Any, x: Any, y: Any, order: list[int]) -> Any:
    """Lanes of x followed by those of y; LLVM's shuffle needs them of one length."""
    n, m = x.type.count, y.type.count
    if n == m:
        return shuffled(b, x, y, order)
    longest = max(n, m)
    widened = [
        shuffled(b, v, v, [min(k, c - 1) for k in range(longest)]) for v, c in ((x, n), (y, m))
    ]
    return shuffled(b, widened[0], widened[1], [k if k < n else k - n + longest for k in order])


@literal_op
def shuffle(x: Any, y: Any, order: Any) -> Any:
    """`shuffle(x, y, "0 1 ...")`: a line of lanes picked from x, then y."""
    x, y = _two_lines(x, y)
    text = literal(order)
    if text is None:
        return None
    picks = [int(k) for k in text.split()]
    if not all(0 <= k < x.lanes + y.lanes for k in picks):
        raise errors.TypingError(f"shuffle of {x} and {y}: {text!r} names a lane that they lack")
    return value_type(x.dtype, len(picks))(x, y, order), lambda b, u, v, _: picked(b, u, v, picks)


@op
def concat(x: Any, y: Any) -> Any:
    """`concat(x, y)`: the lanes of x, then those of y."""
    x, y = _two_lines(x, y)
    n = x.lanes + y.lanes
    return value_type(x.dtype, n)(x, y), lambda b, u, v: picked(b, u, v, list(range(n)))


@op
def interleave(x: Any, y: Any) -> Any:
    """`interleave(x, y)`: x[0], y[0], x[1], y[1], ..."""
    x, y = _two_lines(x, y)
    if x.lanes != y.lanes:
        raise errors.TypingError(f"interleave: {x} and {y} differ in length")
    order = [k + side * x.lanes for k in range(x.lanes) for side in (0, 1)]
    return value_type(x.dtype, 2 * x.lanes)(x, y), lambda b, u, v: picked(b, u, v, order)


@literal_op
def slice_line(v: Any, start: Any, lanes: Any) -> Any:
    """`slice_line(v, start, lanes)`: lanes of v from `start` on."""
    v, first, n = line(v), literal(start), literal(lanes)
    if first is None or n is None:
        return None
    if first < 0 or first + n > v.lanes:
        raise errors.TypingError(f"{v} has no lanes {first} to {first + n - 1}")
    order = list(range(first, first + n))
    return value_type(v.dtype, n)(v, start, lanes), lambda b, x, *_: shuffled(b, x, x, order)


def reduced(b: Any, dtype: str, v: Any, combine: Emitter) -> Any:
    """All lanes combined: neighbours at a distance of half the line, then a quarter, ...; odd lanes
    join last.
    """
    rest = []
    n = v.type.count
    while n > 1:
        if n % 2:
            rest.append(lane(b, v, n - 1))
        n //= 2
        low, high = (shuffled(b, v, v, list(range(s, s + n))) for s in (0, n))
        v = combine(b, dtype, low, high)
    out = lane(b, v, 0)
    for odd in reversed(rest):
        out = combine(b, dtype, out, odd)
    return out


def _reduction(name: str, combine: Emitter, masks: bool, doc: str) -> Op:
    def define(v: Any) -> Any:
        v = line(v)
        if (v.dtype == "bool_") is not masks:
            raise errors.TypingError(f"{name} is not defined for {v}")
        return value_type(v.dtype)(v), lambda b, x: reduced(b, v.dtype, x, combine)

    define.__doc__ = doc
    return Op(name, define)


line_sum = _reduction("line_sum", add_values, False, "Sum of the lanes, in their dtype.")
line_prod = _reduction("line_prod", mul_values, False, "Product of the lanes, in their dtype.")
line_max = _reduction("line_max", maxnum_values, False, "Largest lane; NaN is ignored.")
line_min = _reduction("line_min", minnum_values, False, "Smallest lane; NaN is ignored.")
line_any = _reduction("line_any", lambda b, d, x, y: b.or_(x, y), True, "Whether some lane holds.")
line_all = _reduction(
    "line_all", lambda b, d, x, y: b.and_(x, y), True, "Whether every lane holds."
)
