"""A line search for steps that fulfil the strong conditions of Wolfe."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from cubepy.tensor import Tensor

DECREASE, CURVATURE = 1e-4, 0.9
"""By what share of the slope the loss falls at least, and which share of it is left at most."""


class Point(NamedTuple):
    """The loss at a step along a direction, its gradient, and its slope along the direction."""

    t: float
    loss: float
    gradient: Tensor
    slope: float = 0.0

    def at(self, t: float, direction: Tensor) -> Point:
        """The same as a point of a line."""
        return Point(t, self.loss, self.gradient, float((self.gradient * direction).sum()))


def strong_wolfe(
    along: Callable[[float], Point],
    t: float,
    direction: Tensor,
    start: Point,
    evaluations: int,
    tolerance: float,
) -> Point:
    """A step that lowers the loss enough and where little of its slope is left (Nocedal and Wright,
    Numerical Optimization, algorithms 3.5 and 3.6), found by cubic interpolation.

    Args:
        along: measures a step.
        t: the first step to try.
        direction: what steps are multiplied by.
        start: the point of step 0.
        evaluations: how many steps are measured besides the first one.
        tolerance: brackets that move no element by more are narrow enough.
    """
    new, before, tried = along(t), start, 0
    ends = [start, new]
    while tried < evaluations:
        if _too_high(new, start) or (tried > 1 and new.loss >= before.loss):
            ends = [before, new]
            break
        if abs(new.slope) <= -CURVATURE * start.slope:
            return new
        if new.slope >= 0:
            ends = [before, new]
            break
        low, high = new.t + 0.01 * (new.t - before.t), new.t * 10
        t = _lowest(before, new, low, high)
        before, new = new, along(t)
        tried += 1
        ends = [start, new]
    return _zoom(along, ends, start, evaluations - tried, tolerance, float(abs(direction).max()))


def _zoom(
    along: Callable[[float], Point],
    ends: list[Point],
    start: Point,
    evaluations: int,
    tolerance: float,
    longest: float,
) -> Point:
    """The best point of a bracket, which is narrowed until it fulfils the conditions."""
    low = 0 if ends[0].loss <= ends[1].loss else 1
    stuck = False
    for _ in range(evaluations):
        first, last = sorted(end.t for end in ends)
        if (last - first) * longest < tolerance:
            break
        t, margin = _lowest(ends[0], ends[1], first, last), 0.1 * (last - first)
        near = min(last - t, t - first) < margin
        if near and (stuck or not first < t < last):
            t = last - margin if abs(t - last) < abs(t - first) else first + margin
            near = False
        stuck = near
        new = along(t)
        if _too_high(new, start) or new.loss >= ends[low].loss:
            ends[1 - low] = new
            low = 0 if ends[0].loss <= ends[1].loss else 1
            continue
        done = abs(new.slope) <= -CURVATURE * start.slope
        if not done and new.slope * (ends[1 - low].t - ends[low].t) >= 0:
            ends[1 - low] = ends[low]
        ends[low] = new
        if done:
            break
    return ends[low]


def _too_high(new: Point, start: Point) -> bool:
    return new.loss > start.loss + DECREASE * new.t * start.slope


def _lowest(a: Point, b: Point, low: float, high: float) -> float:
    """Where the cubic through two points with their slopes is lowest, within bounds (Nocedal and
    Wright, formula 3.59); their middle where it has no minimum.
    """
    if a.t > b.t:
        a, b = b, a
    if a.t == b.t:
        return (low + high) / 2
    mean = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = mean * mean - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    root = math.sqrt(square)
    rest = b.slope - a.slope + 2 * root
    if rest == 0:
        return (low + high) / 2
    return min(max(b.t - (b.t - a.t) * (b.slope + root - mean) / rest, low), high)
