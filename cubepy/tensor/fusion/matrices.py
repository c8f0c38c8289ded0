"""Maps and reductions along rows of arrays of many axes as those of matrices, where a reshape lies
between them: what is a batch of rows to one op and an array of samples and positions to the next
joins then.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.reductions.rows import REDUCTIONS
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import OPS, Spec


def as_matrices(schedule: Schedule) -> Schedule:
    """The schedule with groups of maps and reductions on both sides of a reshape done on matrices,
    whose rows are the same last axis. What they read from outside of the group must lie in memory
    without gaps, so that a reshape of it is free; of inputs of the graph that is taken for granted
    (a reshape of one with gaps is a copy).
    """
    groups = _Groups(schedule)
    chosen = groups.chosen()
    if not chosen:
        return schedule
    return _Flat(schedule, chosen).schedule()


def _rows(spec: Spec) -> tuple[int, int] | None:
    """A shape as a matrix of the same rows."""
    return (math.prod(spec.shape[:-1]), spec.shape[-1]) if len(spec.shape) > 1 else None


def _between_rows(step: Step, specs: dict[int, Spec]) -> bool:
    """Whether a step is a reshape that leaves rows as they are."""
    if step.op != "reshape":
        return False
    before, after = specs[step.inputs[0]], specs[step.results[0]]
    return _rows(before) is not None and _rows(before) == _rows(after)


class _Groups:
    """Which steps are done on matrices: all of those that hang together, or none.

    Attributes:
        schedule: the steps.
        packed: values that lie in memory without gaps.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.packed = {
            r for s in schedule.steps if OPS[s.op].kind != "view" for r in s.results
        } | set(schedule.inputs)
        for step in schedule.steps:  # a view of them is one, if it is a reshape
            if step.op == "reshape" and step.inputs[0] in self.packed:
                self.packed.add(step.results[0])
        self.parent: dict[int, int] = {}
        self.several: set[int] = set()  # values of groups with a reshape in them

    def find(self, i: int) -> int:
        """The value that stands for the group of a value."""
        while self.parent.setdefault(i, i) != i:
            i = self.parent[i]
        return i

    def join(self, i: int, j: int) -> None:
        """The values are of one group."""
        self.parent[self.find(i)] = self.find(j)

    def chosen(self) -> set[int]:
        """The steps, by their results."""
        specs, fits = self.schedule.specs, set[int]()
        for step in self.schedule.steps:
            result = step.results[0]
            if _between_rows(step, specs):
                if step.inputs[0] in self.parent:
                    self.join(step.inputs[0], result)
                    fits.add(result)
                if self.known(step.inputs[0]):
                    self.several.add(result)
                    self.find(result)
                continue
            if not self.fits(step):
                continue
            fits.add(result)
            self.find(result)
            for i in step.read:
                if i in self.parent and self.rows(i) == self.rows(result, step):
                    self.join(i, result)
        wanted = {self.find(i) for i in self.several}
        return {i for i in fits if self.find(i) in wanted}

    def rows(self, i: int, step: Step | None = None) -> int:
        """How many rows a value has, or what a reduction of a step is of."""
        given = i if step is None or step.op not in REDUCTIONS else step.inputs[0]
        return math.prod(self.schedule.specs[given].shape[:-1])

    def fits(self, step: Step) -> bool:
        """Whether a step can be done on matrices."""
        specs = self.schedule.specs
        spec = specs[step.results[0]]
        if len(step.results) != 1:
            return False
        if step.op in REDUCTIONS:
            shape = specs[step.inputs[0]].shape
            axis = step.attrs["axis"]
            axes = (axis,) if isinstance(axis, int) else axis
            if len(shape) < 2 or axes is None or [a % len(shape) for a in axes] != [len(shape) - 1]:
                return False
            return self.known(step.inputs[0])
        dtypes = [specs[i].dtype for i in step.read]
        mapped = OPS[step.op].kind == "map" or step.op in written.SAME
        if not mapped or not written.writable(step.op, step.attrs, dtypes, spec.dtype):
            return False
        if len(spec.shape) < 2 or 0 in spec.shape:
            return False
        return all(self.known(i) and beside(specs[i].shape, spec.shape) for i in step.read)

    def known(self, i: int) -> bool:
        """Whether a value is of a group, or lies without gaps."""
        return i in self.packed or i in self.parent


def beside(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether rows are broadcast to those of a result as a whole: one number, one row, a number for
    each, or all.
    """
    one = math.prod(shape[:-1]) == 1 and len(shape) <= len(whole)
    return (one or shape[:-1] == whole[:-1]) and (not shape or shape[-1] in (1, whole[-1]))


class _Flat:
    """A schedule while steps are put on matrices."""

    def __init__(self, schedule: Schedule, chosen: set[int]) -> None:
        self.given, self.chosen = schedule, chosen
        self.specs = dict(schedule.specs)
        self.steps: list[Step] = []
        self.flat: dict[int, int] = {}
        self.totals: dict[int, int] = {}

    def schedule(self) -> Schedule:
        """The steps; arrays of many axes are reshapes of matrices."""
        for step in self.given.steps:
            result = step.results[0]
            source = step.inputs[0] if step.op == "reshape" else None
            if source in self.flat or source in self.totals:
                self.reshaped(step)
            elif source is not None or result not in self.chosen or self.short(result):
                self.steps.append(step)
            elif len(self.specs[result].shape) == 2 and step.op not in REDUCTIONS:
                self.steps.append(replace(step, inputs=self.flattened(step, result)))
                self.flat[result] = result
            else:
                self.on_matrices(step)
        changed = replace(self.given, steps=tuple(self.steps), specs=self.specs)
        return changed.with_steps(self.steps)

    def short(self, i: int) -> bool:
        """Whether a value has less than two axes."""
        return len(self.specs[i].shape) < 2

    def on_matrices(self, step: Step) -> None:
        """A step over rows, and its result as it was."""
        result = step.results[0]
        spec, attrs = self.specs[result], dict(step.attrs)
        shape = _rows(spec) or spec.shape
        if step.op in REDUCTIONS:
            attrs["axis"] = 1
            rows = math.prod(self.specs[step.inputs[0]].shape[:-1])
            shape = (rows, 1) if attrs["keepdims"] else (rows,)
        elif step.op == "expand":
            attrs["shape"] = shape
        made = self.new(Spec(shape, spec.dtype))
        self.steps.append(Step(step.op, self.flattened(step, result), attrs, (made,)))
        (self.flat if len(shape) == 2 else self.totals)[result] = made
        self.reshape(made, result)

    def flattened(self, step: Step, result: int) -> tuple[int, ...]:
        """The inputs of a step as matrices, rows or numbers."""
        whole = self.specs[result].shape if step.op not in REDUCTIONS else ()
        found = []
        for i in step.inputs:
            shape = self.specs[i].shape if i in self.specs else ()
            if len(shape) < 2 or (len(shape) == 2 and i not in self.flat and len(whole) == 2):
                found.append(i)
                continue
            if i not in self.flat:
                flat = _rows(self.specs[i]) or shape
                self.flat[i] = i if flat == shape else self.new(Spec(flat, self.specs[i].dtype))
                if flat != shape:
                    self.reshape(i, self.flat[i])
            found.append(self.flat[i])
        return tuple(found)

    def reshaped(self, step: Step) -> None:
        """A reshape of what is a matrix: of the matrix."""
        source, result = step.inputs[0], step.results[0]
        made = self.flat[source] if source in self.flat else self.totals[source]
        rows = _rows(self.specs[result])
        if source in self.totals and rows == (*self.specs[made].shape, 1):
            column = self.new(Spec(rows, self.specs[made].dtype))
            self.reshape(made, column)
            made = column
        if rows == self.specs[made].shape:
            self.flat[result] = made
        self.reshape(made, result)

    def reshape(self, source: int, result: int) -> None:
        """A step that gives the elements in another shape."""
        shape: Any = self.specs[result].shape
        self.steps.append(Step("reshape", (source,), {"shape": shape}, (result,)))

    def new(self, spec: Spec) -> int:
        """A new value."""
        found = max(self.specs) + 1
        self.specs[found] = spec
        return found
