"""Maps of arrays that are put together, part by part: `concat([-b, a]) * s + x * c` of a rotary
embedding as a map for each half, which then are one launch that writes both.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import NamedTuple

from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import OPS, Spec

MOST_PARTS = 4


class Cut(NamedTuple):
    """Where an array is cut: along which axis, and in how many equal parts."""

    axis: int
    many: int


def part_maps(schedule: Schedule) -> Schedule:
    """The schedule where maps that read equal parts side by side are maps of the parts, side by
    side.
    """
    specs = schedule.specs
    if not any(_even(s, specs) and _for_maps(s, schedule) for s in schedule.steps):
        return schedule
    return _Parts(schedule).schedule().without_repeats()


def work(schedule: Schedule) -> int:
    """About how many launches a schedule is: views are none, arrays that are put together one for
    each part.
    """
    count = 0
    for step in schedule.steps:
        if step.op == "concat":
            count += len(step.read)
        elif OPS[step.op].kind not in ("view", "make"):
            count += 1
    return count


def _even(step: Step, specs: dict[int, Spec]) -> bool:
    """Whether a step puts a few equal parts side by side."""
    kinds = {specs[i] for i in (*step.read,)}
    even = step.op == "concat" and 2 <= len(step.read) <= MOST_PARTS and len(kinds) == 1
    return even and kinds == {Spec(specs[step.read[0]].shape, specs[step.results[0]].dtype)}


def _for_maps(step: Step, schedule: Schedule) -> bool:
    """Whether maps of its shape alone read what a step gives."""
    result = step.results[0]
    shape, made_by = schedule.specs[result].shape, schedule.made_by
    readers = [made_by[r] for r in schedule.readers[result]]
    fits = [_map_of(reader, shape, schedule.specs) for reader in readers]
    return bool(fits) and all(fits) and result not in schedule.outputs


def _map_of(step: Step, shape: tuple[int, ...], specs: dict[int, Spec]) -> bool:
    """Whether a step is a map to a shape that can be part of a function."""
    spec = specs[step.results[0]]
    if OPS[step.op].kind != "map" or len(step.results) != 1 or spec.shape != shape or 0 in shape:
        return False
    return written.writable(step.op, step.attrs, [specs[i].dtype for i in step.read], spec.dtype)


class _Parts:
    """A schedule while its maps are cut.

    Attributes:
        cut: of values that are known in parts, the cut and these.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.given, self.specs, self.steps = schedule, dict(schedule.specs), list[Step]()
        self.numbers = itertools.count(max(self.specs) + 1)
        self.cut: dict[int, tuple[Cut, tuple[int, ...]]] = {}
        self.known: dict[tuple[int, Cut], tuple[int, ...]] = {}

    def schedule(self) -> Schedule:
        """The steps; a result whose parts are known is these, side by side."""
        for step in self.given.steps:
            result, shape = step.results[0], self.specs[step.results[0]].shape
            whole = [i for i in step.read if i in self.cut and self.specs[i].shape == shape]
            cuts = {self.cut[i][0] for i in whole}  # axes of what is broadcast are others
            if _even(step, self.specs) and _for_maps(step, self.given):
                cut = Cut(step.attrs["axis"] % len(shape), len(step.read))
                self.cut[result] = cut, step.read
            elif len(cuts) == 1 and _map_of(step, shape, self.specs):
                (cut,) = cuts
                parts = self.parts_of(step, cut)
                self.cut[result] = cut, parts
                step = Step("concat", parts, {"axis": cut.axis}, (result,))
            self.steps.append(step)
        changed = replace(self.given, steps=tuple(self.steps), specs=self.specs)
        return changed.with_steps(self.steps)

    def parts_of(self, step: Step, cut: Cut) -> tuple[int, ...]:
        """A map's result, part by part."""
        inputs = [self.parts(i, cut, self.specs[step.results[0]]) for i in step.inputs]
        spec = self.specs[step.results[0]]
        each = zip(*inputs, strict=True)
        return tuple([self.new(step, given, self.part_spec(spec, cut)) for given in each])

    def parts(self, i: int, cut: Cut, whole: Spec) -> tuple[int, ...]:
        """The parts of what a map reads."""
        if i not in self.specs:
            return (i,) * cut.many
        spec = self.specs[i]
        axis = cut.axis - len(whole.shape) + len(spec.shape)
        if axis < 0 or spec.shape[axis] == 1:
            return (i,) * cut.many
        there = i, Cut(axis, cut.many)
        if i in self.cut and self.cut[i][0] == there[1]:
            return self.cut[i][1]
        if there not in self.known:
            made = self.given.made_by.get(i)
            inner = made is not None and _map_of(made, whole.shape, self.specs)
            alone = len(self.given.readers[i]) == 1 and i not in self.given.outputs
            if made is not None and inner and alone:
                self.known[there] = self.parts_of(made, cut)
            else:
                self.known[there] = self.slices(i, there[1])
        return self.known[there]

    def slices(self, i: int, cut: Cut) -> tuple[int, ...]:
        """Views of the parts of an array."""
        spec, every = self.specs[i], (None, None, None)
        n, found = spec.shape[cut.axis] // cut.many, []
        for k in range(cut.many):
            end = None if k == cut.many - 1 else (k + 1) * n
            index = [every] * len(spec.shape)
            index[cut.axis] = (k * n or None, end, None)  # type: ignore[assignment]
            step = Step("slice", (i,), {"index": tuple(index)}, ())
            found.append(self.new(step, (i,), self.part_spec(spec, cut)))
        return tuple(found)

    def part_spec(self, spec: Spec, cut: Cut) -> Spec:
        """A part of an array."""
        shape = list(spec.shape)
        shape[cut.axis] = math.ceil(shape[cut.axis] / cut.many)
        return Spec(tuple(shape), spec.dtype)

    def new(self, like: Step, inputs: tuple[int, ...], spec: Spec) -> int:
        """A new value that a step like another one gives."""
        value = next(self.numbers)
        self.specs[value] = spec
        self.steps.append(replace(like, inputs=tuple(inputs), results=(value,)))
        return value
