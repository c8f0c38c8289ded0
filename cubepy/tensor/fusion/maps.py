"""Maps over the same elements as one: their arithmetic is one function, their launch one pass."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

from cubepy.lang.dtypes import dtype_named
from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.grouping import Item, grouped
from cubepy.tensor.fusion.literals import stretched
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.ops.library import rows_for
from cubepy.tensor.ops.op import define


def _run_fused(
    dtype: Any,
    *xs: Any,
    shape: tuple[int, ...],
    text: str,
    names: tuple[tuple[str, str], ...],
    dtypes: tuple[str, ...],
    aligned: tuple[int, ...] = (),
) -> Any:
    from cubepy.kernels.fused.maps import fused_map

    kinds = written.dtypes_named(dtypes)
    out = rows_for(shape, kinds, aligned) if aligned else None
    made = fused_map(written.compiled(text, names), xs, shape, kinds, results=out)
    return made if len(made) > 1 else made[0]


@define("map", {"fused_map": _run_fused})
def _fused(
    *xs: Spec,
    shape: tuple[int, ...],
    text: str,
    names: tuple[tuple[str, str], ...],
    dtypes: tuple[str, ...],
    aligned: tuple[int, ...] = (),
) -> Any:
    """The results of a function of elements, which was written for a group of ops; `aligned`: which
    have rows that begin aligned (`fusion.products.aligned`).
    """
    found = [Spec(shape, dtype_named(name)) for name in dtypes]
    return found if len(found) > 1 else found[0]


def fuse_maps(schedule: Schedule) -> Schedule:
    """The schedule with groups of maps as one step each."""
    specs, alone = schedule.specs, stretched(schedule)
    first = len(schedule.inputs)  # inputs come first, so that those who read the same one may join
    made_by = {i: n for n, i in enumerate(schedule.inputs)}
    made_by |= {r: n for n, s in enumerate(schedule.steps, first) for r in s.results}
    items = [Item((), None)] * first
    for step in schedule.steps:
        inputs = tuple(sorted({made_by[i] for i in step.read}))
        space = None if step.results[0] in alone else _space(step, specs)
        items.append(Item(inputs, space, step.op in written.LONG))
    found = grouped(items, [made_by[i] for i in schedule.outputs])
    groups = [[n - first for n in group] for group in found]
    members = {n for group in groups for n in group}
    steps = [(s.results[0], s) for n, s in enumerate(schedule.steps) if n not in members]
    for group in groups:
        inside = [schedule.steps[n] for n in group]
        steps.append((inside[-1].results[0], _joined(inside, schedule)))
    return schedule.with_steps(in_order([s for _, s in sorted(steps, key=lambda s: s[0])]))


def _space(step: Step, specs: dict[int, Spec]) -> object | None:
    """What a step is computed over, if it can be part of a group: a shape."""
    op = OPS[step.op]
    if (op.kind != "map" and step.op not in written.SAME) or len(step.results) != 1:
        return None
    spec = specs[step.results[0]]
    dtypes = [specs[i].dtype for i in step.read]
    if 0 in spec.shape or not written.writable(step.op, step.attrs, dtypes, spec.dtype):
        return None
    return spec.shape


def _joined(steps: Sequence[Step], schedule: Schedule) -> Step:
    """Steps of one space as one step."""
    specs = schedule.specs
    results = tuple(wanted_outside(steps, steps, schedule))
    given, number, lines = lines_of(steps, steps, schedule)
    text, names = written.text_of(range(len(given)), lines, [number[r] for r in results])
    attrs_of = {
        "shape": specs[results[0]].shape,
        "text": text,
        "names": names,
        "dtypes": tuple(specs[r].dtype.name for r in results),
    }
    return Step("fused_map", tuple(given), attrs_of, results)


def wanted_outside(maps: Sequence[Step], group: Sequence[Step], schedule: Schedule) -> list[int]:
    """The results of maps of a group that are results of the schedule, or read outside."""
    inside = set(inside_order(group))
    return [
        r
        for r in inside_order(maps)
        if r in schedule.outputs or any(i not in inside for i in schedule.readers[r])
    ]


def lines_of(
    maps: Sequence[Step], group: Sequence[Step], schedule: Schedule
) -> tuple[list[int], dict[int, int], list[tuple[int, written.Step]]]:
    """The function of a group's maps: the values that it is given, the numbers of all values in it,
    and its lines. Literals stand in it as they are.
    """
    inside, made_by = set(inside_order(group)), schedule.made_by
    read = dict.fromkeys(i for s in group for i in s.read if i not in inside)
    literals = [
        i for i in read if i in made_by and written.literal(made_by[i].op, made_by[i].attrs)
    ]
    given = [i for i in read if i not in literals]
    number = {i: n for n, i in enumerate([*given, *literals, *inside_order(maps)])}
    lines = [
        (number[s.results[0]], written.step_of(s, number, schedule.specs))
        for s in (*(made_by[i] for i in literals), *maps)
    ]
    return given, number, lines


def inside_order(steps: Sequence[Step]) -> list[int]:
    """The values that steps give, in running order."""
    return [r for s in steps for r in s.results]


def in_order(steps: Sequence[Step]) -> list[Step]:
    """The steps so that each comes after what it reads; otherwise as they were."""
    made_by = {r: n for n, s in enumerate(steps) for r in s.results}
    waits = [len({made_by[i] for i in s.read if i in made_by}) for s in steps]
    readers: list[set[int]] = [set() for _ in steps]
    for n, s in enumerate(steps):
        for i in s.read:
            if i in made_by:
                readers[made_by[i]].add(n)
    ready = [n for n, w in enumerate(waits) if w == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        n = heapq.heappop(ready)
        order.append(steps[n])
        for r in readers[n]:
            waits[r] -= 1
            if waits[r] == 0:
                heapq.heappush(ready, r)
    assert len(order) == len(steps), "groups that wait for each other"
    return order
