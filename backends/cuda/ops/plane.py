"""Shuffles, votes, reductions and scans among the units of a plane (a warp).

The units that are active take part. When all 32 are, a reduction is a butterfly of five shuffles;
when only some are (the end of a launch, a branch), each unit combines the values of the active ones
in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, errors, types

from cubepy.backends.cuda.ops.topology import asm, register
from cubepy.backends.llvm.ops.numbers.arithmetic import (
    add_values,
    maxnum_values,
    minnum_values,
    mul_values,
)
from cubepy.backends.llvm.ops.registry import Op, op
from cubepy.backends.llvm.ops.types import I1, I32, I64, bits, described, value_type
from cubepy.backends.llvm.ops.values import each_lane, lanes_of

FULL = 0xFFFFFFFF
_MODES = {"idx": 0, "up": 1, "down": 2, "bfly": 3}
Combine = Callable[..., Any]


def active(b: Any) -> Any:
    """The mask of the units of the plane that run this."""
    return asm(b, I32, "activemask.b32 $0;", "=r", [])


def _shuffle_word(b: Any, mask: Any, mode: str, word: Any, other: Any) -> Any:
    kind = ir.FunctionType(ir.LiteralStructType([I32, I1]), [I32, I32, I32, I32, I32])
    fn = cgutils.get_or_insert_function(b.module, kind, "llvm.nvvm.shfl.sync.i32")
    clamp = 0 if mode == "up" else 31
    return b.extract_value(b.call(fn, [mask, I32(_MODES[mode]), word, other, I32(clamp)]), 0)


def shuffled(b: Any, mask: Any, mode: str, value: Any, other: Any) -> Any:
    """A scalar or line of another unit of the plane."""
    if lanes_of(value.type):
        return each_lane(b, value, lambda x: shuffled(b, mask, mode, x, other))
    kind = value.type
    if isinstance(kind, ir.IntType) and kind.width < 32:
        word = b.zext(value, I32)
        return b.trunc(_shuffle_word(b, mask, mode, word, other), kind)
    if kind in (I64, ir.DoubleType()):
        whole = b.bitcast(value, I64) if kind != I64 else value
        low = b.zext(_shuffle_word(b, mask, mode, b.trunc(whole, I32), other), I64)
        high = b.zext(
            _shuffle_word(b, mask, mode, b.trunc(b.lshr(whole, I64(32)), I32), other), I64
        )
        out = b.or_(low, b.shl(high, I64(32)))
        return b.bitcast(out, kind) if kind != I64 else out
    word = b.bitcast(value, I32) if kind != I32 else value
    out = _shuffle_word(b, mask, mode, word, other)
    return b.bitcast(out, kind) if kind != I32 else out


def _shuffle(name: str, mode: str, doc: str) -> Op:
    def define(v: Any, n: Any) -> Any:
        dtype, lanes = described(v)
        result = value_type(dtype, lanes)
        return result(types.unliteral(v), types.int32), lambda b, x, k: shuffled(
            b, active(b), mode, x, k
        )

    define.__doc__ = doc
    return Op(name, define)


plane_shuffle = _shuffle(
    "plane_shuffle", "idx", "`plane_shuffle(v, unit)`: the v of a unit of the plane."
)
plane_broadcast = _shuffle(
    "plane_broadcast", "idx", "`plane_broadcast(v, unit)`: the v of one unit."
)
plane_shuffle_xor = _shuffle(
    "plane_shuffle_xor", "bfly", "`plane_shuffle_xor(v, mask)`: of unit position ^ mask."
)
plane_shuffle_up = _shuffle(
    "plane_shuffle_up", "up", "`plane_shuffle_up(v, n)`: of the unit n below."
)
plane_shuffle_down = _shuffle(
    "plane_shuffle_down", "down", "`plane_shuffle_down(v, n)`: of the unit n above."
)


@op
def same_in_plane(v: Any) -> Any:
    """`same_in_plane(v)`: v, an integer that all 32 units have alike; a shuffle tells the code
    generator so.
    """

    def emit(b: Any, x: Any) -> Any:
        return b.sext(shuffled(b, I32(-1), "idx", b.trunc(x, I32), I32(0)), I64)

    return types.int64(types.int64), emit


def _all_active(b: Any, mask: Any) -> Any:
    return b.icmp_unsigned("==", mask, I32(-1))


def _over_active(b: Any, mask: Any, value: Any, first: Any, step: Combine, keep: Any) -> Any:
    """Combine the values of the active units in order of position; `keep(other)` says
    which count.
    """
    start = b.block
    loop, done = b.append_basic_block("plane.loop"), b.append_basic_block("plane.done")
    b.branch(loop)
    b.position_at_end(loop)
    rest = b.phi(I32)
    rest.add_incoming(mask, start)
    total = b.phi(value.type)
    total.add_incoming(first, start)
    ffs = cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, [I32, I1]), "llvm.cttz.i32")
    other = b.call(ffs, [rest, I1(1)])
    theirs = shuffled(b, mask, "idx", value, other)
    combined = step(total, theirs)
    combined = combined if keep is None else b.select(keep(other), combined, total)
    left = b.and_(rest, b.sub(rest, I32(1)))
    rest.add_incoming(left, b.block)
    total.add_incoming(combined, b.block)
    b.cbranch(b.icmp_unsigned("==", left, I32(0)), done, loop)
    b.position_at_end(done)
    return combined


def _joined(b: Any, whole: Callable[[], Any], part: Callable[[], Any], mask: Any) -> Any:
    with b.if_else(_all_active(b, mask), likely=True) as (every, some):
        with every:
            one = whole()
            from_one = b.block
        with some:
            two = part()
            from_two = b.block
    out = b.phi(one.type)
    out.add_incoming(one, from_one)
    out.add_incoming(two, from_two)
    return out


def _neutral(dtype: str, name: str, kind: ir.Type) -> Any:
    """The value that changes nothing when it is combined."""
    if name == "sum":
        number: Any = 0
    elif name == "prod":
        number = 1
    elif dtype[0] == "f":
        number = float("nan")  # minimum and maximum ignore it
    elif dtype[0] == "u":
        number = 0 if name == "max" else (1 << bits(dtype)) - 1
    else:
        edge = 1 << (bits(dtype) - 1)
        number = -edge if name == "max" else edge - 1
    from cubepy.backends.llvm.ops.values import const

    return const(kind, float(number) if dtype[0] == "f" else number)


def _reduction(name: str, combine: Combine) -> Op:
    def define(v: Any) -> Any:
        dtype, lanes = described(v)
        if dtype == "bool_":
            raise errors.TypingError(f"plane_{name} takes numbers, not booleans")
        result = value_type(dtype, lanes)

        def emit(b: Any, x: Any) -> Any:
            mask = active(b)

            def butterfly() -> Any:
                total = x
                for distance in (16, 8, 4, 2, 1):
                    total = combine(
                        b, dtype, total, shuffled(b, I32(-1), "bfly", total, I32(distance))
                    )
                return total

            first = _neutral(dtype, name, x.type)
            step = lambda u, w: combine(b, dtype, u, w)
            return _joined(b, butterfly, lambda: _over_active(b, mask, x, first, step, None), mask)

        return result(types.unliteral(v)), emit

    define.__doc__ = f"`plane_{name}(v)`: over the active units of the plane."
    return Op(f"plane_{name}", define)


plane_sum = _reduction("sum", add_values)
plane_prod = _reduction("prod", mul_values)
plane_max = _reduction("max", maxnum_values)
plane_min = _reduction("min", minnum_values)


def _scan(name: str, inclusive: bool) -> Op:
    def define(v: Any) -> Any:
        dtype, lanes = described(v)
        result = value_type(dtype, lanes)

        def emit(b: Any, x: Any) -> Any:
            mask, position = active(b), register(b, "laneid")
            zero = _neutral(dtype, "sum", x.type)

            def doubling() -> Any:
                total = x
                for distance in (1, 2, 4, 8, 16):
                    below = shuffled(b, I32(-1), "up", total, I32(distance))
                    more = add_values(b, dtype, total, below)
                    total = b.select(b.icmp_unsigned(">=", position, I32(distance)), more, total)
                if inclusive:
                    return total
                below = shuffled(b, I32(-1), "up", total, I32(1))
                return b.select(b.icmp_unsigned("==", position, I32(0)), zero, below)

            test = "<=" if inclusive else "<"
            keep = lambda other: b.icmp_unsigned(test, other, position)
            step = lambda u, w: add_values(b, dtype, u, w)
            return _joined(b, doubling, lambda: _over_active(b, mask, x, zero, step, keep), mask)

        return result(types.unliteral(v)), emit

    define.__doc__ = (
        f"`{name}(v)`: sums over the units below{' and this one' if inclusive else ''}."
    )
    return Op(name, define)


plane_inclusive_sum = _scan("plane_inclusive_sum", True)
plane_exclusive_sum = _scan("plane_exclusive_sum", False)


def _vote(b: Any, x: Any) -> tuple[Any, Any]:
    mask = active(b)
    kind = ir.FunctionType(I32, [I32, I1])
    fn = cgutils.get_or_insert_function(b.module, kind, "llvm.nvvm.vote.ballot.sync")
    return b.call(fn, [mask, x]), mask


@op
def plane_all(v: Any) -> Any:
    """`plane_all(v)`: whether v holds in every active unit."""

    def emit(b: Any, x: Any) -> Any:
        ballot, mask = _vote(b, x)
        return b.icmp_unsigned("==", ballot, mask)

    return types.boolean(types.boolean), emit


@op
def plane_any(v: Any) -> Any:
    """`plane_any(v)`: whether v holds in some active unit."""

    def emit(b: Any, x: Any) -> Any:
        return b.icmp_unsigned("!=", _vote(b, x)[0], I32(0))

    return types.boolean(types.boolean), emit
