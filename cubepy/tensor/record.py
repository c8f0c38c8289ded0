"""Recording ops: keep those of a block in the IR.

A node names its inputs by the identities of their values, so that it keeps no memory alive.
`with record(...)` collects the nodes of a block into a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cubepy.errors import LaunchError
from cubepy.runtime import recording
from cubepy.tensor.ir import ABSENT, Graph, Node, renumbered
from cubepy.tensor.ops import Spec
from cubepy.tensor.value import Handle, Value

_active: ContextVar[Recorder | None] = ContextVar("cubepy_recorder", default=None)
blocks: list[Recorder] = []
"""The recorders of all threads: what is quick looks first whether there are any."""


class Recorder:
    """The ops of a block.

    Attributes: inputs: the tensors that the block read but did not make: those that were announced,
        then the others (parameters, mostly) in the order of first use. Replaying takes one value
        for each.
    """

    def __init__(self, announced: Sequence[Handle]) -> None:
        self.inputs: list[Handle] = []
        self._nodes: list[tuple[tuple[int, ...], Node]] = []
        self._known: set[int] = set()
        for t in announced:
            self._input(t)

    def _put(self, node: Node, *results: int) -> None:
        self._nodes.append((results, node))
        self._known.update(results)

    def _input(self, tensor: Handle) -> None:
        if tensor.id not in self._known:
            attrs = (("storage", tensor.storage.kind),)
            self._put(Node("input", (), attrs, (Spec(tensor.shape, tensor.dtype),)), tensor.id)
            self.inputs.append(tensor)

    def add(
        self,
        op: str,
        inputs: Sequence[Handle | None],
        attrs: dict[str, Any],
        results: Sequence[Value],
    ) -> None:
        """Keep an op that ran."""
        for t in inputs:
            if t is not None:
                self._input(t)
        names = tuple(ABSENT if t is None else t.value.id for t in inputs)
        specs = tuple([Spec(v.storage.shape, v.storage.dtype) for v in results])
        self._put(Node(op, names, tuple(sorted(attrs.items())), specs), *[v.id for v in results])

    def graph(self, *outputs: Handle) -> Graph:
        """The graph that computes these tensors from `inputs`.

        Raises:
            LaunchError: an output was not made inside the block.
        """
        for t in outputs:
            if t.id not in self._known:
                raise LaunchError(
                    "a tensor that is asked for as an output was not made while recording",
                    hint="compute it from tensors inside the with block",
                )
        return renumbered(self._nodes, [t.id for t in self.inputs], [t.id for t in outputs])


@contextmanager
def record(*inputs: Handle) -> Iterator[Recorder]:
    """Collect the ops of a block (of this thread) as a graph.

    Ops are the operators and methods of tensors, what `nn` and `nn.functional` have, and functions
    of `cubepy.kernels` that are ops. Other functions, kernels and NumPy are not recorded; they
    refuse tensors inside the block.
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
    token = _active.set(recorder := Recorder(inputs))
    blocks.append(recorder)
    recording.ask()
    recording.detour(1)  # no call is repeated without a look at its tensors
    try:
        yield recorder
    finally:
        recording.detour(-1)
        blocks.remove(recorder)
        _active.reset(token)


def recording_here() -> bool:
    """Whether this thread records."""
    return _active.get() is not None


def refuse_unrecorded() -> None:
    """A tensor becomes a plain array, of which what is made would not be recorded.

    Raises:
        LaunchError: this thread records.
    """
    if _active.get() is not None:
        raise LaunchError(
            "a tensor is given to a function or kernel that is not recorded: what it makes "
            "would be an input of the graph, whatever the graph is replayed on",
            hint="use an op of tensors instead, such as x.softmax() or nn.functional.softmax(x) "
            "for K.softmax(x); or x.numpy(), for a value that replaying does not change",
        )


def note(
    op: str, inputs: Sequence[Handle | None], attrs: dict[str, Any], results: Sequence[Value]
) -> None:
    """An op ran: if this thread records, the recorder keeps it."""
    recorder = _active.get()
    if recorder is not None:
        recorder.add(op, inputs, attrs, results)
