"""Maps of arrays that are put together, part by part: `concat([-b, a]) * s + x * c` of a rotary
embedding as a map for each half, which then are one launch that writes both; so are neighbours that
are stacked and laid side by side.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, NamedTuple

from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import OPS, Spec

MOST_PARTS = 4


class Cut(NamedTuple):
    """Where an array is cut: along which axis, in how many equal parts, and whether neighbours are
    of different parts.
    """

    axis: int
    many: int
    interleaved: bool = False


def part_maps(schedule: Schedule) -> Schedule:
    """The schedule where maps that read equal parts side by side are maps of the parts, side by
    side.
    """
    if not any(_cut_of(s, schedule) for s in schedule.steps):
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


def _cut_of(step: Step, schedule: Schedule) -> tuple[Cut, tuple[int, ...]] | None:
    """The parts that a step puts side by side for maps; None for other steps."""
    if step.op not in ("concat", "reshape") or not _for_maps(step, schedule):
        return None
    rank = len(schedule.specs[step.results[0]].shape)
    if step.op == "reshape":
        parts = _interleaved(step, schedule)
        return None if parts is None else (Cut(rank - 1, len(parts), True), parts)
    even = _even(step, schedule.specs)
    return (Cut(step.attrs["axis"] % rank, len(step.read)), step.read) if even else None


def _interleaved(step: Step, schedule: Schedule) -> tuple[int, ...] | None:
    """The parts (..., N) of which a step makes (..., many N), where these were stacked."""
    specs, made_by = schedule.specs, schedule.made_by
    stack = made_by.get(step.read[0])
    if stack is None or stack.op != "concat" or not _even(stack, specs):
        return None
    shape, whole = specs[step.read[0]].shape, specs[step.results[0]].shape
    last = len(shape) - 1
    if (
        len(whole) != last
        or stack.attrs["axis"] not in (last, -1)
        or shape[last] != len(stack.read)
    ):
        return None
    if whole[:-1] != shape[:-2] or whole[-1] != shape[-2] * shape[-1]:
        return None
    parts = []
    for i in stack.read:
        made = made_by.get(i)
        if made is None or made.op != "reshape" or specs[made.read[0]].shape != shape[:-1]:
            return None
        parts.append(made.read[0])
    return tuple(parts)


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
            found = _cut_of(step, self.given)
            if found is not None:
                self.cut[result] = found
            elif len(cuts) == 1 and _map_of(step, shape, self.specs):
                (cut,) = cuts
                parts = self.parts_of(step, cut)
                self.cut[result] = cut, parts
                step = self.together(parts, cut, result)
            self.steps.append(step)
        changed = replace(self.given, steps=tuple(self.steps), specs=self.specs)
        return changed.with_steps(self.steps)

    def together(self, parts: tuple[int, ...], cut: Cut, result: int) -> Step:
        """The step that puts parts side by side."""
        if not cut.interleaved:
            return Step("concat", parts, {"axis": cut.axis}, (result,))
        spec = self.specs[parts[0]]
        one, several = (*spec.shape, 1), (*spec.shape, cut.many)
        as_one = Step("reshape", (), {"shape": one}, ())
        stacked = [self.new(as_one, (i,), Spec(one, spec.dtype)) for i in parts]
        stack = Step("concat", (), {"axis": len(spec.shape)}, ())
        made = self.new(stack, tuple(stacked), Spec(several, spec.dtype))
        return Step("reshape", (made,), {"shape": self.specs[result].shape}, (result,))

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
        there = i, cut._replace(axis=axis)
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
            part = (k or None, None, cut.many) if cut.interleaved else (k * n or None, end, None)
            index: list[Any] = [every] * len(spec.shape)
            index[cut.axis] = part
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
