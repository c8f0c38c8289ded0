"""Recording ops: keep those of a block in the IR.

A node names its inputs by the identities of their values, so that it keeps no memory alive.
`with record(...)` collects the nodes of a block into a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cubepy.errors import LaunchError, Location
from cubepy.lang.dtypes import DType
from cubepy.runtime import recording
from cubepy.tensor.ir import ABSENT, Graph, Node, renumbered
from cubepy.tensor.ops import Spec
from cubepy.tensor.ops.op import spec_of
from cubepy.tensor.program.observe import active, blocks
from cubepy.tensor.value import Handle, Value, located, outside


class Recorder:
    """The ops of a block.

    Attributes:
        inputs: the tensors that the block read but did not make: those that were announced, then
            the others (parameters, mostly) in the order of first use. Replaying takes one value for
            each.
        any_gradients: whether tensors are taken to need gradients, wanted or not.
    """

    any_gradients = False

    def __init__(self, announced: Sequence[Handle]) -> None:
        self.inputs: list[Handle] = []
        self._nodes: list[tuple[tuple[int, ...], Node]] = []
        self._known: set[int] = set()
        self._same: dict[int, int] = {}
        self._asked_at: dict[int, Any] = {}  # of the first results of nodes, by identities of specs
        for t in announced:
            self._input(t)

    def _put(self, node: Node, *results: int) -> None:
        self._nodes.append((results, node))
        self._known.update(results)

    def _input(self, tensor: Handle) -> int:
        """The identity that a tensor has in the graph; new ones are inputs."""
        name = self._same.get(tensor.id, tensor.id)
        if name not in self._known:
            attrs = (("storage", tensor.storage.kind),)
            self._put(Node("input", (), attrs, (Spec(tensor.shape, tensor.dtype),)), name)
            self.inputs.append(tensor)
        return name

    def same(self, value: Value, tensor: Handle) -> None:
        """A value has the elements of a tensor."""
        self._same[value.id] = self._input(tensor)

    def looked(self, tensor: Handle, what: str) -> None:
        """The elements of a tensor become numbers that no op knows of: those of this run."""

    def settled(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """The attributes that an op gets."""
        return attrs

    def promised(self, op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """The storages of what an op will give, in place of computing it; None: it is computed."""
        return None

    def number(self, value: Any, dtype: DType) -> Any:
        """A number beside tensors as an input of the graph; None where it is a constant."""
        return None

    def computed(self, again: Callable[[], Any], array: Any) -> Any:
        """Numbers that Python computes as an input of the graph; None where they are constants."""
        return None

    def exchanges(self, tensor: Handle) -> None:
        """A handle is about to get another value."""

    def lasting(self, tensor: Handle) -> None:
        """A handle that was made just now outlives the call."""

    def gradient(self, tensor: Handle, changes: bool) -> None:
        """Somebody asks for the gradient of a tensor, or is about to change it."""

    def back(self, op: str, rule: Callable[..., Any], seen: Any, grads: Sequence[Any]) -> Any:
        """The gradients by the inputs of a call, which a rule gives."""
        return rule(seen, *grads)

    def add(
        self,
        op: str,
        inputs: Sequence[Handle | None],
        attrs: dict[str, Any],
        results: Sequence[Value],
    ) -> Any:
        """Keep an op that ran; gives the user's code that asked for it (see `value.outside`)."""
        known, same = self._known, self._same
        names = []
        for t in inputs:
            if t is None:
                names.append(ABSENT)
                continue
            name = t.value.id
            name = same.get(name, name)
            names.append(name if name in known else self._input(t))
        specs = tuple([spec_of((v.storage.shape, v.storage.dtype)) for v in results])
        given = tuple(sorted(attrs.items()) if len(attrs) > 1 else attrs.items())
        made = tuple([v.id for v in results])
        self._nodes.append((made, Node(op, tuple(names), given, specs)))
        known.update(made)
        asked = self._asked_at[id(specs[0])] = outside()
        return asked

    def op_of(self, tensor: Handle) -> str | None:
        """The op of this block that made a tensor."""
        name = self._same.get(tensor.id, tensor.id)
        return next((n.op for keys, n in reversed(self._nodes) if name in keys), None)

    def asked_at(self, graph: Graph) -> dict[int, Location | None]:
        """The user's lines that asked for the values of a graph of this block, by their numbers."""
        asked = self._asked_at
        return {n: located(asked[id(s)]) for n, s in enumerate(graph.values) if id(s) in asked}

    def graph(self, *outputs: Handle) -> Graph:
        """The graph that computes these tensors from `inputs`.

        Raises:
            LaunchError: an output was not made inside the block.
        """
        wanted = [self._same.get(t.id, t.id) for t in outputs]
        nodes, same = self.plain_nodes()
        for name in wanted:
            if name not in self._known:
                raise LaunchError(
                    "a tensor that is asked for as an output was not made while recording",
                    hint="compute it from tensors inside the with block",
                )
        given = [keys[0] for keys, node in nodes if node.op == "input"]
        return renumbered(nodes, given, [same.get(name, name) for name in wanted])

    def plain_nodes(self) -> tuple[list[tuple[tuple[int, ...], Node]], dict[int, int]]:
        """The nodes without those that only gradients look at, and which values they gave that
        others are, too.
        """
        same: dict[int, int] = {}
        if all(node.op != "custom" for _, node in self._nodes):
            return self._nodes, same
        nodes = []
        for keys, node in self._nodes:
            inputs = tuple([same.get(i, i) for i in node.inputs])
            if node.op == "custom":
                same.update(zip(keys, inputs, strict=False))
            else:
                nodes.append((keys, replace(node, inputs=inputs)))
        return nodes, same


@contextmanager
def record(*inputs: Handle) -> Iterator[Recorder]:
    """Collect the ops of a block (of this thread) as a graph.

    Ops are the operators and methods of tensors, what `nn` and `nn.functional` have, functions
    of `cubepy.kernels` that are ops, and launches of kernels on tensors. Other functions and NumPy
    are not recorded; they refuse tensors inside the block.
    What `x.numpy()` or `float(x)` gives is a number of this run, not of the graph.

    Args:
        inputs: tensors that become the graph's first inputs, in this order.

    Raises:
        LaunchError: inside the block, a tensor is given to what is not recorded.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 2.0])
        >>> with record(x) as r:
        ...     y = x.reshape(2, 1)
        >>> print(r.graph(y))
        %0: f32[2] = input(, storage='dense')
        %1: f32[2, 1] = reshape(%0, shape=(2, 1))
        return %1
    """
    with recorded_by(Recorder(inputs)) as recorder:
        yield recorder


@contextmanager
def recorded_by(recorder: Any) -> Iterator[Any]:
    """Let a recorder see the ops of a block."""
    token = active.set(recorder)
    blocks.append(recorder)
    recording.ask()
    recording.detour(1)  # no call is repeated without a look at its tensors
    try:
        yield recorder
    finally:
        recording.detour(-1)
        blocks.remove(recorder)
        active.reset(token)


def recording_here() -> bool:
    """Whether this thread records."""
    return active.get() is not None


def refuse_unrecorded() -> None:
    """A tensor becomes a plain array, of which what is made would not be recorded.

    Raises:
        LaunchError: this thread records.
    """
    if active.get() is not None:
        raise LaunchError(
            "a tensor is given to a function or kernel that is not recorded: what it makes "
            "would be an input of the graph, whatever the graph is replayed on",
            hint="use an op of tensors instead, such as x.softmax() or nn.functional.softmax(x) "
            "for K.softmax(x); or x.numpy(), for a value that replaying does not change",
        )


def note(
    op: str, inputs: Sequence[Handle | None], attrs: dict[str, Any], results: Sequence[Value]
) -> Any:
    """An op ran: if this thread records, the recorder keeps it, and gives the user's code that
    asked for it.
    """
    recorder = active.get()
    return None if recorder is None else recorder.add(op, inputs, attrs, results)
