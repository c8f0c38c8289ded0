"""Applying ops: infer and check, compute at once, and keep the op in the IR when somebody records.

Every tensor knows the node that made it; a node names its inputs by the identities of their
tensors, so that it keeps no memory alive. `with record(...)` collects the nodes of a block into a
graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from cubepy.compiler.signature import exact
from cubepy.errors import DeviceError, LaunchError, ShapeError
from cubepy.lang.dtypes import DType
from cubepy.runtime import recording
from cubepy.runtime.device import current, use
from cubepy.runtime.tables import room
from cubepy.tensor.ir import ABSENT, Graph, Node, renumbered
from cubepy.tensor.replay import perform, quick

if TYPE_CHECKING:
    from cubepy.tensor.array import Tensor

identities = itertools.count()
_active: ContextVar[Recorder | None] = ContextVar("cubepy_recorder", default=None)
blocks: list[Recorder] = []
"""The recorders of all threads: what is quick looks first whether there are any."""


class Recorder:
    """The ops of a block.

    Attributes: inputs: the tensors that the block read but did not make: those that were announced,
        then the others (parameters, mostly) in the order of first use. Replaying takes one value
        for each.
    """

    def __init__(self, announced: Sequence[Tensor]) -> None:
        self.inputs: list[Tensor] = []
        self._nodes: dict[int, Node] = {}
        for t in announced:
            self._leaf(t)

    def _leaf(self, tensor: Tensor) -> None:
        if tensor.id not in self._nodes:
            attrs = (("storage", tensor.storage.kind),)
            self._nodes[tensor.id] = Node("input", (), attrs, tensor.shape, tensor.dtype)
            self.inputs.append(tensor)

    def add(self, result: Tensor, inputs: Sequence[Tensor | None]) -> None:
        """Keep an op that ran."""
        for t in inputs:
            if t is not None:
                self._leaf(t)
        self._nodes[result.id] = result.node

    def graph(self, *outputs: Tensor) -> Graph:
        """The graph that computes these tensors from `inputs`.

        Raises:
            LaunchError: an output was not made inside the block.
        """
        for t in outputs:
            if t.id not in self._nodes:
                raise LaunchError(
                    "a tensor that is asked for as an output was not made while recording",
                    hint="compute it from tensors inside the with block",
                )
        return renumbered(
            list(self._nodes.items()), [t.id for t in self.inputs], [t.id for t in outputs]
        )


@contextmanager
def record(*inputs: Tensor) -> Iterator[Recorder]:
    """Collect the ops of a block (of this thread) as a graph.

    Ops are the operators and methods of tensors, and what `nn` and `nn.functional` have. Functions
    of `cubepy.kernels`, kernels and NumPy are not recorded; they refuse tensors inside the block.
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
    recording.detour(1)  # no call is repeated without a look at its tensors
    try:
        yield recorder
    finally:
        recording.detour(-1)
        blocks.remove(recorder)
        _active.reset(token)


def refuse_unrecorded() -> None:
    """A tensor becomes a plain array, of which what is made would not be recorded.

    Raises:
        LaunchError: this thread records.
    """
    if _active.get() is not None:
        raise LaunchError(
            "a tensor is given to a function or kernel that is not recorded: what it makes would be an input of the "
            "graph, whatever the graph is replayed on",
            hint="use an op of tensors instead, such as x.softmax() or nn.functional.softmax(x) for K.softmax(x); or "
            "x.numpy(), for a value that replaying does not change",
        )


def apply(op: str, *inputs: Tensor | None, **attrs: Any) -> Tensor:
    """Check, compute and record one op.

    Args:
        op: a name of the IR.
        inputs: tensors; None for an optional input that is absent.
        attrs: plain values (numbers, texts, tuples of them).

    Raises:
        ShapeError: shapes that the op refuses.
        DTypeError: dtypes that it refuses.
        DeviceError: inputs of several devices.
    """
    storage = None if recording.detours else quick(op, inputs, attrs)
    if storage is None:
        device = _common_device(op, inputs)
        with use(device) if device != current() else nullcontext():
            storage = perform(op, inputs, attrs, device)
    return _result(op, inputs, attrs, storage)


_constants: dict[Any, Any] = {}


def constant(value: Any, dtype: DType) -> Tensor:
    """A number as a tensor of rank 0; one tensor for equal numbers, unless somebody records."""
    if _active.get() is not None:
        return apply("constant", value=value, dtype=dtype.name)
    key = exact(value), dtype
    found = _constants.get(key)
    if found is None:
        room(_constants, 1024)
        found = _constants[key] = apply("constant", value=value, dtype=dtype.name)
    return found  # type: ignore[no-any-return]


def _result(
    op: str, inputs: Sequence[Tensor | None], attrs: dict[str, Any], storage: Any
) -> Tensor:
    """The tensor of an op that ran; recorders take note."""
    ids = tuple([ABSENT if t is None else t.id for t in inputs])
    result = tensor_class()(storage, (op, ids, attrs))
    recorder = _active.get()
    if recorder is not None:
        recorder.add(result, inputs)
    return result


@cache
def tensor_class() -> Any:
    """`Tensor`, whose module imports this one."""
    from cubepy.tensor.array import Tensor

    return Tensor


def _common_device(op: str, inputs: Sequence[Tensor | None]) -> Any:
    device = None
    for t in inputs:
        if (
            t is None or t.device is device or t.made_by[0] == "constant"
        ):  # a number is at home everywhere
            continue
        if device is not None and t.device != device:
            raise DeviceError(
                f"{op} of tensors on {device} and {t.device}", hint=f'move one with .to("{device}")'
            )
        device = t.device
    return current() if device is None else device


def replay(graph: Graph, inputs: Sequence[Any]) -> list[Tensor]:
    """Run a graph on new inputs (see `cubepy.tensor.execute.execute`)."""
    from cubepy.tensor.array import as_tensor

    if len(inputs) != len(graph.inputs):
        raise ShapeError(f"the graph takes {len(graph.inputs)} inputs, {len(inputs)} were given")
    values: dict[int, Tensor | None] = {ABSENT: None}
    values.update((at, as_tensor(v)) for at, v in zip(graph.inputs, inputs, strict=True))
    last = {i: at for at, n in enumerate(graph.nodes) for i in n.inputs if i != ABSENT}
    for at, n in enumerate(graph.nodes):
        if n.op != "input":
            values[at] = apply(n.op, *(values[i] for i in n.inputs), **dict(n.attrs))
        for i in set(n.inputs):  # what no later op reads is let go, as in the run that was recorded
            if last.get(i) == at and i not in graph.outputs:
                del values[i]
    return [values[i] for i in graph.outputs]  # type: ignore[misc]
