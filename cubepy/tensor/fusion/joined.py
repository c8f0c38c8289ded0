"""Arrays that are made of parts.

Sums of zeros with parts of an array in them (what gradients of slices, such as queries, keys and
values of one product, add up to) are the parts side by side. Maps whose results are put side by
side, such as the halves of a rotary embedding, write them there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from cubepy.lang.dtypes import dtype_named
from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import Spec
from cubepy.tensor.ops.movement import spans
from cubepy.tensor.ops.op import define

MOST_PARTS = 8
"""Parts that a map writes side by side, where some only go through it."""
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
    joined: dict[int, list[Step]] = {}  # by the first result of a map, what it becomes
    gone = set[int]()
    specs = dict(schedule.specs)
    puts = [s for s in schedule.steps if s.op == "concat"]
    for wider in (True, False):  # of one within another, the one around it
        for step in puts:
            if step.results[0] in gone:
                continue
            found = _with_rest(step, schedule, specs) if wider else _side_by_side(step, schedule)
            if found is not None and found.map not in joined:
                joined[found.map] = found.steps
                gone |= {step.results[0], *found.gone}
    if not joined:
        return schedule
    steps: list[Step] = []
    for s in schedule.steps:
        if s.results[0] in joined:
            steps += joined[s.results[0]]
        elif not gone & set(s.results):
            steps.append(s)
    return replace(schedule, specs=specs).with_steps(steps)


class Joined(NamedTuple):
    """A map that writes what it gives side by side.

    Attributes:
        map: the first result of the map that it was.
        steps: what runs instead of it.
        gone: values that nobody makes any more.
    """

    map: int
    steps: list[Step]
    gone: tuple[int, ...]


def _side_by_side(step: Step, schedule: Schedule) -> Joined | None:
    """A `concat` of several results of one map, or a stack of them."""
    made_by, readers = schedule.made_by, schedule.readers
    sources, stacked = [], [made_by[i].op == "reshape" for i in step.read if i in made_by]
    axis = step.attrs["axis"] % len(schedule.specs[step.results[0]].shape)
    if len(stacked) < len(step.read) or len(set(stacked)) > 1:
        return None
    for i in step.read:
        source = made_by[i].inputs[0] if stacked[0] else i
        shape = schedule.specs[source].shape
        fits = not stacked[0] or schedule.specs[i].shape == (*shape[:axis], 1, *shape[axis:])
        alone = all(len(readers[v]) == 1 and v not in schedule.outputs for v in (i, source))
        if fits and alone and source in made_by:
            sources.append(source)
    maps = {made_by[i].results[0]: made_by[i] for i in sources}
    if len(set(sources)) < len(step.read) or len(maps) > 1:
        return None
    ((first, one),) = maps.items()
    if one.op != "fused_map" or len(one.results) < 2:
        return None  # what gives one result has it where it is
    parts = tuple([one.results.index(i) for i in sources])
    if len({one.attrs["dtypes"][k] for k in parts}) > 1:
        return None
    others = [r for r in one.results if r not in sources]
    attrs = {**one.attrs, "parts": parts, "axis": axis, "stacked": stacked[0]}
    made = Step("joined_map", one.inputs, attrs, (step.results[0], *others))
    return Joined(first, [made], step.read)


def _with_rest(step: Step, schedule: Schedule, specs: dict[int, Spec]) -> Joined | None:
    """A `concat` of results of one map and of what is there before it, as long as several of them,
    such as the rest of features of which only the first are rotated: it goes through the map.
    """
    made_by, readers = schedule.made_by, schedule.readers
    rank = len(specs[step.results[0]].shape)
    axis, gone = step.attrs["axis"] % rank, list[int]()
    sources: list[int] = []
    for i in step.read:
        inner = made_by.get(i)
        alone = len(readers[i]) == 1 and i not in schedule.outputs
        if alone and inner is not None and inner.op == "concat":
            if inner.attrs["axis"] % rank != axis:
                return None
            sources += inner.read
            gone.append(i)
        else:
            sources.append(i)
    maps = [made_by[i] for i in sources if i in made_by and made_by[i].op == "fused_map"]
    one = next((m for m in maps if sum(i in m.results for i in sources) > 1), None)
    if one is None or len(set(sources)) < len(sources):
        return None
    position = {r: n for n, s in enumerate(schedule.steps) for r in s.results}
    shape = tuple(one.attrs["shape"])
    steps, inputs, kinds = [], list(one.inputs), list(one.attrs["dtypes"])
    parts: list[int] = []
    for i in sources:
        spec = specs[i]
        if i in one.results:
            if len(readers[i]) > 1 or i in schedule.outputs or spec.shape != shape:
                return None
            parts.append(one.results.index(i))
            gone.append(i)
            continue
        length, before = spec.shape[axis], position.get(i, -1) < position[one.results[0]]
        same = spec.shape[:axis] + spec.shape[axis + 1 :] == shape[:axis] + shape[axis + 1 :]
        if not before or not same or length % shape[axis] or i in one.inputs:
            return None
        for k in range(0, length, shape[axis]):
            new = max(specs) + 1
            specs[new] = Spec(shape, spec.dtype)
            index = tuple((k, k + shape[axis], None) if d == axis else EVERY for d in range(rank))
            steps.append(Step("slice", (i,), {"index": index}, (new,)))
            inputs.append(new)
            parts.append(len(kinds))
            kinds.append(spec.dtype.name)
    if not steps or len(parts) > MOST_PARTS or len({kinds[k] for k in parts}) > 1:
        return None
    others = [r for r in one.results if r not in sources]
    attrs = {**one.attrs, "text": _passing(one.attrs["text"], len(steps)), "dtypes": tuple(kinds)}
    attrs |= {"parts": tuple(parts), "axis": axis, "stacked": False}
    made = Step("joined_map", tuple(inputs), attrs, (step.results[0], *others))
    return Joined(one.results[0], [*steps, made], tuple(gone))


def _passing(text: str, count: int) -> str:
    """The text of a function that gives some more values, as they are."""
    names = ", ".join(f"p{k}" for k in range(count))
    head, _, rest = text.partition("):")
    body, _, given = rest.rpartition("return (")
    return f"{head}, {names}):{body}return ({given.rstrip()[:-1].rstrip(' ,')}, {names},)\n"
