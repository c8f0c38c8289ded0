"""Arrays that are made of parts.

Sums of zeros with parts of an array in them (what gradients of slices, such as queries, keys and
values of one product, add up to) are the parts side by side. Maps whose results are put side by
side, such as the halves of a rotary embedding, write them there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cubepy.lang.dtypes import dtype_named
from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import Spec
from cubepy.tensor.ops.movement import spans
from cubepy.tensor.ops.op import define

EVERY = (None, None, None)
"""A slice of all of an axis."""


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
    found, parts = None, [part for part in index if part != "new"]
    if 0 in shape:
        return None
    for d, (part, n) in enumerate(zip(parts, shape, strict=False)):
        if part == EVERY:
            continue
        (span,) = spans((part,), (n,))
        if span.step != 1 or not len(span):
            return None
        if len(span) != n:
            if found is not None:
                return None
            found = d, span.start, span.stop
    return found


def _run_joined_map(
    dtype: Any,
    *xs: Any,
    shape: tuple[int, ...],
    text: str,
    names: tuple[tuple[str, str], ...],
    dtypes: tuple[str, ...],
    parts: tuple[int, ...],
    axis: int,
    stacked: bool,
) -> Any:
    from cubepy.kernels.fused.maps import joined_map

    kinds = written.dtypes_named(dtypes)
    made = joined_map(written.compiled(text, names), xs, shape, kinds, parts, axis)
    made[0] = made[0].reshape(_whole(shape, len(parts), axis, stacked))
    return made if len(made) > 1 else made[0]


@define("map", {"joined_map": _run_joined_map})
def _joined_map(
    *xs: Spec,
    shape: tuple[int, ...],
    dtypes: tuple[str, ...],
    parts: tuple[int, ...],
    axis: int,
    stacked: bool,
    **how: Any,
) -> Any:
    """The results of a function of elements: `parts` of them side by side, then the others."""
    first = Spec(_whole(shape, len(parts), axis, stacked), dtype_named(dtypes[parts[0]]))
    others = [
        Spec(tuple(shape), dtype_named(name)) for k, name in enumerate(dtypes) if k not in parts
    ]
    return [first, *others] if others else first


def _whole(shape: tuple[int, ...], parts: int, axis: int, stacked: bool) -> tuple[int, ...]:
    """The shape of parts side by side."""
    if stacked:
        return (*shape[:axis], parts, *shape[axis:])
    return (*shape[:axis], parts * shape[axis], *shape[axis + 1 :])


def join_results(schedule: Schedule) -> Schedule:
    """The schedule where maps whose results are only put side by side write them there."""
    made_by, readers = schedule.made_by, schedule.readers
    joined: dict[int, Step] = {}  # by the first result of a map, what it becomes
    gone = set[int]()
    for step in schedule.steps:
        if step.op != "concat":
            continue
        sources, stacked = [], [made_by[i].op == "reshape" for i in step.read if i in made_by]
        axis = step.attrs["axis"] % len(schedule.specs[step.results[0]].shape)
        if len(stacked) < len(step.read) or len(set(stacked)) > 1:
            continue
        for i in step.read:
            source = made_by[i].inputs[0] if stacked[0] else i
            shape = schedule.specs[source].shape
            fits = not stacked[0] or schedule.specs[i].shape == (*shape[:axis], 1, *shape[axis:])
            alone = all(len(readers[v]) == 1 and v not in schedule.outputs for v in (i, source))
            if fits and alone and source in made_by:
                sources.append(source)
        maps = {made_by[i].results[0]: made_by[i] for i in sources}
        if len(set(sources)) < len(step.read) or len(maps) > 1:
            continue
        ((first, one),) = maps.items()
        if one.op != "fused_map" or len(one.results) < 2 or first in joined:
            continue  # what gives one result has it where it is
        parts = tuple([one.results.index(i) for i in sources])
        if len({one.attrs["dtypes"][k] for k in parts}) > 1:
            continue
        others = [r for r in one.results if r not in sources]
        attrs = {**one.attrs, "parts": parts, "axis": axis, "stacked": stacked[0]}
        joined[first] = Step("joined_map", one.inputs, attrs, (step.results[0], *others))
        gone |= {step.results[0], *step.read}
    if not joined:
        return schedule
    steps = [
        joined.get(s.results[0], s)
        for s in schedule.steps
        if s.results[0] in joined or not gone & set(s.results)
    ]
    return schedule.with_steps(steps)
