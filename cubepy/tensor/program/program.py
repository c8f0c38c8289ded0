"""A program: the graph of a traced function, run by one call of machine code.

Until its launches are known, or where they cannot be repeated, it runs the ops of its graph one by
one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from cubepy.errors import CubeError, OutOfMemoryError
from cubepy.runtime import recording
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.device import gpu_of
from cubepy.runtime.memory.pool import host_pool
from cubepy.runtime.replay.host import host_replay
from cubepy.runtime.replay.plan import Plan
from cubepy.runtime.replay.record import Launch, Recorder
from cubepy.runtime.stats import counters
from cubepy.tensor.array import Tensor
from cubepy.tensor.control.bounded import in_memory
from cubepy.tensor.explained.lineage import Lineage, lines_of
from cubepy.tensor.explained.timed import asked_by
from cubepy.tensor.exposed import expose, noted
from cubepy.tensor.ir import ABSENT, Graph
from cubepy.tensor.ops import OPS, written_in_place
from cubepy.tensor.program.plans.bundles import bundled
from cubepy.tensor.program.plans.gpu import GpuCalls
from cubepy.tensor.program.plans.host import HostCalls
from cubepy.tensor.program.plans.in_place import InPlace, in_place
from cubepy.tensor.program.plans.operands import ProgramOperands
from cubepy.tensor.program.plans.reused import reused
from cubepy.tensor.program.plans.states import copied
from cubepy.tensor.program.stepwise import arrays_by_steps, arrays_in_place
from cubepy.tensor.program.trace import Given, GradientGiven, Source
from cubepy.tensor.program.writer import MISS, Writer
from cubepy.tensor.storage import Dense, Storage
from cubepy.tensor.value import Number, Value

MUCH = 1 << 26
"""Bytes that wait in the pool from which on they are given back before launches are recorded: a
plan will not take them."""
CHANCES = 8
"""Recordings without a plan after which there are no more: launches need three runs to find out
whether threads pay."""


class Program:
    """What a function does for one kind of calls.

    Args:
        writer: of its calls.
        eagerly: the function itself.
        changed: what is told when `call` is another function.
        memory: bytes for what is between its steps; None for no bound.

    Attributes:
        guards: whether what the function read is as it was.
        plain: the ops of the function.
        in_place: how they write states where they are, if they do.
        repeated: how many of them run again, because of the bound.
        call: a function of (args, kwargs) that gives the results, or MISS.
        plan: its launches, once they are known.
        operands: of the plan.
        why: why there is no plan.
        launched: the kernels of each node, once they were recorded.
        within: the kernels of nodes of the programs within, once somebody looked: by text and
            number.
    """

    def __init__(
        self,
        writer: Writer,
        eagerly: Callable[..., Any],
        changed: Callable[[Any, Any], None],
        memory: int | None = None,
    ) -> None:
        self.writer, self.eagerly, self.changed = writer, eagerly, changed
        self.guards = writer.guards
        self.memory = memory
        self.plain, self.repeated = in_memory(writer.fused.graph, memory)
        self.in_place = in_place(self.plain, writer.states)
        self.plan: Plan | None = None
        self.operands: ProgramOperands | None = None
        self.why = "its launches are not recorded yet"
        self.chances = CHANCES
        self.launched: dict[int, list[str]] = {}
        self.within: dict[tuple[str, int], list[str]] = {}
        self.lock, self.writing = threading.Lock(), threading.RLock()
        self.calls = self.recorded_calls()
        if self.calls is None:
            self.chances, self.why = 0, f"programs on {writer.home} run op by op"
        elif writer.gpu is None and (host_replay() is None or host_replay().entry() is None):
            self.chances, self.why = 0, "there is no machine code for this Python"
        if not self.chances:
            self.in_place = None
        self.call = self.unplanned()

    @property
    def graph(self) -> Graph:
        """The ops that it runs."""
        return self.plain if self.in_place is None else self.in_place.graph

    def unplanned(self) -> Any:
        """The function `call` while there is no plan."""
        compute = partial(self.compute, found=self.in_place)
        return self.later(lambda: self.written("compute", compute))

    def later(self, write: Callable[[], Any]) -> Any:
        """A function like `call` whose text is written when a call comes: many kinds never come
        again.
        """

        def first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if recording.detours:
                return MISS
            with self.writing:
                if self.call is first:
                    self.call = write()
                    self.changed(first, self.call)
            return self.call(args, kwargs)

        return first

    def written(self, name: str, function: Callable[..., Any], *, detours: bool = False) -> Any:
        """The function `call` whose outputs another one computes, of its arrays."""
        writer = self.writer
        writer.updated = self.updated
        outputs = [f"r{n}" for n in range(len(self.graph.outputs))]
        given = "".join(f"{one}, " for one in writer.values if one is not None)
        middle = [f"outputs = {name}(({given}))", *(["update.end(0)"] if self.updated else [])]
        middle += [f"r{n} = outputs[{n}]" for n in range(len(outputs))]
        scope = {name: function, "eagerly": self.eagerly}
        return writer.function(middle, outputs, scope, detours=detours)

    @property
    def updated(self) -> dict[int, int]:
        """The inputs that it writes in place, by the outputs that they become."""
        return {} if self.in_place is None else self.in_place.written

    def recorded_calls(self) -> HostCalls | GpuCalls | None:
        """How its calls are recorded; None where none can be repeated."""
        writer = self.writer
        given = [
            (name, "" if source is None else source.kind, number)
            for name, source, number in zip(writer.values, self.sources, self.numbers, strict=True)
            if name is not None
        ]
        names = [name for name, *_ in given]
        if writer.gpu is None:
            if writer.home.backend != "cpu":
                return None
            states = {self.plain.inputs[k] for k in self.updated.values()}
            return HostCalls(names, self.caches | self.positions(states))
        if getattr(gpu_of(writer.gpu), "replays", None) is None:
            return None
        numbers = {n for n, (_, kind, number) in enumerate(given) if number and kind != "constant"}
        arguments = {n for n, (_, kind, _) in enumerate(given) if kind == "argument"} - numbers
        constants = {n for n, (_, kind, _) in enumerate(given) if kind == "constant"}
        effects = writer.trace.effects
        states = {e.output for e in effects if isinstance(e, Given)}
        states |= {e.to for e in effects if isinstance(e, GradientGiven) and type(e.to) is int}
        return GpuCalls(
            writer.gpu, names, numbers, constants, arguments - self.caches, self.caches, states
        )

    def stores(self, arrays: Sequence[Any]) -> list[Tensor]:
        """The inputs of the graph as tensors, of the arrays of those that are dense."""
        found, rest = [], iter(arrays)
        for number, name, store in zip(
            self.numbers, self.writer.values, self.writer.stores, strict=True
        ):
            kept: Storage = store if name is None else Dense(next(rest))
            tensor = object.__new__(Tensor)
            on_host = number and type(kept.dense()) is np.ndarray  # else a program has brought it
            tensor.value = Number(kept) if on_host else Value(kept)
            found.append(tensor)
        return found

    @property
    def sources(self) -> list[Source | None]:
        """Where the inputs of its graph come from; None for what is made of weights."""
        fused, sources = self.writer.fused, self.writer.trace.sources
        return [*[sources[n] for n in fused.inputs], *[None for _ in fused.preparations]]

    @property
    def numbers(self) -> list[bool]:
        """Whether the inputs of its graph are numbers beside tensors."""
        fused, numbers = self.writer.fused, self.writer.numbers
        return [*[n in numbers for n in fused.inputs], *[False for _ in fused.preparations]]

    def compute(self, arrays: tuple[Any, ...], found: InPlace | None) -> list[Any]:
        """The arrays of the outputs, op by op; the launches are recorded if there is a chance.

        Args:
            arrays: of the inputs.
            found: which of them are written in place.
        """
        counters.calls += 1
        if self.chances and self.lock.acquire(blocking=False):
            try:
                if found is self.in_place:
                    return self.record(arrays)
            finally:
                self.lock.release()
        return self.run(arrays, found)

    @cached_property
    def stepwise(self) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
        """A function like `call` that runs the steps one by one, for whoever profiles."""
        found: Any = self.written("walk", partial(self.walk, found=self.in_place), detours=True)
        return found

    def walk(self, arrays: tuple[Any, ...], found: InPlace | None) -> list[Any]:
        """The arrays of the outputs, op by op; who profiles is told the lines."""
        counters.calls += 1
        lineage = self.lineage
        try:
            return self.run(arrays, found, lambda at: asked_by(lineage.lines(at)))
        finally:
            asked_by(None)

    def run(
        self,
        arrays: Sequence[Any],
        found: InPlace | None,
        before: Callable[[int], Any] | None = None,
    ) -> list[Any]:
        """The outputs, op by op.

        Args:
            arrays: of the inputs.
            found: which of them are written in place.
            before: is told the number of each node before it runs.
        """
        tensors, home = self.stores(arrays), self.writer.home
        if found is None:
            return arrays_by_steps(self.plain, tensors, home, lambda: self.lineage, before)
        return arrays_in_place(found, tensors, home, lambda: self.lineage, before)

    @property
    def lineage(self) -> Lineage:
        """Which traced ops its nodes are."""
        trace = self.writer.trace
        return Lineage(trace.graph, self.graph, lines_of(trace.graph, trace.asked))

    @cached_property
    def caches(self) -> frozenset[int]:
        """The arrays of a call that ops write in place, but for states."""
        return self.positions(written_in_place(self.plain.nodes))

    def positions(self, inputs: Collection[int]) -> frozenset[int]:
        """Where some inputs of the graph are among the arrays of a call."""
        dense = [
            value
            for value, name in zip(self.plain.inputs, self.writer.values, strict=True)
            if name is not None
        ]
        return frozenset(k for k, value in enumerate(dense) if value in inputs)

    def given(
        self, values: Sequence[Value], own: Mapping[int, Any] | None = None
    ) -> tuple[Any, ...]:
        """The arrays of the inputs that a call passes on, of the values of all; copies of those
        that it writes.

        Args:
            values: of the inputs of the trace.
            own: what it may write in place of copies, by the numbers of the inputs of the graph.
        """
        writer, written, own = self.writer, set(self.updated.values()), own or {}
        made = () if writer.prepared is None else writer.prepared.arrays(values)
        given = []
        for k, (n, name) in enumerate(zip(writer.fused.inputs, writer.values, strict=False)):
            if k in own:
                given.append(own[k])
            elif name is not None:
                array = values[n].storage.dense()
                given.append(copied(array) if k in written else array)
        return (*given, *made)

    def settle(self, values: Sequence[Value]) -> None:
        """Run on the side until the launches are known, or cannot be."""
        for _ in range(CHANCES):
            if self.plan is None and self.chances:
                self.compute(self.given(values), self.in_place)

    def record(self, arrays: tuple[Any, ...]) -> list[Any]:
        """The arrays of the outputs; from the next call on by one call of machine code, if that is
        possible.
        """
        assert self.calls is not None
        if host_pool.stats.reserved >= MUCH:  # what the traced call took, op by op
            host_pool.trim()
        try:
            given, recorded = self.calls.begin(arrays)
        except Unsuitable as error:
            found = self.in_place
            self.refused(str(error), 0)
            return self.run(arrays, found)
        try:
            return self.recorded(given, recorded)
        finally:
            self.calls.forget()

    def recorded(self, given: Sequence[Any], recorded: Recorder) -> list[Any]:
        """The arrays of the outputs of a call that is recorded."""
        assert self.calls is not None
        settings = recording.settings
        constants = [a for s in self.writer.stores if s is not None for a in s.read()]
        nodes: list[tuple[int, int]] = []

        def note(at: int) -> None:
            nodes.append((at, len(recorded.steps)))

        with recorded:
            for array in constants:
                recorded.constant(array)
            outputs = self.run(given, self.in_place, note)
        self.launched = launched(nodes, recorded)
        if settings == recording.settings:
            try:
                if recorded.spoiled:
                    raise Unsuitable("something that is no launch")
                operands = self.calls.operands(outputs)
                plan = Plan(recorded, None, None, operands)
                self.install(plan, operands)
                operands.forget()
            except (Unsuitable, OutOfMemoryError) as error:
                self.refused(str(error), self.chances - 1)
        return outputs

    def refused(self, why: str, chances: int) -> None:
        """There is no plan yet; without further chances there will be none, and what runs op by op
        takes new memory.
        """
        self.chances, self.why = chances, why
        if not chances and self.in_place is not None:
            before, self.in_place = self.call, None
            self.call = self.unplanned()
            vars(self).pop("stepwise", None)
            self.changed(before, self.call)

    def install(self, plan: Plan, operands: ProgramOperands) -> None:
        """Use a plan from now on."""
        assert self.calls is not None
        compute = partial(self.compute, found=self.in_place)
        scope: dict[str, Any] = {"counters": counters, "again": self.again, "compute": compute}
        scope["eagerly"] = self.eagerly
        for n, guard in enumerate(plan.guards):
            scope[f"valid{n}"] = guard.valid
        outputs = [f"r{n}" for n in range(len(operands.outputs))]

        def view(n: int, name: str) -> str:
            if n in self.updated:
                return name
            scope[f"view{n}"] = self.view(self.graph.outputs[n])
            return f"view{n}({name})"

        self.writer.updated = self.updated
        done = ["update.end(code)"] if self.updated else []
        again = reused(self.writer, operands)
        names = self.calls.inputs
        bundles = bundled(self.writer, operands, names, plan.table)
        given = names if bundles is None else bundles.names
        middle, views = operands.call(plan, given, scope, view, done, again)
        middle.append("counters.calls += 1")
        if self.caches:  # what is kept of their elements is no more
            scope |= {"expose": expose, "exposable": noted}
            middle.append("if exposable:")
            exposed = [names[k] for k in sorted(self.caches)]
            exposed = exposed if bundles is None else [*map(bundles.array, exposed)]
            middle += [f"    expose({name})" for name in exposed]
        counters.plans += 1
        counters.arena += operands.arena
        before = self.call
        self.plan, self.operands, self.chances, self.why = plan, operands, 0, ""
        valid = [f"valid{n}()" for n in range(len(plan.guards))]
        lines = [*middle, *views]
        function = partial(self.writer.function, again=again, bundles=bundles)
        write = partial(function, lines, outputs, scope, valid)
        self.call = self.later(write)
        self.changed(before, self.call)

    def view(self, output: int) -> Callable[[Any], Any]:
        """What makes an output of the input that it is a view of."""
        needed, leaves = {output}, list[int]()
        steps: list[tuple[int, Any, Any, tuple[int, ...], dict[str, Any]]] = []
        for value, node in reversed([*zip(self.graph.firsts, self.graph.nodes, strict=True)]):
            if needed.isdisjoint(range(value, value + len(node.results))):
                continue
            if node.op == "input":
                leaves.append(value)
                continue
            if len(node.results) != 1 or ABSENT in node.inputs:
                raise Unsuitable("a result that shares memory with an input")
            needed.update(node.inputs)
            attrs = dict(node.attrs)
            steps.append((value, OPS[node.op].run, node.dtype.numpy, node.inputs, attrs))
        if len(leaves) != 1:  # parts of several inputs are no view of one
            raise Unsuitable("a result that shares memory with an input")
        (leaf,) = leaves
        steps.reverse()

        def look(array: Any) -> Any:
            found = {leaf: array}
            for value, run, dtype, inputs, attrs in steps:
                found[value] = run(dtype, *(found[i] for i in inputs), **attrs)
            return found[output]

        return look

    def again(self, code: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A launch reported something: the function itself says what, with the user's line."""
        assert self.plan is not None
        try:
            self.plan.table.failed(code)
        except CubeError:
            return self.eagerly(*args, **kwargs)
        return self.eagerly(*args, **kwargs)


def launched(nodes: Sequence[tuple[int, int]], recorded: Recorder) -> dict[int, list[str]]:
    """The kernels that nodes launched, of (node, steps before it) pairs."""
    ends = [*[first for _, first in nodes[1:]], len(recorded.steps)][: len(nodes)]
    none: list[str] = []  # one for all views
    return {
        at: kernels_of(recorded.steps[first:end]) if first < end else none
        for (at, first), end in zip(nodes, ends, strict=True)
    }


def kernels_of(steps: Sequence[Any]) -> list[str]:
    """The kernels that steps launched."""
    return [s.prepared.executable.program.name for s in steps if isinstance(s, Launch)]
