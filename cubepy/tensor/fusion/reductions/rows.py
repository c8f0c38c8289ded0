"""Reductions along the last axis, and the maps before, between and behind them, as one step.

Values of a group are wide (a row each) or narrow (a number each). A value's level is how many
reductions must be done before it: what is of one level is computed in one walk over the row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from cubepy.lang.dtypes import dtype_named, f32, f64
from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.grouping import Item, grouped
from cubepy.tensor.fusion.literals import stretched
from cubepy.tensor.fusion.maps import in_order, wanted_outside
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.ops.op import define

REDUCTIONS = ("sum", "mean", "max", "min")
LONGEST = 1 << 18  # elements of a row: longer ones are better shared among threads
BUFFERED = 8192  # elements of a row whose values are kept for a later walk
MOST_BUFFERS = 2
MOST_HOME = 4096
"""Elements of a row whose values are kept in a result's memory: with longer ones a buffer, which
stays in the first cache from row to row, was quicker (Xeon, AVX-512).
"""
MOST_PHASES = 6
Text = tuple[str, tuple[tuple[str, str], ...]]


class Walk(NamedTuple):
    """A phase as plain data (see `cubepy.kernels.fused.row_plan.Phase`)."""

    lines: Text
    steps: tuple[str, ...]
    stores: tuple[int, ...]
    keeps: tuple[int, ...]
    reads: tuple[int, ...]
    after: Text | None


@lru_cache(maxsize=1024)
def _plan(
    before: Text | None, walks: tuple[Any, ...], numbers: tuple[Any, ...], sums: str, buffers: int
) -> Any:
    from cubepy.kernels.fused.row_plan import STEPS, Phase, RowPlan

    phases = []
    for walk in walks:
        w = Walk(*walk)
        found = [STEPS[name] for name in w.steps]
        after = None if w.after is None else written.compiled(*w.after)
        phases.append(
            Phase(
                written.compiled(*w.lines),
                tuple(step for step, _ in found),
                tuple(start for _, start in found),
                w.stores,
                w.keeps,
                w.reads,
                after,
            )
        )
    first = None if before is None else written.compiled(*before)
    return RowPlan(first, tuple(phases), numbers, dtype_named(sums), buffers)


def _run_rows(
    dtype: Any,
    *xs: Any,
    shape: tuple[int, ...],
    wides: int,
    before: Text | None,
    walks: tuple[Any, ...],
    numbers: tuple[Any, ...],
    sums: str,
    buffers: int,
    results: tuple[tuple[tuple[int, ...], str, bool], ...],
) -> Any:
    from cubepy.kernels.fused.rows import run_rows

    plan = _plan(before, walks, numbers, sums, buffers)
    kinds = [(wide, dtype_named(name).numpy) for _, name, wide in results]
    made = run_rows(plan, xs[:wides], xs[wides:], shape[:-1], shape[-1], kinds)
    found = [m.reshape(s) for m, (s, _, _) in zip(made, results, strict=True)]
    return found if len(found) > 1 else found[0]


@define("row", {"fused_rows": _run_rows})
def _fused_rows(*xs: Spec, results: tuple[Any, ...], **plan: Any) -> Any:
    """What a group of reductions along rows and maps gives."""
    found = [Spec(tuple(shape), dtype_named(name)) for shape, name, _ in results]
    return found if len(found) > 1 else found[0]


def fuse_rows(
    schedule: Schedule, buffers: int = MOST_BUFFERS, separate: Collection[int] = ()
) -> Schedule:
    """The schedule with groups of reductions along rows and maps as one step each.

    Args:
        schedule: of single ops.
        buffers: how many values of a row may be kept for a later walk; 0 for GPUs, whose units
            compute them again.
        separate: what joins no group.
    """
    spaces = [reduced_shape(s, schedule.specs) for s in schedule.steps]
    for shape in dict.fromkeys(s for s in spaces if s is not None):
        schedule = _fuse_space(schedule, shape, buffers, separate)
    return schedule


def reduced_shape(step: Step, specs: dict[int, Spec]) -> tuple[int, ...] | None:
    """The shape whose last axis a step reduces, if that can be part of a group."""
    if step.op not in REDUCTIONS:
        return None
    shape, dtype = specs[step.inputs[0]]
    axis = step.attrs["axis"]
    axes = (axis,) if isinstance(axis, int) else axis
    if not dtype.is_float or dtype.storage_only or not shape or axes is None:
        return None
    if [a % len(shape) for a in axes] != [len(shape) - 1] or 0 in shape:
        return None
    return shape if 1 < shape[-1] <= LONGEST else None


def _fuse_space(
    schedule: Schedule, shape: tuple[int, ...], buffers: int, separate: Collection[int]
) -> Schedule:
    """Groups of the steps over rows of one shape."""
    first = len(schedule.inputs)
    made_by = {i: n for n, i in enumerate(schedule.inputs)}
    made_by |= {r: n for n, s in enumerate(schedule.steps, first) for r in s.results}
    items, joins = [Item((), None)] * first, [False] * first
    alone = {*stretched(schedule), *separate}
    for step in schedule.steps:
        fits = step.results[0] not in alone and _fits(step, shape, schedule, made_by, joins)
        joins.append(fits)
        inputs = tuple(sorted({made_by[i] for i in step.read}))
        items.append(Item(inputs, shape if fits else None, step.op in written.LONG))
    groups = []
    for group in grouped(items, [made_by[i] for i in schedule.outputs]):
        steps = [schedule.steps[n - first] for n in group]
        reductions = sum(s.op in REDUCTIONS for s in steps)
        if reductions and len(steps) > 1:
            joined = _Rows(steps, schedule, shape, buffers).step()
            if joined is not None:
                groups.append(([n - first for n in group], joined))
    members = {n for group, _ in groups for n in group}
    kept = [(s.results[0], s) for n, s in enumerate(schedule.steps) if n not in members]
    kept += [(schedule.steps[group[-1]].results[0], joined) for group, joined in groups]
    return schedule.with_steps(in_order([s for _, s in sorted(kept, key=lambda s: s[0])]))


def _fits(
    step: Step,
    shape: tuple[int, ...],
    schedule: Schedule,
    made_by: dict[int, int],
    joins: Sequence[bool],
) -> bool:
    """Whether a step is over rows of a shape: gives a row or a number for each."""
    specs = schedule.specs
    if len(step.results) != 1:
        return False
    if step.op in REDUCTIONS:
        return specs[step.inputs[0]].shape == shape and reduced_shape(step, specs) == shape
    spec = specs[step.results[0]]
    narrow = (*shape[:-1], 1)
    if spec.shape not in (shape, narrow):
        return False
    if step.op == "reshape":  # of a number for each row
        made = made_by[step.inputs[0]] - len(schedule.inputs)
        lead = specs[step.inputs[0]].shape == shape[:-1] and spec.shape == narrow
        return (
            lead
            and made >= 0
            and schedule.steps[made].op in REDUCTIONS
            and joins[made_by[step.inputs[0]]]
        )
    dtypes = [specs[i].dtype for i in step.read]
    if OPS[step.op].kind != "map" and step.op not in written.SAME:
        return False
    if any(_lies_along(i, shape, schedule, made_by) for i in step.read):
        return False
    return written.writable(step.op, step.attrs, dtypes, spec.dtype)


def _lies_along(
    i: int, shape: tuple[int, ...], schedule: Schedule, made_by: dict[int, int]
) -> bool:
    """Whether a value has a number for each row and no axis for the columns: what broadcasts it
    lays it along the columns, where in a group it would be the row's own number.
    """
    made = made_by[i] - len(schedule.inputs)
    reduced = made >= 0 and schedule.steps[made].op in REDUCTIONS
    return reduced and len(schedule.specs[i].shape) < len(shape)


class _Rows:
    """A group as one step."""

    def __init__(
        self, steps: Sequence[Step], schedule: Schedule, shape: tuple[int, ...], buffers: int
    ) -> None:
        self.buffers = buffers
        self.steps, self.schedule, self.shape = steps, schedule, shape
        self.specs = schedule.specs
        self.by = {s.results[0]: s for s in steps}
        read = dict.fromkeys(i for s in steps for i in s.read if i not in self.by)
        made_by = schedule.made_by
        self.literals = [
            i for i in read if i in made_by and written.literal(made_by[i].op, made_by[i].attrs)
        ]
        self.by |= {i: made_by[i] for i in self.literals}
        outside = [i for i in read if i not in self.literals]
        self.wides = [i for i in outside if self.is_wide(i)]
        self.narrows = [i for i in outside if not self.is_wide(i)]
        self.results = wanted_outside(steps, steps, schedule)
        order = [*self.wides, *self.narrows, *self.literals, *(s.results[0] for s in steps)]
        self.number = {i: n for n, i in enumerate(order)}
        self.level: dict[int, int] = {}
        for i in order:
            made = self.by.get(i)
            above = max((self.level[j] for j in made.read), default=0) if made else 0
            self.level[i] = above + (made is not None and made.op in REDUCTIONS)
        floats = [self.specs[i].dtype for i in self.number if self.specs[i].dtype.is_float]
        self.sums = f64 if any(d.bits == 64 for d in floats) else f32

    def is_wide(self, i: int) -> bool:
        """Whether a value is a row, not a number for each."""
        if i in self.by and self.by[i].op in REDUCTIONS:
            return False
        shape = self.specs[i].shape
        return bool(shape) and shape[-1] == self.shape[-1]

    def step(self) -> Step | None:
        """The group as one step; None where it is too much for one."""
        reductions = [s for s in self.steps if s.op in REDUCTIONS]
        last = max(self.level.values())
        if last >= MOST_PHASES:
            return None
        kept, again = self.kept(), self.again()
        where_kept = self.buffered(kept)
        count = sum(n >= 0 for n in where_kept.values())
        where_kept |= {i: -1 - self.results.index(i) for i in again}
        known: list[int | str] = [*self.narrows]
        before = self.numbers_of(0)
        first = self.text(known, before, before, several=True) if before else None
        known += before
        walks = []
        for level in range(last + 1):
            reduced = [s for s in reductions if self.level[s.inputs[0]] == level]
            stored = [r for r in self.results if self.is_wide(r) and self.level[r] == level]
            if not reduced and not stored:
                continue
            keeps = [i for i in kept if self.level[i] == level]
            reads = [i for i in (*kept, *again) if self.level[i] < level]
            wanted = [*(s.inputs[0] for s in reduced), *stored, *keeps]
            lines = self.text(
                [*self.wides, *reads, *known],
                self.needed(wanted, [*reads, *known]),
                wanted,
                several=True,
            )
            after = None
            if reduced:
                after, new = self.after(reduced, level, known)
                known += new
            walks.append(
                Walk(
                    lines,
                    tuple("sum" if s.op == "mean" else s.op for s in reduced),
                    tuple(self.results.index(r) for r in stored),
                    tuple(where_kept[i] for i in keeps),
                    tuple(where_kept[i] for i in reads),
                    after,
                )
            )
        numbers = tuple(
            (n, known.index(r)) for n, r in enumerate(self.results) if not self.is_wide(r)
        )
        attrs = {
            "shape": self.shape,
            "wides": len(self.wides),
            "before": first,
            "walks": tuple(tuple(w) for w in walks),
            "numbers": numbers,
            "sums": self.sums.name,
            "buffers": count,
            "results": tuple(
                (self.specs[r].shape, self.specs[r].dtype.name, self.is_wide(r))
                for r in self.results
            ),
        }
        return Step("fused_rows", (*self.wides, *self.narrows), attrs, tuple(self.results))

    def numbers_of(self, level: int) -> list[int]:
        """The narrow values of a level that maps give."""
        maps = [s.results[0] for s in self.steps if s.op not in REDUCTIONS]
        return [i for i in maps if not self.is_wide(i) and self.level[i] == level]

    def after(
        self, reduced: Sequence[Step], level: int, known: Sequence[int | str]
    ) -> tuple[Text, list[int]]:
        """What is made of the totals of a walk: results of reductions, then maps of these."""
        first, totals = [], []
        for s in reduced:
            n, spec = self.number[s.results[0]], self.specs[s.results[0]]
            totals.append(f"total{n}")
            total = f"total{n}"
            if s.op == "mean":
                total = f"{total} / cb.cast(n, {total}.dtype)"
            first.append(f"v{n} = {written.rounded(total, spec.dtype)}")
        new = [s.results[0] for s in reduced]
        maps = self.numbers_of(level + 1)
        head: list[int | str] = ["n", *totals, *known]
        text = self.text(head, maps, [*new, *maps], first=first, several=True)
        return text, [*new, *maps]

    def needed(self, wanted: Sequence[int], given: Sequence[int | str]) -> list[int]:
        """What has to be computed for values, in running order."""
        known, stack, found = {*given, *self.wides}, list(wanted), set()
        while stack:
            i = stack.pop()
            if i not in known and i not in found and i in self.by:
                found.add(i)
                stack += self.by[i].read
        return [i for i in self.number if i in found]

    def text(
        self,
        parameters: Sequence[int | str],
        steps: Sequence[int],
        outputs: Sequence[int],
        *,
        first: Sequence[str] = (),
        several: bool = False,
    ) -> Text:
        """A function of values of the group."""
        given = set(parameters)
        literals = [
            i for i in self.literals if any(i in self.by[n].read for n in steps) or i in outputs
        ]
        order = [i for i in (*literals, *steps) if i not in given]
        order = list(dict.fromkeys(order))
        lines = [
            (self.number[i], written.step_of(self.by[i], self.number, self.specs)) for i in order
        ]
        names = [p if isinstance(p, str) else self.number[p] for p in parameters]
        return written.text_of(names, lines, [self.number[i] for i in outputs], first, several)

    def kept(self) -> list[int]:
        """Wide values that took long, or many loads, and that a later walk needs again."""
        if self.shape[-1] > BUFFERED:
            return []
        found = []
        for s in self.steps:
            i = s.results[0]
            level = self.level[i]
            if (
                not self.is_wide(i)
                or not self.specs[i].dtype.is_float
                or level > max(self.level.values())
            ):
                continue
            if self.walked_at(i, level) and self.later(i, level):
                exact = self.sums is f32 or self.specs[i].dtype is f64
                many = exact and self.saved(i) > 1 and i not in self.again()
                if s.op in written.LONG or many:
                    found.append(i)
        return found[: self.buffers]

    def buffered(self, kept: Sequence[int]) -> dict[int, int]:
        """Where kept values are: the numbers of buffers, or -1, -2, ... for results of their dtype
        that are written when nobody needs them any more, which take no more of the caches.
        """
        same = [r for r in self.results if self.specs[r].dtype is self.sums]
        free = [r for r in same if self.shape[-1] <= MOST_HOME and self.is_wide(r)]
        found: dict[int, int] = {}
        for i in kept:
            level = self.level[i]
            above = range(level + 1, max(self.level.values()) + 1)
            last = max(n for n in above if i in self.needed(self.wanted(n), ()))
            home = next((r for r in free if self.level[r] >= max(last, level + 1)), None)
            if home is None:
                found[i] = sum(n >= 0 for n in found.values())
            else:
                free.remove(home)
                found[i] = -1 - self.results.index(home)
        return found

    def again(self) -> list[int]:
        """Wide results that later walks read where they stand, which takes fewer loads than to
        compute them again.
        """
        if not self.buffers:
            return []
        found = []
        for i in self.results:
            level, spec = self.level[i], self.specs[i]
            if self.is_wide(i) and spec.dtype in (f32, f64) and self.by[i].op not in written.LONG:
                if self.later(i, level) and self.saved(i) > 0:
                    found.append(i)
        return found

    def saved(self, i: int) -> int:
        """How many loads of rows later walks save if they read a value."""
        total = 0
        for level in range(self.level[i] + 1, max(self.level.values()) + 1):
            wanted = self.wanted(level)
            if i in self.needed(wanted, ()) or i in wanted:
                total += len(self.loads(wanted, ())) - len(self.loads(wanted, (i,))) - 1
        return total

    def loads(self, wanted: Sequence[int], given: Sequence[int]) -> set[int]:
        """The rows from outside that values are made of."""
        steps = [i for i in self.needed(wanted, given) if i not in given]
        read = {j for i in steps for j in self.by[i].read} | set(wanted) - set(given)
        return read.intersection(self.wides)

    def wanted(self, level: int) -> list[int]:
        """What the walk of a level is for: what is reduced, and wide results."""
        reduced = [s for s in self.steps if s.op in REDUCTIONS]
        found = [s.inputs[0] for s in reduced if self.level[s.inputs[0]] == level]
        return found + [r for r in self.results if self.is_wide(r) and self.level[r] == level]

    def walked_at(self, i: int, level: int) -> bool:
        """Whether a value is computed in the walk of its own level."""
        return i in self.needed(self.wanted(level), ())

    def later(self, i: int, level: int) -> bool:
        """Whether a later walk needs a value."""
        above = range(level + 1, max(self.level.values()) + 1)
        return i in self.needed([i for later in above for i in self.wanted(later)], ())
