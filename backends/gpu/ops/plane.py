"""Shuffles, votes, reductions and scans among the units of a plane, by what a backend's planes can
do.

The units that are active take part. When all are, a reduction is a butterfly of shuffles; when only
some are (the end of a launch, a branch), each unit combines the values of the active ones in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, errors, types

from cubepy.backends.llvm.ops.numbers.arithmetic import (
    add_values,
    maxnum_values,
    minnum_values,
    mul_values,
)
from cubepy.backends.llvm.ops.registry import Op
from cubepy.backends.llvm.ops.types import I1, I32, I64, bits, described, value_type
from cubepy.backends.llvm.ops.values import const, each_lane, lanes_of

Combine = Callable[..., Any]


class Plane(ABC):
    """The instructions of a kind of GPU by which the units of a plane know of each other."""

    @abstractmethod
    def size(self, b: Any) -> int:
        """Units of a plane."""

    @abstractmethod
    def active(self, b: Any) -> Any:
        """The mask of the units of the plane that run this."""

    @abstractmethod
    def ballot(self, b: Any, mask: Any, x: Any) -> Any:
        """The mask of those of the active units where x holds."""

    @abstractmethod
    def position(self, b: Any) -> Any:
        """This unit's position in its plane, as i32."""

    @abstractmethod
    def word(self, b: Any, mask: Any, mode: str, word: Any, other: Any) -> Any:
        """32 bits of another unit: of the unit `other` ("idx"), so far above or below ("up" from
        below, "down" from above), or of the position xor `other` ("bfly").
        """

    def shuffled(self, b: Any, mask: Any, mode: str, value: Any, other: Any) -> Any:
        """A scalar or line of another unit of the plane."""
        if lanes_of(value.type):
            return each_lane(b, value, lambda x: self.shuffled(b, mask, mode, x, other))
        kind = value.type
        if isinstance(kind, ir.IntType) and kind.width < 32:
            word = b.zext(value, I32)
            return b.trunc(self.word(b, mask, mode, word, other), kind)
        if kind in (I64, ir.DoubleType()):
            whole = b.bitcast(value, I64) if kind != I64 else value
            low = b.zext(self.word(b, mask, mode, b.trunc(whole, I32), other), I64)
            high = b.zext(
                self.word(b, mask, mode, b.trunc(b.lshr(whole, I64(32)), I32), other), I64
            )
            out = b.or_(low, b.shl(high, I64(32)))
            return b.bitcast(out, kind) if kind != I64 else out
        word = b.bitcast(value, I32) if kind != I32 else value
        out = self.word(b, mask, mode, word, other)
        return b.bitcast(out, kind) if kind != I32 else out

    def all_of(self, b: Any) -> Any:
        """The mask of a whole plane."""
        return ir.IntType(self.size(b))(-1)

    def distances(self, b: Any) -> list[int]:
        """1, 2, 4, ... below the plane's size."""
        return [1 << k for k in range(self.size(b).bit_length() - 1)]

    def over_active(
        self, b: Any, mask: Any, value: Any, first: Any, step: Combine, keep: Any
    ) -> Any:
        """Combine the values of the active units in order of position; `keep(other)` says
        which count.
        """
        kind, start = mask.type, b.block
        loop, done = b.append_basic_block("plane.loop"), b.append_basic_block("plane.done")
        b.branch(loop)
        b.position_at_end(loop)
        rest = b.phi(kind)
        rest.add_incoming(mask, start)
        total = b.phi(value.type)
        total.add_incoming(first, start)
        name, form = f"llvm.cttz.i{kind.width}", ir.FunctionType(kind, [kind, I1])
        first_set = cgutils.get_or_insert_function(b.module, form, name)
        other = b.call(first_set, [rest, I1(1)])
        other = other if kind == I32 else b.trunc(other, I32)
        theirs = self.shuffled(b, mask, "idx", value, other)
        combined = step(total, theirs)
        combined = combined if keep is None else b.select(keep(other), combined, total)
        left = b.and_(rest, b.sub(rest, kind(1)))
        rest.add_incoming(left, b.block)
        total.add_incoming(combined, b.block)
        b.cbranch(b.icmp_unsigned("==", left, kind(0)), done, loop)
        b.position_at_end(done)
        return combined

    def joined(self, b: Any, whole: Callable[[], Any], part: Callable[[], Any], mask: Any) -> Any:
        """What `whole` gives where all units are active, else what `part` gives."""
        with b.if_else(b.icmp_unsigned("==", mask, self.all_of(b)), likely=True) as (every, some):
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
    return const(kind, float(number) if dtype[0] == "f" else number)


def shuffle(plane: Plane, name: str, mode: str, doc: str) -> Op:
    """An op that gives the value of another unit; see `Plane.word` for the modes."""

    def define(v: Any, n: Any) -> Any:
        dtype, lanes = described(v)
        result = value_type(dtype, lanes)
        return result(types.unliteral(v), types.int32), lambda b, x, k: plane.shuffled(
            b, plane.active(b), mode, x, k
        )

    define.__doc__ = doc
    return Op(name, define)


SHUFFLES = {
    "plane_shuffle": ("idx", "`plane_shuffle(v, unit)`: the v of a unit of the plane."),
    "plane_broadcast": ("idx", "`plane_broadcast(v, unit)`: the v of one unit."),
    "plane_shuffle_xor": ("bfly", "`plane_shuffle_xor(v, mask)`: of unit position ^ mask."),
    "plane_shuffle_up": ("up", "`plane_shuffle_up(v, n)`: of the unit n below."),
    "plane_shuffle_down": ("down", "`plane_shuffle_down(v, n)`: of the unit n above."),
}
REDUCTIONS = {"sum": add_values, "prod": mul_values, "max": maxnum_values, "min": minnum_values}
SCANS = ("inclusive", "exclusive")


def reduction(plane: Plane, name: str, combine: Combine) -> Op:
    """An op that combines the values of the active units: `plane_sum` and the like."""

    def define(v: Any) -> Any:
        dtype, lanes = described(v)
        if dtype == "bool_":
            raise errors.TypingError(f"plane_{name} takes numbers, not booleans")
        result = value_type(dtype, lanes)

        def emit(b: Any, x: Any) -> Any:
            mask = plane.active(b)

            def butterfly() -> Any:
                total = x
                for distance in reversed(plane.distances(b)):
                    other = plane.shuffled(b, plane.all_of(b), "bfly", total, I32(distance))
                    total = combine(b, dtype, total, other)
                return total

            first = _neutral(dtype, name, x.type)
            step = lambda u, w: combine(b, dtype, u, w)
            fewer = lambda: plane.over_active(b, mask, x, first, step, None)
            return plane.joined(b, butterfly, fewer, mask)

        return result(types.unliteral(v)), emit

    define.__doc__ = f"`plane_{name}(v)`: over the active units of the plane."
    return Op(f"plane_{name}", define)


def scan(plane: Plane, name: str, inclusive: bool) -> Op:
    """An op that sums over the units below, and this one if `inclusive`."""

    def define(v: Any) -> Any:
        dtype, lanes = described(v)
        result = value_type(dtype, lanes)

        def emit(b: Any, x: Any) -> Any:
            mask, position = plane.active(b), plane.position(b)
            zero = _neutral(dtype, "sum", x.type)

            def doubling() -> Any:
                total = x
                for distance in plane.distances(b):
                    below = plane.shuffled(b, plane.all_of(b), "up", total, I32(distance))
                    more = add_values(b, dtype, total, below)
                    total = b.select(b.icmp_unsigned(">=", position, I32(distance)), more, total)
                if inclusive:
                    return total
                below = plane.shuffled(b, plane.all_of(b), "up", total, I32(1))
                return b.select(b.icmp_unsigned("==", position, I32(0)), zero, below)

            test = "<=" if inclusive else "<"
            keep = lambda other: b.icmp_unsigned(test, other, position)
            step = lambda u, w: add_values(b, dtype, u, w)
            fewer = lambda: plane.over_active(b, mask, x, zero, step, keep)
            return plane.joined(b, doubling, fewer, mask)

        return result(types.unliteral(v)), emit

    define.__doc__ = (
        f"`{name}(v)`: sums over the units below{' and this one' if inclusive else ''}."
    )
    return Op(name, define)


def vote(plane: Plane, name: str, doc: str, decided: Callable[[Any, Any, Any], Any]) -> Op:
    """An op that asks the active units: `decided` of their mask and of the mask of those where the
    value holds. Each lane of a line is asked by itself.
    """

    def define(v: Any) -> Any:
        lanes = described(v)[1]
        kind = value_type("bool_", lanes) if lanes else types.boolean

        def emit(b: Any, x: Any) -> Any:
            mask = plane.active(b)
            ask = lambda y: decided(b, mask, plane.ballot(b, mask, y))
            return each_lane(b, x, ask) if lanes else ask(x)

        return kind(kind), emit

    define.__doc__ = doc
    return Op(name, define)


def every(plane: Plane) -> Op:
    """The op `plane_all`."""
    doc = "`plane_all(v)`: whether v holds in every active unit."
    return vote(plane, "plane_all", doc, lambda b, mask, found: b.icmp_unsigned("==", found, mask))


def some(plane: Plane) -> Op:
    """The op `plane_any`."""
    doc = "`plane_any(v)`: whether v holds in some active unit."
    return vote(
        plane, "plane_any", doc, lambda b, _, found: b.icmp_unsigned("!=", found, found.type(0))
    )


def collectives(plane: Plane) -> dict[str, Op]:
    """All ops on planes by their names."""
    ops = [shuffle(plane, name, mode, doc) for name, (mode, doc) in SHUFFLES.items()]
    ops += [reduction(plane, name, combine) for name, combine in REDUCTIONS.items()]
    ops += [scan(plane, f"plane_{kind}_sum", kind == "inclusive") for kind in SCANS]
    ops += [every(plane), some(plane)]
    return {op.__name__: op for op in ops}
