"""What is known of index arithmetic: integers as sums of named parts, and what follows from guards
around a place.

A check of an index falls away where it follows from the range of each part (a position is not
negative, a loop's variable lies between its bounds), from the conditions of the branches around it,
or from the sizes of arguments alone. The last is an assumption: it is tried when a launch is laid
out, and code for launches where it does not hold keeps the check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cubepy.compiler.ir import Expr

HOPELESS = 1 << 30  # no argument is so much larger than another
FEW = 24  # guards that are tried together, at most
PLENTY = 1 << 27  # arguments may well be shorter
OFTEN = 64  # a guard is taken so many times, at most


@dataclass(frozen=True)
class Part:
    """An integer that does not change where it is known.

    Attributes:
        text: the generated text that gives it in 64 bits; equal texts are equal parts.
        low, high: the range of its values.
        size: of which argument it is the length of which axis: (name, axis), or the number of
            elements (name, -1).
        kind: "min" or "max" of `of`; "mod" for the remainder by `of[0]`, which is not negative;
            else "".
        of: what it is made of.
        version: tells values of one text apart that it has at different times.
        changes: whether the text is that of a variable that may be given another value.
    """

    text: str
    low: int = field(compare=False)
    high: int = field(compare=False)
    size: tuple[str, int] | None = field(default=None, compare=False)
    kind: str = field(default="", compare=False)
    of: tuple[Sum, ...] = field(default=(), compare=False)
    version: int = 0
    changes: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Sum:
    """A constant plus multiples of parts; as a fact or a goal it stands for `>= 0`."""

    terms: tuple[tuple[Part, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Sum) -> Sum:
        return self.plus(other, 1)

    def __sub__(self, other: Sum) -> Sum:
        return self.plus(other, -1)

    def plus(self, other: Sum, times: int) -> Sum:
        """This and `times` the other."""
        terms = dict(self.terms)
        for part, n in other.terms:
            terms[part] = terms.get(part, 0) + n * times
        left = sorted(((p, n) for p, n in terms.items() if n), key=_order)
        return Sum(tuple(left), self.constant + other.constant * times)

    @property
    def version(self) -> int:
        """When the newest of its parts was made."""
        return max((p.version for p, _ in self.terms), default=0)

    @property
    def changes(self) -> bool:
        """Whether its text holds a variable that may be given another value."""
        return any(p.changes for p, _ in self.terms)

    def times(self, n: int) -> Sum:
        """A multiple."""
        return Sum().plus(self, n)

    @property
    def low(self) -> int:
        """The least value that the ranges of the parts allow."""
        return self.constant + sum(n * (p.low if n > 0 else p.high) for p, n in self.terms)

    @property
    def high(self) -> int:
        """The largest value that the ranges of the parts allow."""
        return self.constant + sum(n * (p.high if n > 0 else p.low) for p, n in self.terms)

    def of_sizes(self) -> Sum:
        """At most this value, and made of sizes alone: every other part at its worst."""
        worst = self.constant
        kept = []
        for p, n in self.terms:
            if p.size is not None:
                kept.append((p, n))
            else:
                worst += n * (p.low if n > 0 else p.high)
        return Sum(tuple(kept), worst)

    def holds(self, sizes: dict[tuple[str, int], int]) -> bool:
        """Whether it is >= 0 for these sizes of arguments."""
        return self.constant + sum(n * sizes[p.size] for p, n in self.terms if p.size) >= 0

    def text(self) -> str:
        """The generated text of it."""
        out = str(self.constant) if self.constant or not self.terms else ""
        for p, n in self.terms:
            sign = ("-" if n < 0 else "+") if out else ("-" if n < 0 else "")
            out += f" {sign} " if out else sign
            out += p.text if abs(n) == 1 else f"{abs(n)} * {p.text}"
        return out


def _order(term: tuple[Part, int]) -> tuple[str, int]:
    """Where a term stands among others."""
    return term[0].text, term[0].version


def constant(value: int) -> Sum:
    """A number."""
    return Sum((), value)


def single(part: Part) -> Sum:
    """One part."""
    return Sum(((part, 1),), 0)


def _as_often(fact: Sum, goal: Sum) -> list[Sum]:
    """A fact, and as often as one of its parts is in a goal; nothing where they share no part."""
    terms = dict(goal.terms)
    shared = [(terms[p], n) for p, n in fact.terms if p in terms]
    times = {many // n for many, n in shared if many % n == 0 and 1 < many // n <= OFTEN}
    return [fact, *map(fact.times, sorted(times))] if shared else []


Needs = frozenset[Sum]
NOTHING: Needs = frozenset()


def needs(goal: Sum, facts: Sequence[Sum], denied: Iterable[Sum] = ()) -> Needs | None:
    """What sizes must fulfil for `goal >= 0` to follow from facts; None where it does not."""
    if goal.low >= 0:
        return NOTHING
    for part, n in goal.terms:
        if part.kind in ("min", "max"):
            rest = goal.plus(single(part), -n)
            found = [needs(rest.plus(each, n), facts, denied) for each in part.of]
            if (part.kind == "min") == (n > 0):  # both may be it
                known = [f for f in found if f is not None]
                return NOTHING.union(*known) if len(known) == len(found) else None
            return min((f for f in found if f is not None), key=len, default=None)
    near = [g for f in facts for g in _as_often(f, goal)]
    near = near[-FEW:]
    if any((goal - f).low >= 0 for f in near):
        return NOTHING
    if any((goal - f - g).low >= 0 for i, f in enumerate(near) for g in near[:i]):
        return NOTHING
    for part, n in goal.terms:
        if (
            part.kind == "mod" and n == -1
        ):  # a remainder is less than what it is of, where that is not 0
            divisor = part.of[0] - constant(1)
            found = [needs(x, facts, denied) for x in (goal - (divisor - single(part)), divisor)]
            if all(f is not None for f in found):
                return NOTHING.union(*(f for f in found if f is not None))
    assumed = [a for a in (x.of_sizes() for x in (goal, *(goal - f for f in near))) if a.high >= 0]
    assumed = [a for a in assumed if a.constant > -HOPELESS and a not in denied]
    assumed = [a for a in assumed if a.constant >= PLENTY or any(n > 0 for _, n in a.terms)]
    return frozenset({max(assumed, key=lambda a: (a.constant, -len(a.terms)))}) if assumed else None


ALL = -(2**31), 2**31 - 1
SPANS = {
    "bool_": (0, 1),
    "u8": (0, 255),
    "i8": (-128, 127),
    "u16": (0, 65535),
    "i16": (-32768, 32767),
    "u32": (0, 2**32 - 1),
    "i32": ALL,
}
"""Between what integers lie, by their dtype."""
WIDEST = -(2**63), 2**63 - 1


def span(e: Expr, known: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Between what an integer lies, as what it is made of tells; `known` are those of variables."""
    own = SPANS.get(e.type.dtype.name, WIDEST)
    if e.op == "const":
        return (e.attr, e.attr) if type(e.attr) is int else own
    if e.op == "var":
        return known.get(e.attr, own)
    if e.op not in ("cast", "and_", "shr", "mod") or not e.args[0].type.dtype.is_int:
        return own
    inside = [span(a, known) for a in e.args]
    low, high = inside[0]
    if e.op == "cast":
        return inside[0] if own[0] <= low and high <= own[1] else own
    if e.op == "and_":
        return (0, min(h for n, h in inside if n >= 0)) if max(inside)[0] >= 0 else own
    if e.op == "shr":
        return (0, high >> min(63, inside[1][0])) if low >= 0 and inside[1][0] >= 0 else own
    return (0, inside[1][1] - 1) if inside[1][0] > 0 else own
