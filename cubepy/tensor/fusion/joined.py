"""Sums of zeros with parts of an array in them as one array that is made of the parts: what
gradients of slices (queries, keys and values of one product) add up to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import Spec
from cubepy.tensor.ops.movement import spans


def join_parts(schedule: Schedule) -> Schedule:
    """The schedule where additions of `unslice` whose slices are all of one axis, side by side, are
    a `concat`.
    """
    made_by = {r: s for s in schedule.steps for r in s.results}
    readers: dict[int, int] = {}
    for step in schedule.steps:
        for i in step.read:
            readers[i] = readers.get(i, 0) + 1
    inner = {
        i
        for s in schedule.steps
        if s.op == "add"
        for i in s.read
        if readers[i] == 1 and i not in schedule.outputs and i in made_by
    }
    specs = dict(schedule.specs)
    steps: list[Step] = []
    for step in schedule.steps:
        found = None
        if step.op == "add" and step.results[0] not in inner:
            found = _joined(list(_addends(step, made_by, inner)), step.results[0], specs)
        steps += [step] if found is None else found
    changed = Schedule(tuple(steps), specs, schedule.inputs, schedule.outputs)
    return changed.with_steps(steps)


def _addends(step: Step, made_by: dict[int, Step], inner: set[int]) -> Iterator[Step | None]:
    """What is added up, None for what is more than a part."""
    for i in step.read:
        made = made_by.get(i) if i in inner else None
        if made is not None and made.op == "add":
            yield from _addends(made, made_by, inner)
        else:
            yield made if made is not None and made.op == "unslice" else None


def _joined(parts: list[Step | None], result: int, specs: dict[int, Spec]) -> list[Step] | None:
    """The steps that make an array of its parts; None where they are not all of it."""
    spec = specs[result]
    found: list[tuple[tuple[int, int, int], Step]] = []
    for part in parts:
        if part is None or specs[part.results[0]] != spec:
            return None
        span = _span_of(part.attrs["index"], spec.shape)
        if span is None:
            return None
        found.append((span, part))
    if len(found) < 2:
        return None
    order = sorted(found, key=lambda found: found[0][1])
    axis, end = found[0][0][0], 0
    for (along, start, stop), _ in order:
        if along != axis or start != end:
            return None
        end = stop
    if end != spec.shape[axis]:
        return None
    steps, given = [], []
    for (_, start, stop), part in order:
        shape = (*spec.shape[:axis], stop - start, *spec.shape[axis + 1 :])
        source = part.inputs[0]
        if specs[source].shape != shape:
            new = max(specs) + 1
            specs[new] = Spec(shape, spec.dtype)
            steps.append(Step("reshape", (source,), {"shape": shape}, (new,)))
            source = new
        given.append(source)
    return [*steps, Step("concat", tuple(given), {"axis": axis}, (result,))]


def _span_of(index: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The axis of which a slice takes a part, from where to where; None for other slices."""
    found = None
    for d, (span, n) in enumerate(zip(spans(index, shape), shape, strict=True)):
        if span.step != 1 or not len(span):
            return None
        if len(span) != n:
            if found is not None:
                return None
            found = d, span.start, span.stop
    return found
