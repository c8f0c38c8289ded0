"""Tracing: a function of tensors runs once, and its ops are kept with where their inputs came from.

The arguments are handles of their own while it runs: a tensor that is passed and read as a global,
too, stays two inputs. What handles from outside were given (`assign_`, `backward`) are its effects.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cubepy.errors import LaunchError
from cubepy.lang.dtypes import DType
from cubepy.runtime.memory.pool import POOLED, host_pool
from cubepy.tensor.array import Tensor
from cubepy.tensor.control.checkpoint import remember_alias
from cubepy.tensor.explained.lineage import Lineage
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.ir import Graph, renumbered
from cubepy.tensor.program.differentiated import remember
from cubepy.tensor.program.exact import ExactRecorder
from cubepy.tensor.program.form import DICTS, leaves_of
from cubepy.tensor.program.leaked import moving_in
from cubepy.tensor.program.plans.steady import exchange
from cubepy.tensor.program.promised import Promised, compute, keep, leave_to_program
from cubepy.tensor.program.scalar import Scalar, number_of
from cubepy.tensor.program.stepwise import arrays_by_steps
from cubepy.tensor.storage import HOST, Dense
from cubepy.tensor.value import Handle, Number, Value, gradient_of, identities, located, outside


@dataclass(frozen=True)
class Source:
    """Where a call finds a tensor.

    Attributes:
        kind: "argument" (`of` is its number among the leaves), "held" (`of` is a handle that was
            there before), "gradient" (the one of the handle `of`, a source), "constant" (`of` is a
            storage), "number" (`of` is the text of an expression, and a dtype) or "computed" (`of`
            is a function of Python that gives the array).
    """

    kind: str
    of: Any


@dataclass(frozen=True)
class Given:
    """What a handle from outside has after the call: the value of an output of the graph.

    Attributes:
        handle: whose it is.
        output: its number among the outputs.
        leaf: whether it is a leaf that needs gradients.
    """

    handle: Source
    output: int
    leaf: bool


@dataclass(frozen=True)
class GradientGiven:
    """What the gradient of a handle is after the call: an output, a handle, or None.

    Attributes:
        handle: whose gradient it is.
        to: the number of an output, a source, or None.
    """

    handle: Source
    to: int | Source | None


@dataclass
class Trace:
    """What a function did.

    Attributes:
        graph: its ops.
        sources: where the inputs of the graph come from.
        values: what they were.
        result: what it gave: outputs by number (`Output`), sources, anything else as it is.
        effects: what it gave to handles from outside.
        gradients: handles from outside whose gradients it asked for, and whether they had one.
        differentiable: the outputs through which gradients may go to what was outside.
        differentiated: the graph of these outputs, with a node "detach" where gradients stop.
        remembers: whether gradients would go through what a handle from outside was given.
        asked: the user's code that asked for values, by the identities of their specs in the graph.
        homes: the devices of the outputs.
    """

    graph: Graph
    sources: list[Source]
    values: list[Value]
    result: Any
    effects: list[Given | GradientGiven]
    gradients: list[tuple[Source, bool]]
    differentiable: list[int]
    differentiated: Graph
    remembers: bool
    asked: dict[int, Any]
    homes: set[Any]


@dataclass(frozen=True)
class Output:
    """An output of the graph, by its number, as a result."""

    number: int


class Tracer(ExactRecorder):
    """The recorder of a function that is traced.

    Args:
        arguments: tensors among the leaves of its arguments, by their numbers.
        what: the name of the function.

    Attributes:
        runs: whether what was traced is computed.
        had: what handles had before they were given other values.
        gradients_before: what gradients they had.
        outputs: the handles of the outputs of the graph, by their numbers.
    """

    runs = True

    def __init__(self, arguments: dict[int, Tensor], what: str) -> None:
        super().__init__(())
        self.what = what
        self.originals = arguments
        self.own: dict[int, Tensor] = {}
        self.sources: dict[int, Source] = {}
        self.kept: list[Any] = []  # so that no other object gets its identity
        seen: dict[int, Tensor] = {}
        for n, original in arguments.items():
            mine = seen.get(id(original))
            if mine is None:
                mine = seen[id(original)] = self.alias(original)
                self.note(mine, Source("argument", n))
            self.own[n] = mine
        self.first = {n: mine.value for n, mine in self.own.items()}
        self.originals_before = {n: t.value for n, t in arguments.items()}
        self.begin = next(identities)
        self.asked: dict[int, tuple[Source, Handle, bool]] = {}
        self.changed: dict[int, Handle] = {}
        self.exchanged: dict[int, Handle] = {}
        self.numbers: dict[int, Source] = {}
        self.made: dict[Any, Tensor] = {}
        self.found: list[Source] = []
        self.were: list[Value] = []
        self.had: dict[int, tuple[Handle, Value]] = {}
        self.gradients_before: dict[int, tuple[Handle, Any]] = {}
        self.outputs: list[list[Handle]] = []

    def alias(self, original: Tensor) -> Tensor:
        """Another handle of the same elements and gradient."""
        mine: Tensor = object.__new__(type(original))
        mine.value = type(original.value)(original.value.storage)  # a number stays one
        if original.value.needs_grad:
            mine.value.needs_grad, mine.value.handle = True, weakref.ref(mine)
        mine._grad = gradient_of(original)
        return mine

    def note(self, handle: Handle, source: Source) -> Source:
        """Know where a handle is found."""
        self.kept.append(handle)
        return self.sources.setdefault(id(handle), source)

    def source(self, handle: Handle) -> Source | None:
        """Where a call finds a handle; None if it is made by the call."""
        found = self.sources.get(id(handle))
        if found is None and handle.value.id < self.begin:
            found = self.note(handle, Source("held", handle))
        return found

    # What the recorder is told

    def _input(self, tensor: Handle) -> int:
        before = len(self.inputs)
        name = super()._input(tensor)
        if len(self.inputs) > before:
            compute([tensor.storage])  # of a trace before this one
            known = getattr(tensor.value, "handle", None)
            leaf = None if known is None else known()
            found = self.numbers.get(tensor.value.id) or self.source(
                tensor if leaf is None else leaf
            )
            self.found.append(found or Source("constant", tensor.value.storage))
            self.were.append(tensor.value)
        return name

    def number(self, value: Any, dtype: DType) -> Tensor | None:
        if type(value) is not Scalar:
            return None
        made = self.made.get((value.text, dtype))
        if made is not None:
            return made
        made = self.made[value.text, dtype] = object.__new__(Tensor)
        made.value = Number(Dense(np.asarray(value.value, dtype.numpy)))
        self.numbers[made.value.id] = Source("number", (value.text, dtype))
        self._input(made)
        return made

    def settled(self, attrs: dict[str, Any]) -> dict[str, Any]:
        scalars = Scalar in map(type, attrs.values())
        return {k: number_of(v) for k, v in attrs.items()} if scalars else attrs

    def computed(self, again: Callable[[], Any], array: Any) -> Tensor:
        made: Tensor = object.__new__(Tensor)
        made.value = Number(Dense(array))
        self.numbers[made.value.id] = Source("computed", again)
        self._input(made)
        return made

    def looked(self, tensor: Handle, what: str) -> None:
        known = self._same.get(tensor.id, tensor.id) in self._known
        if known or tensor.id < self.begin:
            raise LaunchError(
                f"{what} while {self.what} is traced: what is computed from it would stay as it is "
                "now, in every later call",
                location=located(outside()),
                hint="do it outside of the function that cb.jit has, or choose with cb.cond, "
                "or by elements with cubepy.tensor.where",
            )

    def exchanges(self, tensor: Handle) -> None:
        self.had.setdefault(id(tensor), (tensor, tensor.value))
        if self.source(tensor) is not None:
            self.exchanged[id(tensor)] = tensor

    def lasting(self, tensor: Handle) -> None:
        self.note(tensor, Source("held", tensor))

    def gradient(self, tensor: Handle, changes: bool) -> None:
        if changes:
            grad = gradient_of(tensor)
            large = self.runs and grad is not None and grad.nbytes >= POOLED
            if large and id(tensor) not in self.asked:
                grad = None  # there shall not be memory for it and the next one
            self.gradients_before.setdefault(id(tensor), (tensor, grad))
        source = self.source(tensor)
        if source is None:
            return
        if id(tensor) not in self.asked and id(tensor) not in self.changed:
            if changes:  # whatever it was
                self.changed[id(tensor)] = tensor
                return
            grad = gradient_of(tensor)
            self.asked[id(tensor)] = source, tensor, grad is not None
            if grad is not None:
                self.note(grad, Source("gradient", source))
        if changes:
            self.changed[id(tensor)] = tensor

    # The end

    def hand_over(self) -> None:
        """Give the handles that were passed what the function gave to its own."""
        for n, mine in self.own.items():
            original = self.originals[n]
            if id(mine) in self.exchanged:
                if mine.value.needs_grad:
                    mine.value.handle = weakref.ref(original)
                exchange(original, mine.value)
            if id(mine) in self.changed:
                original._grad = mine._grad

    def undo(self) -> None:
        """Give handles back what they had."""
        for tensor, value in self.had.values():
            if value.needs_grad and value.call is None:
                value.handle = weakref.ref(tensor)
            exchange(tensor, value)
        for tensor, grad in self.gradients_before.values():
            tensor._grad = grad

    def forget(self) -> None:
        """Let go of everything: values of the call must not wait for the garbage collector."""
        vars(self).clear()

    def fulfil(self, arrays: Sequence[Any], program: dict[str, Any], through: list[int]) -> None:
        """Give the outputs their elements.

        Args:
            arrays: of the outputs.
            program: what calls that gradients remember are about.
            through: the outputs through which gradients go.
        """
        for handles, array in zip(self.outputs, arrays, strict=True):
            for handle in handles:
                store = handle.value.storage
                if type(store) is Promised:
                    keep(store, array)
        if through:
            inputs = [
                self.originals_before[source.of] if source.kind == "argument" else value
                for source, value in zip(self.found, self.were, strict=True)
            ]
            remember(program, tuple(inputs), [self.outputs[n][0].value for n in through])
            for n in through:
                for handle in self.outputs[n]:
                    exchange(handle, self.outputs[n][0].value)

    def compute(self) -> None:
        """Compute all that somebody has, as no program does."""
        before = {id(value) for _, value in self.had.values()}  # kept for `undo` alone
        alive = [v for ref in self.made_here.values if (v := ref()) is not None]
        made = {id(v.storage): v for v in alive if id(v) not in before}
        wanted = [v for v in made.values() if type(v.storage) is Promised]
        if not wanted:
            return
        nodes, same = self.plain_nodes()
        names = [self._same.get(v.id, v.id) for v in wanted]
        given = [keys[0] for keys, node in nodes if node.op == "input"]
        graph = renumbered(nodes, given, [same.get(name, name) for name in names])
        home = wanted[0].storage.device
        fewer = optimise(graph, home)
        tensors = []
        for value in self.were:
            tensors.append(object.__new__(Tensor))
            tensors[-1].value = type(value)(value.storage)
        lineage = lambda: Lineage(graph, fewer, self.asked_at(graph))  # for errors alone
        with host_pool.keeping_little():
            arrays = arrays_by_steps(fewer, tensors, home, lineage)
        for value, array in zip(wanted, arrays, strict=True):
            if type(value.storage) is Promised:
                keep(value.storage, array)

    def close(self, result: Any) -> None:
        """Nobody may use what the function computed and kept, but results and what it gave to
        handles from outside.
        """
        leaves: list[Any] = []
        leaves_of(result, leaves)
        handles = [*self.kept, *[t for t in leaves if isinstance(t, Handle)]]
        handles += [t for h in self.kept if (t := gradient_of(h)) is not None]
        handles += [t for h in leaves if (t := gradient_of(h)) is not None]
        going = [h.value for h in handles]
        self.made_here.close(lambda: self.moving, going, self.what, self._same)

    @cached_property
    def moving(self) -> set[int]:
        """What was recorded and depends on more than constants, once all is."""
        inputs = [keys[0] for keys, node in self._nodes if node.op == "input"]
        fixed = {k for k, s in zip(inputs, self.found, strict=True) if s.kind == "constant"}
        return moving_in(self._nodes, fixed)

    def taken(self, inputs: Sequence[int]) -> list[tuple[Handle, Value, bool]]:
        """What handles from outside had, by the numbers of inputs: nothing of the trace has these
        values any more, as far as the program will give what was computed of them.
        """
        values = [v for ref in self.made_here.values if (v := ref()) is not None]
        same, moving = self._same, self.moving
        leave_to_program([v.storage for v in values if same.get(v.id, v.id) in moving])
        return [(self.found[n].of, self.left(n), False) for n in inputs]

    def left(self, number: int) -> Value:
        """The value of an input, which the trace lets go."""
        self.had.pop(id(self.found[number].of), None)
        value, self.were[number] = self.were[number], _none
        return value

    def keep(self, states: Sequence[tuple[Handle, Value, bool]]) -> None:
        """Know again what handles had, to give it back."""
        for handle, value, _ in states:
            self.had[id(handle)] = handle, value

    def trace(self, result: Any) -> tuple[Trace, Any]:
        """What was done, and the result with the handles that were passed."""
        outputs: list[Handle] = []
        numbers: dict[tuple[int, bool], int] = {}

        def output(handle: Handle) -> int:
            name = self._input(handle), _remembers(handle.value)
            if name not in numbers:
                numbers[name] = len(outputs)
                outputs.append(handle)
                self.outputs.append([])
            self.outputs[numbers[name]].append(handle)
            return numbers[name]

        remembers = False
        differentiable: set[int] = set()

        def made(value: Any) -> tuple[Any, Any]:
            if isinstance(value, Handle):
                source = self.source(value)
                if source is not None:
                    back = self.originals[source.of] if source.kind == "argument" else value
                    return source, back
                n = output(value)
                if _remembers(value.value):
                    differentiable.add(n)
                return Output(n), value
            if type(value) in (list, tuple) or hasattr(value, "_fields"):
                parts = [made(v) for v in value]
                both = [[p[0] for p in parts], [p[1] for p in parts]]
                if hasattr(value, "_fields"):
                    return type(value)(*both[0]), type(value)(*both[1])
                return type(value)(both[0]), type(value)(both[1])
            if type(value) in DICTS:
                pairs, kind = [(k, made(v)) for k, v in value.items()], type(value)
                return kind((k, p[0]) for k, p in pairs), kind((k, p[1]) for k, p in pairs)
            value = number_of(value)
            return value, value

        form, given = made(result)
        effects: list[Given | GradientGiven] = []
        for handle in self.exchanged.values():
            value = handle.value
            remembers |= _remembers(value)
            effects.append(Given(self.sources[id(handle)], output(handle), value.needs_grad))
        for handle in self.changed.values():
            source, grad = self.sources[id(handle)], gradient_of(handle)
            to: Any = None
            if grad is not None:
                to = self.source(grad)
                if to is None:
                    remembers |= _remembers(grad.value)
                    to = output(grad)
            effects.append(GradientGiven(source, to))
        graph = self.graph(*outputs)
        gradients = [(source, had) for source, _, had in self.asked.values()]
        if differentiable:
            known = [v for s, v in zip(self.found, self.were, strict=True) if s.kind != "argument"]
            remembers |= any(v.needs_grad and v.call is not None for v in known)
            for n, mine in self.first.items():
                if mine.needs_grad:
                    remember_alias(mine, self.originals_before[n])
        through = sorted(differentiable)
        exact = self.differentiated([outputs[n] for n in through]) if through else graph
        homes = {t.storage.device for t in outputs if type(t.value) is not Number}
        outputs.clear()  # `made` names itself, so what it knows waits for the garbage collector
        seen = graph, self.found, self.were, form, effects, gradients, through, exact, remembers
        return Trace(*seen, self._asked_at, homes), given


_none = Value(Dense(np.empty(0), HOST))


def _remembers(value: Value) -> bool:
    """Whether gradients could still go through what computed a value."""
    return value.needs_grad and value.call is not None and value.call.inputs is not None
