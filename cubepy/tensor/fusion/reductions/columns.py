"""Reductions over all axes but the last, and the maps before them, as one step: what is reduced is
computed on the way, and what others read of it is stored.

A value's level is how many such reductions come before it; steps of one level join, so that none of
a group waits for what the group gives.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cubepy.lang.dtypes import dtype_named
from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.grouping import Item, grouped
from cubepy.tensor.fusion.literals import stretched
from cubepy.tensor.fusion.maps import in_order, inside_order, lines_of, wanted_outside
from cubepy.tensor.fusion.reductions.rows import REDUCTIONS
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.ops.library import rows_for
from cubepy.tensor.ops.op import define

LEAST, LEAST_OF_LONG = 8, 64
"""Columns, and those of groups with long functions: of fewer ones a line is several rows of memory,
or its end is empty.
"""


@lru_cache(maxsize=1024)
def _plan(
    text: str, names: tuple[tuple[str, str], ...], reductions: tuple[str, ...], sums: str
) -> Any:
    from cubepy.kernels.fused.problem import ColumnPlan
    from cubepy.kernels.fused.row_plan import STEPS

    found = [STEPS["sum" if name == "mean" else name] for name in reductions]
    steps, starts = tuple([step for step, _ in found]), tuple([start for _, start in found])
    means = tuple([name == "mean" for name in reductions])
    return ColumnPlan(written.compiled(text, names), steps, starts, means, dtype_named(sums))


def _run_columns(
    dtype: Any,
    *xs: Any,
    shape: tuple[int, ...],
    text: str,
    names: tuple[tuple[str, str], ...],
    reductions: tuple[str, ...],
    sums: str,
    results: tuple[tuple[tuple[int, ...], str], ...],
    aligned: tuple[int, ...] = (),
) -> Any:
    from cubepy.kernels.fused.columns import run_columns

    plan = _plan(text, names, reductions, sums)
    dtypes = written.dtypes_named([name for _, name in results])
    many = len(results) - len(reductions)
    stored = rows_for(shape, dtypes[:many], aligned)
    made = run_columns(plan, xs, shape, stored, dtypes[many:])
    found = [m if m.shape == s else m.reshape(s) for m, (s, _) in zip(made, results, strict=True)]
    return found if len(found) > 1 else found[0]


@define("reduce", {"fused_columns": _run_columns})
def _fused_columns(*xs: Spec, results: tuple[Any, ...], **plan: Any) -> Any:
    """What a group of reductions down columns and maps gives."""
    found = [Spec(tuple(shape), dtype_named(name)) for shape, name in results]
    return found if len(found) > 1 else found[0]


def down_columns(step: Step, specs: dict[int, Spec]) -> tuple[int, ...] | None:
    """The shape of what a step reduces, if that is all axes but the last, and can be in a group."""
    if step.op not in REDUCTIONS or not over_leading_axes(step, specs):
        return None
    shape, dtype = specs[step.inputs[0]]
    if not dtype.is_float or dtype.storage_only or 0 in shape:
        return None
    return shape if shape[-1] >= LEAST else None


def over_leading_axes(step: Step, specs: dict[int, Spec]) -> bool:
    """Whether a reduction is over all axes but the last."""
    rank, axis = len(specs[step.inputs[0]].shape), step.attrs["axis"]
    axes = (axis,) if isinstance(axis, int) else axis
    if rank < 2 or axes is None:
        return False
    return sorted(a % rank for a in axes) == list(range(rank - 1))


def fuse_columns(schedule: Schedule) -> Schedule:
    """The schedule with groups of reductions down columns and maps as one step each."""
    specs = schedule.specs
    reduced = {s.results[0]: shape for s in schedule.steps if (shape := down_columns(s, specs))}
    if not reduced:
        return schedule
    first, alone, shapes = len(schedule.inputs), stretched(schedule), set(reduced.values())
    made_by = {i: n for n, i in enumerate(schedule.inputs)}
    made_by |= {r: n for n, s in enumerate(schedule.steps, first) for r in s.results}
    level: dict[int, int] = {}
    items = [Item((), None)] * first
    for step in schedule.steps:
        result = step.results[0]
        above = max((level.get(i, 0) for i in step.read), default=0)
        level.update(dict.fromkeys(step.results, above + (result in reduced)))
        shape = reduced.get(result) or mapped(step, specs)
        fits = shape in shapes and result not in alone
        inputs = tuple(sorted({made_by[i] for i in step.read}))
        items.append(Item(inputs, (shape, above) if fits else None, step.op in written.LONG))
    groups = [
        [schedule.steps[n - first] for n in group]
        for group in grouped(items, [made_by[i] for i in schedule.outputs])
    ]
    groups = [group for group in groups if _pays(group, reduced)]
    members = {s.results[0] for group in groups for s in group}
    kept = [(s.results[0], s) for s in schedule.steps if s.results[0] not in members]
    kept += [(group[-1].results[0], _joined(group, schedule)) for group in groups]
    return schedule.with_steps(in_order([s for _, s in sorted(kept, key=lambda one: one[0])]))


def _pays(group: list[Step], reduced: dict[int, tuple[int, ...]]) -> bool:
    """Whether a group is better off as one step."""
    shapes = [reduced[s.results[0]] for s in group if s.results[0] in reduced]
    long = any(s.op in written.LONG for s in group)
    return bool(shapes) and shapes[0][-1] >= (LEAST_OF_LONG if long else LEAST)


def mapped(step: Step, specs: dict[int, Spec]) -> tuple[int, ...] | None:
    """The shape of a map that can be written as a function."""
    if (OPS[step.op].kind != "map" and step.op not in written.SAME) or len(step.results) != 1:
        return None
    spec, dtypes = specs[step.results[0]], [specs[i].dtype for i in step.read]
    return spec.shape if written.writable(step.op, step.attrs, dtypes, spec.dtype) else None


def _joined(group: list[Step], schedule: Schedule) -> Step:
    """Steps of one shape and level as one step."""
    specs = schedule.specs
    reductions = [s for s in group if s.op in REDUCTIONS]
    maps = [s for s in group if s.op not in REDUCTIONS]
    stored = wanted_outside(maps, group, schedule)
    given, number, lines = lines_of(maps, group, schedule)
    wanted = [number[i] for i in (*(s.inputs[0] for s in reductions), *stored)]
    text, names = written.text_of(range(len(given)), lines, wanted, several=True)
    results = (*stored, *(s.results[0] for s in reductions))
    dtypes = [specs[i].dtype for i in (*given, *inside_order(group))]
    attrs = {
        "shape": specs[reductions[0].inputs[0]].shape,
        "text": text,
        "names": names,
        "reductions": tuple([s.op for s in reductions]),
        "sums": "f64" if any(d.is_float and d.bits == 64 for d in dtypes) else "f32",
        "results": tuple([(specs[r].shape, specs[r].dtype.name) for r in results]),
    }
    return Step("fused_columns", tuple(given), attrs, results)
