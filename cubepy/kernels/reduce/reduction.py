"""Reductions as data: what is done with each element, how parts are joined, and what is made of it.

A reduction walks over the elements of a part once or more: a walk adds up `value` of every element
by `step`, and may use what the walks before it found (the variance: first the mean, then the
squares about it). What the walks found is what is known of the part. `join` makes the same of two
parts, `finish` the result. The drivers, along rows and down columns, know nothing else.

On GPUs what is known of a part on the way is a tuple: a total, or an element and its position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.exponentials import bounded_exp
from cubepy.lang.dtypes import DType


@cb.func
def greater(a, b):
    """The larger by one comparison; b where one is NaN."""
    return cb.select(a > b, a, b)


@cb.func
def lesser(a, b):
    """The smaller by one comparison; b where one is NaN."""
    return cb.select(a < b, a, b)


@cb.func
def itself(v, by):
    """v"""
    return v


@cb.func
def magnitude(v, by):
    """|v|"""
    return cb.abs(v)


@cb.func
def square(v, by):
    """v^2"""
    return v * v


@cb.func
def cube(v, by):
    """|v|^3"""
    return cb.abs(v) * v * v


@cb.func
def power(v, by):
    """|v|^by"""
    return cb.pow(cb.abs(v), by)


@cb.func
def deviation(v, by):
    """(v - by)^2"""
    return (v - by) * (v - by)


@cb.func
def exponential(v, by):
    """e^(v - by); on a CPU no subnormal number, which takes half the steps."""
    if v.dtype == cb.f32 and cb.device_properties().backend == "cpu":
        return bounded_exp(v - by)
    return cb.exp(v - by)


@cb.func
def lowest_finite(top):
    """The maximum as something to subtract: infinite ones would give NaN."""
    return cb.select(cb.isinf(top), cb.cast(0, top.dtype), top)


@cb.func
def given(known, number):
    """The number that a reduction is given."""
    return number


@cb.func
def first(known, number):
    """What the first walk found."""
    return known[0]


@cb.func
def first_finite(known, number):
    """What the first walk found, as something to subtract."""
    return lowest_finite(known[0])


@cb.func
def average(total, count):
    """The mean of so many."""
    return total / count


@dataclass(frozen=True)
class Walk:
    """`step` over `value(v, by)` of every element v, beginning with `start`.

    Attributes:
        by: `by(known, number)`, of what the walks before found and the reduction's number.
        exact: the step that is right for NaN, where `step` loses it.
        end: what is known then, of the total and the count; None: the total.
        neutral: `value` of the first walk's `start` counts for nothing.
        long: `value` takes so many instructions that they should stand in the code once.
        positions: steps are of pairs (element, position): `step` where b is behind a, `exact`
            wherever it is.
    """

    value: Any
    step: Any
    start: float
    by: Any = given
    exact: Any = None
    end: Any = None
    neutral: bool = True
    long: bool = False
    positions: bool = False

    @property
    def of_parts(self) -> Walk:
        """How the numbers of parts are walked over."""
        return replace(self, value=itself, long=False)


@dataclass(frozen=True)
class Reduction:
    """A reduction.

    Attributes:
        name: what `explain` calls it.
        walks: over the elements; each finds a number, and knows those before.
        join: `join(a, b, seen, count)` are the numbers of two parts, of `seen` and of `count`
            elements, together; None: parts are reduced like elements are.
        finish: `finish(known, n, number)` is the result, of n elements.
    """

    name: str = field(compare=False)
    walks: tuple[Walk, ...]
    finish: Any
    join: Any = None

    @property
    def in_steps(self) -> bool:
        """Whether some axes may be reduced first, and the others of what these gave."""
        ends = (total, scaled_total, divided_total)
        return len(self.walks) == 1 and self.join is None and self.finish in ends

    @property
    def unfinished(self) -> Reduction:
        """What is known of a part, of a reduction of one walk."""
        return replace(self, finish=total)

    @property
    def of_parts(self) -> Reduction:
        """How the numbers of parts are reduced, where there is one of each."""
        return replace(self, walks=(self.walks[0].of_parts,))


@cb.func
def total(known, n, number):
    """The number that was found."""
    return known[0]


@cb.func
def scaled_total(known, n, number):
    """number * what was found"""
    return known[0] * number


@cb.func
def divided_total(known, n, number):
    """what was found / number"""
    return known[0] / number


@cb.func
def root(known, n, number):
    """sqrt(what was found)"""
    return cb.sqrt(known[0])


@cb.func
def any_root(known, n, number):
    """what was found ^ (1 / number)"""
    return cb.pow(known[0], 1 / number)


@cb.func
def variance(known, n, number):
    """The squares about the mean over n - number."""
    return known[1] / cb.max(n - number, n - n)


@cb.func
def deviation_of(known, n, number):
    """The standard deviation."""
    return cb.sqrt(variance(known, n, number))


@cb.func
def log_total(known, n, number):
    """log(sum(e^v))"""
    return cb.log(known[1]) + lowest_finite(known[0])


@cb.func
def moments_joined(a, b, seen, count):
    """Mean and squares about it of two parts (Chan, Golub and LeVeque, 1979)."""
    difference = b[0] - a[0]
    share = count / (seen + count)
    squares = a[1] + b[1] + difference * difference * (seen * share)
    return a[0] + difference * share, squares


@cb.func
def exponentials_joined(a, b, seen, count):
    """Largest element and sum of exponentials under it of two parts."""
    top = f.larger(a[0], b[0])
    shift = lowest_finite(top)
    return top, a[1] * cb.exp(a[0] - shift) + b[1] * cb.exp(b[0] - shift)


SUM = Reduction("sum", (Walk(itself, f.add, 0),), total)
SCALED_SUM = Reduction("scaled_sum", (Walk(itself, f.add, 0),), scaled_total)
MEAN = Reduction("mean", (Walk(itself, f.add, 0),), divided_total)
PRODUCT = Reduction("product", (Walk(itself, f.mul, 1),), total)

MOMENTS = (Walk(itself, f.add, 0, end=average), Walk(deviation, f.add, 0, first, neutral=False))
VARIANCE = Reduction("variance", MOMENTS, variance, moments_joined)
DEVIATION = Reduction("deviation", MOMENTS, deviation_of, moments_joined)

EXPONENTIALS = (Walk(itself, f.larger, -math.inf), Walk(exponential, f.add, 0, first_finite))
LOG_SUM_EXP = Reduction("log_sum_exp", EXPONENTIALS, log_total, exponentials_joined)

SOFTMAX = Reduction("softmax", (EXPONENTIALS[0], Walk(exponential, f.add, 0, first)), total)
SQUARES = Reduction("squares", (Walk(square, f.add, 0),), total)

NORMS = {
    1: Reduction("norm_1", (Walk(magnitude, f.add, 0),), total),
    2: Reduction("norm_2", (Walk(square, f.add, 0),), root),
    3: Reduction("norm_3", (Walk(cube, f.add, 0),), any_root),
    math.inf: Reduction("norm_inf", (Walk(magnitude, f.larger, 0),), total),
}
NORM = Reduction("norm", (Walk(power, f.add, 0, long=True),), any_root)


@cb.func
def joined(a, b, walk: cb.Comptime[Walk]):
    """What is known of two parts together, wherever they are."""
    step = walk.exact if walk.exact is not None else walk.step
    return step(a, b) if walk.positions else (step(a[0], b[0]),)


@cb.func
def taken(a, b, walk: cb.Comptime[Walk]):
    """The same, where b is behind a."""
    return walk.step(a, b) if walk.positions else joined(a, b, walk)


@cb.func
def selected(take, a, b):
    """b, element and position, where it is to be taken."""
    return cb.select(take, b[0], a[0]), cb.select(take, b[1], a[1])


@cb.func
def wins(a, b, largest: cb.Comptime[bool]):
    """Whether b is to be taken over a before it: strictly better, or the first NaN."""
    better = b > a if largest else b < a
    return (better | ((b != b) & (a == a))) if a.dtype.is_float else better


@cb.func
def wins_or_first(a, b, largest: cb.Comptime[bool]):
    """The same where either may be before the other: of equals the first."""
    same = b[0] == a[0]
    if a[0].dtype.is_float:
        same = same | ((b[0] != b[0]) & (a[0] != a[0]))
    return wins(a[0], b[0], largest) | (same & (b[1] < a[1]))


@cb.func
def later_largest(a, b):
    """The larger of two elements with their positions, b behind a."""
    return selected(wins(a[0], b[0], True), a, b)


@cb.func
def later_smallest(a, b):
    """The smaller of two elements with their positions, b behind a."""
    return selected(wins(a[0], b[0], False), a, b)


@cb.func
def first_largest(a, b):
    """The larger of two elements with their positions, the first of equals."""
    return selected(wins_or_first(a, b, True), a, b)


@cb.func
def first_smallest(a, b):
    """The smaller of two elements with their positions, the first of equals."""
    return selected(wins_or_first(a, b, False), a, b)


def extreme_at(dtype: DType, largest: bool) -> Walk:
    """The largest or the smallest element and where it is, the first of equals, NaN before all."""
    step, exact = (later_largest, first_largest) if largest else (later_smallest, first_smallest)
    return Walk(itself, step, worst_of(dtype, largest), exact=exact, positions=True)


def extreme(dtype: DType, largest: bool) -> Reduction:
    """The largest or the smallest element, NaN where there is one."""
    step, exact = (greater, f.larger) if largest else (lesser, f.smaller)
    start = worst_of(dtype, largest)
    walk = Walk(itself, step, start, exact=exact if dtype.is_float else None)
    return Reduction("largest" if largest else "smallest", (walk,), total)


def worst_of(dtype: DType, largest: bool) -> float | int:
    """What no element is worse than."""
    if dtype.is_float:
        return float(-np.inf if largest else np.inf)
    info = np.iinfo(dtype.numpy)
    return int(info.min if largest else info.max)
