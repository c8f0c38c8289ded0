"""Functions of tensors as parts of an op: traced once, kept as the text of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from cubepy.errors import LaunchError, Location
from cubepy.lang.dtypes import DType
from cubepy.runtime import recording
from cubepy.runtime.device import Device, current
from cubepy.runtime.tables import room
from cubepy.tensor.array import Tensor, as_tensor
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.fusion.schedule import graph_of as of_schedule
from cubepy.tensor.fusion.schedule import schedule_of
from cubepy.tensor.graph import execute
from cubepy.tensor.ir import Graph
from cubepy.tensor.modes import enable_grad, no_grad
from cubepy.tensor.ops import Spec
from cubepy.tensor.program.exact import ExactRecorder
from cubepy.tensor.program.form import leaves_of, rebuilt
from cubepy.tensor.program.leaked import moving_in
from cubepy.tensor.program.observe import active
from cubepy.tensor.program.plans.repeated import recorded_arrays
from cubepy.tensor.record import recorded_by, recording_here
from cubepy.tensor.storage import Dense, Storage
from cubepy.tensor.value import Handle, Value, identities, located, outside

LIMIT = 1024
_graphs: dict[str, Graph] = {}
asked: dict[str, dict[int, Location | None]] = {}
"""Where users asked for the values of a body, by its text and their numbers."""
watcher: ContextVar[Callable[[str, int], None] | None] = ContextVar("cubepy_watcher", default=None)
"""What is told of each node of a body before it runs (its text, its number), and of the end."""
END = -1


class Body(NamedTuple):
    """A function as a graph.

    Attributes:
        text: of the graph; its inputs are the operands, then what was read from outside.
        held: the handles of what was read from outside.
        form: of the result, without its leaves.
        specs: of the results.
    """

    text: str
    held: list[Any]
    form: Any
    specs: list[Spec]


def graph_of(text: str) -> Graph:
    """The graph that a text stands for."""
    found = _graphs.get(text)
    if found is None:
        room(_graphs, 256)
        found = _graphs[text] = Graph.from_json(text)
    return found


def plain(graph: Graph) -> Graph:
    """A graph without nodes that only gradients look at."""
    schedule = schedule_of(graph)
    same: dict[int, int] = {}
    steps = []
    for step in schedule.steps:
        inputs = tuple([same.get(i, i) for i in step.inputs])
        if step.op in ("detach", "custom"):
            same.update(zip(step.results, inputs, strict=False))
        else:
            steps.append(replace(step, inputs=inputs))
    outputs = tuple([same.get(i, i) for i in schedule.outputs])
    made = of_schedule(replace(schedule, steps=tuple(steps), outputs=outputs))
    given = dict(zip(graph.firsts, graph.nodes, strict=True))  # inputs say how they are stored
    nodes = [given[i] for i in graph.inputs]
    return replace(made, nodes=(*nodes, *made.nodes[len(nodes) :]))


@lru_cache(256)
def fused(text: str, device: Device) -> Graph:
    """What runs for a text in a program."""
    return optimise(plain(graph_of(text)), device)


class BodyRecorder(ExactRecorder):
    """The recorder of a function that becomes part of an op; numbers are those of the trace that it
    is part of.
    """

    any_gradients = True

    def __init__(self, announced: Sequence[Handle], what: str) -> None:
        self.outer, self.what = active.get(), what
        self.own = {id(t) for t in announced}
        self.begin = next(identities)
        super().__init__(announced)

    def refuse(self, what: str, hint: str) -> None:
        """What a function may not do there."""
        raise LaunchError(
            f"{what} in a function of {self.what} that is traced",
            location=located(outside()),
            hint=hint,
        )

    def looked(self, tensor: Handle, what: str) -> None:
        known = self._same.get(tensor.id, tensor.id) in self._known
        if known or tensor.id < self.begin:
            self.refuse(what, "it would stay as it is now; choose with cb.cond or where")

    def settled(self, attrs: dict[str, Any]) -> dict[str, Any]:
        return attrs if self.outer is None else self.outer.settled(attrs)  # type: ignore[no-any-return]

    def number(self, value: Any, dtype: DType) -> Any:
        return None if self.outer is None else self.outer.number(value, dtype)

    def computed(self, again: Callable[[], Any], array: Any) -> Any:
        return None if self.outer is None else self.outer.computed(again, array)

    def outside(self, tensor: Handle) -> bool:
        """Whether a handle was there before."""
        return tensor.value.id < self.begin and id(tensor) not in self.own

    def exchanges(self, tensor: Handle) -> None:
        if self.outside(tensor):
            self.refuse(
                "a tensor from outside gets another value (or a generator moves on)",
                "give the value as a result; draw random numbers outside and pass them",
            )

    def lasting(self, tensor: Handle) -> None:
        if self.outer is not None:
            self.outer.lasting(tensor)

    def gradient(self, tensor: Handle, changes: bool) -> None:
        if changes and self.outside(tensor):
            self.refuse("a tensor from outside gets a gradient", "use cb.grad of a function")
        if not changes and self.outer is not None and self.outside(tensor):
            self.outer.gradient(tensor, False)


def traced(function: Callable[..., Any], args: tuple[Any, ...], what: str) -> Body:
    """A function as a graph, of arguments that are trees of tensors."""
    leaves: list[Any] = []
    structure = leaves_of(args, leaves)
    own = [t if t is None else _own(t) for t in leaves]
    with recorded_by(BodyRecorder([t for t in own if t is not None], what)) as recorder:
        announced = len(recorder.inputs)
        with enable_grad():
            result = function(*rebuilt(structure, iter(own)))
            found: list[Any] = []
            form = leaves_of(result, found)
            outputs = [as_tensor(leaf) for leaf in found if leaf is not None]
        graph = recorder.differentiated(outputs)
    text = graph.to_json()
    room(_graphs, 256)
    _graphs.setdefault(text, graph)
    room(asked, LIMIT)
    asked[text] = recorder.asked_at(graph)
    specs = [graph.values[n] for n in graph.outputs]
    present = [leaf is not None for leaf in found]
    del result, found, outputs
    moving = cache(lambda: moving_in(recorder._nodes, set()))
    recorder.made_here.close(moving, (), f"a function of {what}", recorder._same)
    return Body(text, recorder.inputs[announced:], (form, present), specs)


def _own(t: Any) -> Tensor:
    """A handle of its own of the same elements; floats have gradients."""
    made: Tensor = object.__new__(type(t))
    made.value = Value(t.value.storage)
    return made.requires_grad_() if t.dtype.is_float else made  # type: ignore[no-any-return]


def shaped(form: Any, results: Sequence[Any]) -> Any:
    """Results in the form that a function gave."""
    structure, present = form
    rest = iter(results)
    return rebuilt(structure, iter([next(rest) if there else None for there in present]))


@contextmanager
def unseen() -> Iterator[None]:
    """Ops within are part of another one: no recorder of tensors sees them, and no gradients."""
    token = active.set(None)
    try:
        with no_grad():
            yield
    finally:
        active.reset(token)


def arrays_of(text: str, arrays: Sequence[Any]) -> list[Any]:
    """The arrays that a body gives, of arrays."""
    graph = graph_of(text) if recording_here() else fused(text, current())
    recorder = recording.current() if recording.active else None
    with unseen():
        given = [Tensor(a if isinstance(a, Storage) else Dense(a)) for a in arrays]
        watch = watcher.get()
        before = None if watch is None else partial(watch, text)
        if recorder is not None and recorder.marks:
            found = recorded_arrays(graph, given, current(), before, recorder)
        else:
            found = [t.storage.dense() for t in execute(graph, given, before)]
        if watch is not None:
            watch(text, END)
        return found
