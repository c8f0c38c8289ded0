"""Why ops that follow each other run as two steps: pure functions over what was traced and what
runs.
"""

from __future__ import annotations

from typing import NamedTuple

from cubepy.tensor.explained.lineage import Lineage
from cubepy.tensor.fusion.grouping import MOST_ARRAYS, MOST_LONG, MOST_STEPS
from cubepy.tensor.fusion.reductions.columns import (
    LEAST,
    LEAST_OF_LONG,
    down_columns,
    over_leading_axes,
)
from cubepy.tensor.fusion.reductions.rows import LONGEST, REDUCTIONS
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.fusion.written import LONG, SAME, writable
from cubepy.tensor.ops import OPS, Spec

ALONE = {
    "make": "makes its values of nothing",
    "view": "is other strides of the same elements, or a copy of them",
    "reduce": "reduces other axes than the last, or all others, or is another reduction",
    "row": "is a kernel of its own along rows, which joins no map of another shape",
    "product": "is a product with a kernel of its own",
    "index": "reads by indices that are data",
    "order": "sorts or scans",
    "opaque": "is a kernel that fusion does not look into",
    "effect": "changes something outside",
    "map": "is a map that cannot be written as a function of elements",
}


class Unfused(NamedTuple):
    """Two ops, one reading the other, in different steps.

    Attributes:
        first, second: their names.
        value: the value between them, by its number in the traced graph.
        why: the reason.
    """

    first: str
    second: str
    value: int
    why: str

    def __str__(self) -> str:
        return f"{self.first} -> {self.second} (%{self.value}): {self.why}"


def unfused(lineage: Lineage) -> list[Unfused]:
    """The neighbours that could have been one step, as far as one of them may be fused at all."""
    single = lineage.single
    by = {r: s for s in single.steps for r in s.results}
    found = []
    for step in single.steps:
        for i in dict.fromkeys(step.read):
            first = by.get(i)
            if first is None or "constant" in (first.op, step.op):
                continue
            a, b = lineage.node_of.get(i), lineage.node_of.get(step.results[0])
            if a is None or b is None or a == b:
                continue
            one, other = _space(first, single), _space(step, single)
            if one is None and other is None:
                continue
            found.append(Unfused(first.op, step.op, i, _why(first, step, a, b, lineage)))
    return found


def _why(first: Step, second: Step, a: int, b: int, lineage: Lineage) -> str:
    single = lineage.single
    one, other = _space(first, single), _space(second, single)
    for step, space in ((first, one), (second, other)):
        if space is None:
            return _alone(step, single)
    for step, node in ((first, a), (second, b)):
        ran = lineage.ran.nodes[node].op
        if ran != step.op and OPS[ran].kind == "product":
            return f"{step.op} is done by {ran}, a product with a kernel of its own"
    if one != other:
        return f"they go over other elements: {list(one or ())} and {list(other or ())}"
    between = _between(a, b, lineage)
    if between:
        names = ", ".join(dict.fromkeys(lineage.ran.nodes[n].op for n in between))
        return f"a way from one to the other leads through {names}"
    both = [*lineage.inside[a], *lineage.inside[b]]
    long = sum(s.op in LONG for s in both)
    columns = any(down_columns(s, single.specs) for s in (first, second))
    if columns and long and (one or (0,))[-1] < LEAST_OF_LONG:
        return f"long functions of fewer than {LEAST_OF_LONG} columns are quicker on their own"
    if len(both) > MOST_STEPS or long > MOST_LONG:
        return (
            f"together they are {len(both)} ops, {long} of them long functions; a step has at "
            f"most {MOST_STEPS} and {MOST_LONG}"
        )
    arrays = len({i for n in (a, b) for i in lineage.ran.nodes[n].inputs})
    results = sum(len(lineage.ran.nodes[n].results) for n in (a, b))
    if arrays + results > MOST_ARRAYS:
        return f"together they have {arrays + results} arrays; a step has at most {MOST_ARRAYS}"
    return "no pass of the program joins them"


def _space(step: Step, schedule: Schedule) -> tuple[int, ...] | None:
    """What an op goes over, if it may be fused: a shape."""
    specs, spec = schedule.specs, schedule.specs[step.results[0]]
    dtypes = [specs[i].dtype for i in step.read]
    if step.op in REDUCTIONS:
        return _reduced(step, specs)
    map_like = OPS[step.op].kind == "map" or step.op in SAME
    if not map_like or len(step.results) != 1 or 0 in spec.shape:
        return None
    return spec.shape if writable(step.op, step.attrs, dtypes, spec.dtype) else None


def _reduced(step: Step, specs: dict[int, Spec]) -> tuple[int, ...] | None:
    axis = step.attrs["axis"]
    axes = (axis,) if isinstance(axis, int) else axis
    shape, dtype = specs[step.inputs[0]]
    if not shape or axes is None or not dtype.is_float or dtype.storage_only:
        return None
    if down_columns(step, specs) is not None:
        return shape
    last = [a % len(shape) for a in axes] == [len(shape) - 1]
    return shape if last and 1 < shape[-1] <= LONGEST else None


def _alone(step: Step, schedule: Schedule) -> str:
    """Why an op is fused with nothing that it does not take itself."""
    specs = [schedule.specs[i] for i in (*step.read, *step.results)]
    stored = next((s.dtype.name for s in specs if s.dtype.storage_only), None)
    if stored is not None:
        return f"{stored} is only stored, not computed with"
    if any(0 in s.shape for s in specs):
        return f"{step.op} has no elements"
    if step.op in REDUCTIONS and over_leading_axes(step, schedule.specs):
        return f"{step.op} is of fewer than {LEAST} columns"
    return f"{step.op} {ALONE[OPS[step.op].kind]}"


def _between(a: int, b: int, lineage: Lineage) -> list[int]:
    """The nodes on other ways from one node to another."""
    ran = lineage.ran
    made = {
        first + k: n for n, first in enumerate(ran.firsts) for k in range(len(ran.nodes[n].results))
    }
    after = {a}
    for n in range(a + 1, b):
        if any(made[i] in after for i in ran.nodes[n].inputs if i >= 0):
            after.add(n)
    before = {b}
    for n in range(b, a, -1):
        if n in before:
            before |= {made[i] for i in ran.nodes[n].inputs if i >= 0}
    return sorted((after & before) - {a, b})
