"""Running a graph: nodes one after another over named values, as programs where no data decide.

A `Runner` has the steps of a graph. `execute` runs them here and now; `call` cuts them into
*segments*: runs of steps that `cb.jit` makes one program of, between steps whose results data
decide. Which steps those are shows when a segment is traced: a step that asks for elements is taken
out, and what is before and behind it become segments of their own.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import CubeError, LaunchError, ModelError, OutOfMemoryError
from cubepy.models.formats.onnx import Function, Graph, Node, Type, ValueInfo, outer_of
from cubepy.models.formats.onnx_tensor import Weight
from cubepy.models.onnx.constants import Constant, Hosts, Scope, known
from cubepy.models.onnx.functions import bound
from cubepy.models.onnx.records import ALL, Call, Record, check_node, is_host, record_of
from cubepy.models.onnx.rewriting import OURS, Rewriting
from cubepy.models.onnx.whole import Whole
from cubepy.tensor import Tensor
from cubepy.tensor.record import recording_here

Env = dict[str, Any]
watching: list[Any] = []
"""What is told of segments, and of steps that run alone, while a call is explained."""


class NeedsElements(LaunchError):
    """A step asked for the elements of a tensor that is traced.

    Attributes:
        at: the step's number in its runner.
    """

    def __init__(self) -> None:
        super().__init__(
            "a step of an ONNX graph needs the elements of a tensor that is traced",
            hint="call the model outside of the function that cb.jit has",
        )
        self.at = -1


class Step:
    """A node with its record."""

    __slots__ = ("call", "inputs", "last", "outputs", "record")

    def __init__(self, call: Call, record: Record, inputs: tuple[str, ...]) -> None:
        self.call, self.record, self.inputs = call, record, inputs
        self.outputs = call.node.outputs
        self.last: list[str] = []


class Runner:
    """The steps of a graph.

    Attributes:
        steps: in their order.
        inputs: names of the graph's inputs that are given.
        outputs: names of its outputs.
        captured: names of what is computed around it and read here.
        constants: weights and constants of the graph, and those around it that it reads.
        whole: what calls the graph if it is one program, as it was in the call before.
    """

    def __init__(
        self,
        graph: Graph,
        scope: Scope,
        opsets: dict[str, int],
        around: Mapping[str, Any] | None = None,
    ) -> None:
        self.scope, self.opsets = scope, opsets
        self.constants: dict[str, Any] = {
            name: scope.constant(name, weight) for name, weight in graph.weights.items()
        }
        self.inputs = [i.name for i in graph.inputs]
        self.outputs = [o.name for o in graph.outputs]
        outer, around = outer_of(graph), around or {}
        self.around = {name: around[name] for name in sorted(outer) if name in around}
        self.captured = sorted(outer - self.around.keys())
        self.steps: list[Step] = []
        for node in graph.nodes:
            if (node.domain, node.op, node.overload) not in scope.model.functions:
                check_node(node, opsets.get(node.domain) or 0)
        rewriting = Rewriting(graph, scope, self.constants)
        for node in rewriting.nodes():
            self._add(node)
        scope.rewritten.update(rewriting.found)
        self.constants |= self.around
        self.split = {n for n, step in enumerate(self.steps) if step.record.splits}
        self.stages: dict[int, Stage] = {}
        self.whole: Whole | None = None
        self._lives()

    def _add(self, node: Node) -> None:
        version = 1 if node.domain == OURS else self.opsets.get(node.domain)
        function = self.scope.model.functions.get((node.domain, node.op, node.overload))
        call = Call(node, version or 0, self.opsets)
        if function is not None:
            record = self._function(node, function)
        else:
            found = None if version is None else record_of(node.domain, node.op, version)
            if found is None:
                self.scope.unsupported.setdefault((node.domain, node.op, version), []).append(
                    node.shown()
                )
                return
            record = found
        bodies = {}
        for value in node.attributes.values():
            for graph in value if isinstance(value, list) else [value]:
                if isinstance(graph, Graph):
                    scope = self.scope.inner(node.shown())
                    known = ChainMap(self.constants, self.around)
                    bodies[id(graph)] = Runner(graph, scope, self.opsets, known)
        if bodies:
            call.state = bodies
        outer = {name for body in bodies.values() for name in body.captured}
        self.steps.append(Step(call, record, (*node.inputs, *sorted(outer - set(node.inputs)))))

    def _function(self, node: Node, function: Function) -> Record:
        """A record that runs the nodes of a function."""
        scope = self.scope.inner(node.shown(), function)
        given = {**function.defaults, **node.attributes}
        nodes = [bound(n, given) for n in function.nodes]
        outputs = [ValueInfo(name, Type()) for name in function.outputs]
        graph = Graph(function.name, nodes, [], outputs, {})
        body = Runner(graph, scope, function.opsets)
        body.inputs = list(function.inputs)

        def run(call: Call, *values: Any) -> Any:
            named = dict(zip(function.inputs, values, strict=False))
            env = {name: named.get(name) for name in function.inputs}
            found = body.run(env)
            return tuple(found) if len(found) != 1 else found[0]

        return Record(node.domain, node.op, 1, run, plain=True)

    def _lives(self) -> None:
        """Note after which step a value is not needed any more."""
        keep = set(self.outputs)
        for step in reversed(self.steps):
            step.last = [n for n in {*step.inputs, *step.outputs} if n and n not in keep]
            keep |= set(step.last)

    # Here and now

    def run(self, env: Env) -> list[Any]:
        """Values of the outputs: step by step inside a trace, in segments elsewhere."""
        return self.execute(env) if recording_here() else self.call(env)

    def execute(self, env: Env) -> list[Any]:
        """Run all steps here and now; `env` has the inputs and what is read from around."""
        self._steps(env, 0, len(self.steps), free=True)
        return [self.value(env, name) for name in self.outputs]

    def value(self, env: Env, name: str) -> Any:
        """The value of a name."""
        if name in env:
            return env[name]
        found = self.constants.get(name)
        if isinstance(found, Constant):
            return found.value()
        if found is None and name not in self.constants:
            raise ModelError(f"the value {name!r} was not computed")
        return found

    def here(self, env: Env, first: int, last: int) -> None:
        """Run some steps here and now, without what is between them afterwards."""
        self._steps(env, first, last)
        for step in self.steps[first:last]:
            for name in step.last:
                env.pop(name, None)

    def _steps(self, env: Env, first: int, last: int, free: bool = False) -> None:
        for n in range(first, last):
            step = self.steps[n]
            try:
                self.perform(step, env)
            except NeedsElements as wish:
                wish.at = n
                raise
            if free:
                for name in step.last:
                    env.pop(name, None)

    def perform(self, step: Step, env: Env) -> None:
        """Run a step here and now."""
        call, record = step.call, step.record
        names = call.node.inputs
        call.device = self.scope.device()
        if call.state is not None:
            call.run_graph = Bodies(self, call, env)
        try:
            if record.plain:
                found = record.run(call, *[self._given(env, n) for n in names])
            else:
                found = self._computed(call, record, [self._either(env, n) for n in names])
        except (NeedsElements, ModelError):
            raise
        except MemoryError as error:
            node = call.node
            raise OutOfMemoryError(f"node {node.shown()} ({node.op}): {error}") from error
        except AttributeError as error:
            raise ModelError(strange(call, self, env)) from error
        except (CubeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            if record.splits and recording_here():  # a branch or body inside of a trace
                raise NeedsElements from error
            node = call.node
            raise ModelError(f"node {node.shown()} ({node.op}): {error}") from error
        values = found if type(found) is tuple else (found,)
        for name, value in zip(step.outputs, values, strict=False):
            if name:
                env[name] = value if isinstance(value, (Tensor, np.ndarray, list)) else _host(value)

    def _given(self, env: Env, name: str) -> Any:
        return self.value(env, name) if name else None

    def _either(self, env: Env, name: str) -> Any:
        """A value, or a constant that may be host array or tensor."""
        if name and name not in env and name in self.constants:
            return self.constants[name]
        return self._given(env, name)

    def _computed(self, call: Call, record: Record, values: list[Any]) -> Any:
        if record.host is not None and all(
            is_host(v) or (isinstance(v, Constant) and v.small) for v in values
        ):
            arrays = [v.host() if isinstance(v, Constant) else v for v in values]
            if values or not record.reads:
                return record.host(call, *arrays)
        if any(not is_host(v) or not liftable(v) for v in values if v is not None):
            strange = any(isinstance(v, np.ndarray) and not liftable(v) for v in values)
            if strange and record.host is not None:
                return record.host(call, *[host_of(v) for v in values])
        reads = range(len(values)) if ALL in record.reads else record.reads
        known = [k for k in record.known if k < len(values) and not isinstance(values[k], Tensor)]
        given = [
            host_of(v) if k in reads or k in known else self.scope.tensor(v)
            for k, v in enumerate(values)
        ]
        return record.run(call, *given)

    # As programs

    def call(self, env: Env) -> list[Any]:
        """Run the steps as programs; `env` has the inputs and what is read from around."""
        at = 0
        while at < len(self.steps):
            stage = self.stages.get(at) or self._stage(at)
            if stage.segment is None:
                self._steps(env, at, stage.end)
                for met in watching:
                    met.alone(self.steps[at : stage.end])
            else:
                try:
                    stage.segment(env)
                except NeedsElements as wish:
                    if not at <= wish.at < stage.end:
                        raise
                    self.split.add(wish.at)
                    self.stages.pop(at, None)
                    self.whole = None
                    continue
            for name in stage.dead:
                env.pop(name, None)
            at = stage.end
        if self.whole is None and len(self.stages) == 1:
            self.whole = Whole.of(self)
        return [self.value(env, name) for name in self.outputs]

    @property
    def segments(self) -> list[Segment]:
        """The programs of calls until now, in their order."""
        found = [stage.segment for _, stage in sorted(self.stages.items())]
        return [segment for segment in found if segment is not None]

    def _stage(self, at: int) -> Stage:
        """What runs from a step on: this step alone, or all until one that data decide."""
        end = next((n for n in range(at, len(self.steps)) if n in self.split), len(self.steps))
        alone = end == at
        end = at + 1 if alone else end
        dead = {n for step in self.steps[at:end] for n in step.last}
        made = self.stages[at] = Stage(end, None if alone else Segment(self, at, end), dead)
        return made


def strange(call: Call, runner: Runner, env: Env) -> str:
    """What a node was given that it does not take: sequences and absent values, mostly."""
    kinds = {list: "a sequence", type(None): "nothing", np.ndarray: "an array"}
    given = [runner._given(env, name) for name in call.node.inputs]
    texts = [
        f"{n!r} is {kinds.get(type(v), 'a tensor')}"
        for n, v in zip(call.node.inputs, given, strict=True)
    ]
    node = call.node
    return f"node {node.shown()} ({node.op}) does not take such inputs: {', '.join(texts)}"


class Bodies:
    """The subgraphs of a node in a call.

    Args:
        runner: of the graph that the node is in.
        call: the node.
        env: what has been computed in this graph.
    """

    __slots__ = ("call", "env", "runner")

    def __init__(self, runner: Runner, call: Call, env: Env) -> None:
        self.runner, self.call, self.env = runner, call, env

    def begun(self, graph: Graph, given: list[Any]) -> tuple[Runner, Env]:
        """The runner of a subgraph, and what it reads."""
        body = self.call.state[id(graph)]
        inner = {n: self.runner._given(self.env, n) for n in body.captured}
        inner.update(zip(body.inputs, given, strict=False))
        return body, inner

    def __call__(self, graph: Graph, given: list[Any]) -> list[Any]:
        """The values of a subgraph's outputs."""
        body, inner = self.begun(graph, given)
        return body.run(inner)


class Stage:
    """A step, or several as a program, in a call.

    Attributes:
        end: the number of the step behind it.
        segment: the program; None for a single step that is no program.
        dead: names that nobody reads afterwards.
    """

    __slots__ = ("dead", "end", "segment")

    def __init__(self, end: int, segment: Segment | None, dead: set[str]) -> None:
        self.end, self.segment = end, segment
        within = set() if segment is None else {*segment.reads}
        self.dead = tuple(dead if segment is None else dead & within)


class Segment:
    """Steps that are one program.

    Attributes:
        reads: names of values from before.
        gives: names that are read later.
        layers: linear layers in it.
    """

    def __init__(self, runner: Runner, first: int, last: int) -> None:
        self.runner, self.first, self.last = runner, first, last
        steps = runner.steps[first:last]
        made = {o for step in steps for o in step.outputs if o}
        fixed = runner.constants.keys() - set(runner.inputs)
        self.reads = sorted({n for s in steps for n in s.inputs if n} - made - fixed)
        later = {n for s in runner.steps[last:] for n in s.inputs} | set(runner.outputs)
        self.gives = sorted(made & later)
        self.layers = [
            s.call["module"] for s in steps if s.record.domain == OURS and s.record.name == "Linear"
        ]
        self.program = cb.jit(self.traced)

    def __cubepy_reads__(self, reads: Any) -> None:
        """What a segment computes is fixed when it is made, but for what its layers hold."""
        for layer in self.layers:
            reads.inside(layer)

    def __call__(self, env: Env) -> None:
        tensors: dict[str, Tensor] = {}
        hosts: list[Any] = []
        program = bool(self.gives)
        for name in self.reads:
            if name not in env:
                continue
            value = env[name]
            if isinstance(value, Tensor):
                tensors[name] = value
            elif isinstance(value, np.ndarray) and value.dtype != object:
                hosts.append((name, value.dtype, value.shape, value.tobytes()))
            elif value is None:
                hosts.append((name, None, None, None))
            else:
                program = False
        if program:
            given = tensors, Hosts(tuple(hosts)) if hosts else None
            env.update(self.program(*given))
            for met in watching:
                met.program(self, given)
        else:
            self.runner.here(env, self.first, self.last)
            for met in watching:
                met.alone(self.runner.steps[self.first : self.last])

    def traced(self, tensors: dict[str, Tensor], given: Hosts | None) -> Env:
        """The steps over tensors and host arrays; host arrays among the results are the same in
        every call of a kind.
        """
        env: Env = dict(tensors)
        for name, dtype, shape, raw in () if given is None else given.key:
            env[name] = None if raw is None else np.frombuffer(raw, dtype).reshape(shape)
        self.runner._steps(env, self.first, self.last)
        return {n: env[n] for n in self.gives if n in env}


def _host(value: Any) -> Any:
    """A number of NumPy as an array; None stays."""
    return value if value is None else np.asarray(value)


def liftable(array: Any) -> bool:
    """Whether tensors can hold a host array's elements."""
    return not isinstance(array, np.ndarray) or known(array.dtype)


def host_of(value: Any) -> Any:
    """The elements of a value on the host.

    Raises:
        NeedsElements: they are not known while a program is traced.
    """
    if isinstance(value, Constant):
        return value.host()
    if isinstance(value, Tensor):
        if recording_here():
            raise NeedsElements
        return value.numpy()
    return value


__all__ = ["NeedsElements", "Runner", "Weight", "host_of"]
