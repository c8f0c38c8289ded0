"""What is known of index arithmetic: integers as sums of named parts, and what follows from guards
around a place.

A check of an index falls away where it follows from the range of each part (a position is not
negative, a loop's variable lies between its bounds), from the conditions of the branches around it,
or from the sizes of arguments alone. The last is an assumption: it is tried when a launch is laid
out, and code for launches where it does not hold keeps the check.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

HOPELESS = 1 << 30  # no argument is so much larger than another
FEW = 24  # guards that are tried together, at most


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
    """

    text: str
    low: int = field(compare=False)
    high: int = field(compare=False)
    size: tuple[str, int] | None = field(default=None, compare=False)
    kind: str = field(default="", compare=False)
    of: tuple[Sum, ...] = field(default=(), compare=False)


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
        left = sorted(((p, n) for p, n in terms.items() if n), key=lambda t: t[0].text)
        return Sum(tuple(left), self.constant + other.constant * times)

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


def constant(value: int) -> Sum:
    """A number."""
    return Sum((), value)


def single(part: Part) -> Sum:
    """One part."""
    return Sum(((part, 1),), 0)


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
    near = [f for f in facts if not {p for p, _ in f.terms}.isdisjoint(p for p, _ in goal.terms)]
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
    assumed = [a for a in assumed if any(n > 0 for _, n in a.terms)]
    return frozenset({max(assumed, key=lambda a: (a.constant, -len(a.terms)))}) if assumed else None
