"""Sums down columns of values that groups along rows compute, too: done from what those read, where
that moves fewer bytes than to store a value in one launch and read it in the next. So the gradient
of a norm by its weight reads x and g again, not g h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cubepy.tensor.fusion.maps import in_order
from cubepy.tensor.fusion.reductions.columns import down_columns, mapped
from cubepy.tensor.fusion.reductions.rows import reduced_shape
from cubepy.tensor.fusion.schedule import Schedule, Step


def recomputed(schedule: Schedule) -> tuple[Schedule, frozenset[int]]:
    """The schedule with such maps separate from those of rows, and what they give."""
    specs, steps = schedule.specs, schedule.steps
    rows = {shape for s in steps if (shape := reduced_shape(s, specs)) is not None}
    sums: dict[tuple[int, ...], list[Step]] = {}
    for step in steps:
        shape = down_columns(step, specs)
        if shape in rows:
            sums.setdefault(shape, []).append(step)
    separate: set[int] = set()
    for shape, some in sums.items():
        schedule = _of_shape(schedule, shape, some, separate)
    return schedule, frozenset(separate)


def _of_shape(
    schedule: Schedule, shape: tuple[int, ...], sums: list[Step], separate: set[int]
) -> Schedule:
    """Sums down columns of one shape from what their maps read, if that is less."""
    specs = schedule.specs
    summed = dict.fromkeys(s.inputs[0] for s in sums)
    chain = _maps(schedule, shape, summed)
    if not chain or not summed.keys().isdisjoint(schedule.outputs):
        return schedule
    made = {s.results[0] for s in chain}
    read = {i for s in chain for i in s.read} | summed.keys()
    now = sum(specs[i].dtype.bits * (2 if i in made else 1) for i in summed)
    then = sum(specs[i].dtype.bits for i in read - made if specs[i].shape == shape)
    if then >= now:
        return schedule
    fresh = max(specs) + 1
    other = {s.results[0]: fresh + n for n, s in enumerate(chain)}
    copies = [_renamed(s, other, (other[s.results[0]],)) for s in chain]
    own = {s.results[0]: _renamed(s, other, s.results) for s in sums}
    found = [own.get(s.results[0], s) for s in schedule.steps]
    separate.update(other.values())
    known = {**specs, **{to: specs[i] for i, to in other.items()}}
    return replace(schedule, specs=known).with_steps(in_order([*found, *copies]))


def _renamed(step: Step, other: dict[int, int], results: tuple[int, ...]) -> Step:
    """A step that reads, and gives, other values."""
    return replace(step, inputs=tuple([other.get(i, i) for i in step.inputs]), results=results)


def _maps(schedule: Schedule, shape: tuple[int, ...], wanted: Iterable[int]) -> list[Step]:
    """The maps of a shape that values are made by, in running order."""
    stack, found = list(wanted), set[int]()
    while stack:
        made = schedule.made_by.get(stack.pop())
        if made is None or made.results[0] in found or mapped(made, schedule.specs) != shape:
            continue
        found.add(made.results[0])
        stack += made.read
    return [s for s in schedule.steps if s.results[0] in found]
