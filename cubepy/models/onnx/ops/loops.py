"""Loops whose rounds shapes decide, as one scan of a program.

Exporters of TensorFlow write recurrent layers as `Loop`: the number of the round, an index that
counts, matrices that pass through and arrays of which each round takes a row are all *carried*.
What host arrays decide is computed ahead, round by round: how many rounds there are, and the
numbers of each. Rows that rounds take, and products of them with matrices that stay, are there for
all rounds at once; what is left is carried.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.errors import CubeError
from cubepy.models.onnx.constants import Constant
from cubepy.models.onnx.records import Call, is_host
from cubepy.models.onnx.runner import NeedsElements, Runner, Step, host_of, liftable
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply

MOST_ROUNDS, MOST_NUMBERS = 1 << 16, 1 << 22
"""Rounds of which numbers are computed ahead, and how many of these."""
SAME = ("Not", "Cast", "Identity")
"""Operators that do with rows of all rounds what they do with those of one."""


class Rounds:
    """A loop and what is known of it before it runs.

    Args:
        runner: of the body: (number of the round, condition, states) -> (condition, states, kept).
        around: values of what the body reads from around.
        first: the first states.
        most: rounds at most.

    Attributes:
        states: the names of the states, and those of what they become.
        first: the first states, by name.
        fixed: values by name that all rounds read.
        hosts: by name, the host arrays of each round: numbers and states that data do not decide.
        last: these states behind the last round.
        count: rounds.

    Raises:
        NeedsElements: data decide when it ends.
    """

    def __init__(self, runner: Runner, around: dict[str, Any], first: list[Any], most: int) -> None:
        self.runner, self.around = runner, around
        names, ends = runner.inputs[2:], runner.outputs[1 : 1 + len(first)]
        self.number, self.condition = runner.inputs[:2]
        self.states = dict(zip(names, ends, strict=True))
        self.first = dict(zip(names, first, strict=True))
        self.makers = {o: s for s in runner.steps for o in s.outputs if o}
        self.fixed = around | {
            n: self.first[n] for n, e in self.states.items() if self.same(e) == n
        }
        self.hosts: dict[str, list[Any]] = {}
        self.last: dict[str, Any] = {}
        self.count = self._ahead(most)
        for name, all_of in self.hosts.items():
            if all(np.array_equal(all_of[0], one) for one in all_of):
                self.fixed[name] = all_of[0]
        self.fixed[self.condition] = np.array(True)

    def same(self, name: str) -> str:
        """The name that a value has before nodes that pass it on."""
        while (step := self.makers.get(name)) is not None and step.record.name == "Identity":
            name = step.inputs[0]
        return name

    def _ahead(self, most: int) -> int:
        """Compute what host arrays decide, round by round."""
        counted = {n for n in self.states if n not in self.fixed and is_host(self.first[n])}
        while True:
            known = self._decided({self.number, self.condition, *counted})
            lost = {n for n in counted if self.states[n] not in known}
            if not lost:
                break
            counted -= lost
        condition = self.runner.outputs[0]
        if condition not in known:
            raise NeedsElements
        needed = self.needed([condition, *[self.states[n] for n in counted]], known.__contains__)
        env = {n: self.first[n] for n in counted}
        self.hosts = {n: [] for n in (self.number, *counted)}
        count, goes = 0, True
        while goes and count < most:
            if count >= MOST_ROUNDS:
                raise NeedsElements
            env |= self.fixed | {self.number: np.array(count), self.condition: np.array(True)}
            for name, kept in self.hosts.items():
                kept.append(env[name])
            for step in needed:
                self.runner.perform(step, env)
            goes = bool(np.asarray(host_of(self.runner.value(env, condition))).reshape(-1)[0])
            env = {n: host_of(self.runner.value(env, self.states[n])) for n in counted}
            count += 1
        self.last = env
        many = sum(np.asarray(v[0]).size for v in self.hosts.values() if v) * count
        if many > MOST_NUMBERS:
            raise NeedsElements
        return count

    def _decided(self, hosts: set[str]) -> set[str]:
        """The names whose values host arrays decide, and these alone."""
        found = set(hosts)
        for name in (*self.fixed, *self.runner.constants):
            value = self.fixed.get(name, self.runner.constants.get(name))
            if is_host(value) or (isinstance(value, Constant) and value.small):
                found.add(name)
        for step in self.runner.steps:
            may = step.record.host is not None or step.record.plain
            if may and found.issuperset(n for n in step.inputs if n):
                found.update(step.outputs)
        return found

    def needed(self, names: Iterable[str], within: Any = None) -> list[Step]:
        """The steps that compute some names, in their order; `within` says of which at all."""
        wanted, found = set(names), []
        for step in reversed(self.runner.steps):
            if wanted.intersection(step.outputs) and (within is None or within(step.outputs[0])):
                found.append(step)
                wanted.update(step.inputs)
        return found[::-1]

    # As a scan

    def scanned(self) -> list[Any]:
        """The last states, and what is kept of all rounds, by `cb.scan`."""
        outputs = self.runner.outputs[1:]
        carried = [n for n in self.states if n not in self.fixed and n not in self.last]
        ends = [self.states[n] for n in carried]
        kept = outputs[len(self.states) :]
        rows, known = self._rows()
        rest = [s for s in self.needed([*ends, *kept]) if not known.issuperset(s.outputs)]

        def once(carry: list[Tensor], parts: dict[str, Tensor]) -> Any:
            env = self.fixed | parts | dict(zip(carried, carry, strict=True))
            for step in rest:
                self.runner.perform(step, env)
            made = [tensor_of(self.runner.value(env, name)) for name in (*ends, *kept)]
            return made[: len(ends)], made[len(ends) :]

        begun = [tensor_of(self.first[n]) for n in carried]
        last, found = T.scan(once, begun, rows, length=self.count)
        by = dict(zip(carried, last, strict=True)) | self.last
        return [*[by[n] if n in by else self.first[n] for n in self.states], *found]

    def _rows(self) -> tuple[dict[str, Tensor], set[str]]:
        """What each round has a row of, and all names that rounds need not compute."""
        indices = {n: np.stack(v) for n, v in self.hosts.items() if n not in self.fixed}
        rows = {n: tensor_of(v) for n, v in indices.items()}
        for step in self.runner.steps:
            found = self._row(step, rows, indices)
            if found is not None:
                rows[step.outputs[0]] = found
        return rows, {*rows, *self.fixed}

    def _row(
        self, step: Step, rows: dict[str, Tensor], indices: dict[str, np.ndarray]
    ) -> Tensor | None:
        """What a step computes in all rounds, if rows and what is fixed decide it."""
        name, inputs = step.record.name, step.inputs
        if name == "Gather" and not step.call.get("axis", 0) and inputs[1] in indices:
            array, at = self._fixed(inputs[0]), indices[inputs[1]]
            if (
                isinstance(array, Tensor)
                and at.ndim == 1
                and 0 <= at.min() <= at.max() < len(array)
            ):
                whole = np.array_equal(at, np.arange(len(array)))
                return array if whole else apply("take", array, tensor_of(at), axis=0)
            return None
        if inputs[0] not in rows or inputs[0] in indices or step.call.count != 1:
            return None
        product = name == "Linear" or (name == "MatMul" and self._matrix(inputs[1]))
        if not (product and len(rows[inputs[0]].shape) > 1) and name not in SAME:
            return None
        env = self.fixed | rows
        self.runner.perform(step, env)
        return env[step.outputs[0]] if isinstance(env[step.outputs[0]], Tensor) else None

    def _fixed(self, name: str) -> Any:
        """The value of a name that is the same in all rounds; None for others."""
        if name in self.fixed or name in self.runner.constants:
            found = self.runner.value(self.fixed, name)
            return tensor_of(found) if isinstance(found, np.ndarray) else found
        return None

    def _matrix(self, name: str) -> bool:
        found = self._fixed(name)
        return isinstance(found, Tensor) and len(found.shape) == 2


def tensor_of(value: Any) -> Any:
    """A host array as a tensor."""
    if isinstance(value, np.ndarray) and liftable(value):
        return T(np.ascontiguousarray(value).reshape(value.shape))
    return value


def rounds_of(call: Call, body: Any, first: list[Any], most: int) -> Rounds | None:
    """A loop of which the rounds are known; None where data decide."""
    try:
        runner, around = call.run_graph.begun(body, [])
        if len(runner.inputs) != 2 + len(first):
            return None
        return Rounds(runner, around, first, most)
    except (CubeError, NeedsElements):  # the loop as it stands says what is wrong
        return None


def as_scan(rounds: Rounds) -> list[Any] | None:
    """What a loop gives, by one scan; None where that cannot be: a step asks for elements, or a
    state changes its shape.
    """
    try:
        return rounds.scanned()
    except (CubeError, NeedsElements):
        return None


def slices_as_scan(
    call: Call, first: list[Any], over: list[Any], axes: list[int], ways: Any
) -> tuple[list[Any], list[Any]] | None:
    """The last states of a `Scan` and what it keeps, by one scan; None where that cannot be.

    Args:
        call: the node.
        first: states.
        over: what it goes over, each along one of `axes`, from its end where `ways` is true.
    """

    def once(carry: list[Tensor], parts: list[Tensor]) -> Any:
        made = [tensor_of(v) for v in call.run_graph(call["body"], [*carry, *parts])]
        return made[: len(first)], made[len(first) :]

    rows = []
    for value, axis, way in zip(over, axes, ways, strict=True):
        row = T.moveaxis(tensor_of(value), axis, 0)
        rows.append(T.flip(row, axis=0) if way else row)
    try:
        return T.scan(once, [tensor_of(v) for v in first], rows)
    except (CubeError, NeedsElements):
        return None
