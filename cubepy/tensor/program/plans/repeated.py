"""Nodes of a program like one that ran before: its launches again, on other memory.

What an op launches follows from the layouts of its arrays, how those lie to each other that share
memory, its attributes, and of what it writes where that begins in a line of the cache. While a
program's launches are recorded a node that has all of these in common with one before (another
layer's, or of a program of other shapes) is no op any more: its launches come with addresses of
their own, and are recorded as if the op had run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.lang.dtypes import DType
from cubepy.runtime import profile, recording
from cubepy.runtime.device import Device, current
from cubepy.runtime.stats import counters
from cubepy.runtime.tables import room
from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.exposed import expose
from cubepy.tensor.ir import ABSENT, Graph, Node
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.program.plans.known import Known, holds, learned, situation
from cubepy.tensor.record import blocks
from cubepy.tensor.replay import STRIDED
from cubepy.tensor.storage import Dense, Storage
from cubepy.tensor.value import Value

KEPT = 2048
"""Nodes of a thread whose launches are remembered."""
VIEWS = STRIDED | {"reshape"}


class _Tables(threading.local):
    """What a thread knows: launches that are prepared have argument blocks of their thread."""

    def __init__(self) -> None:
        self.nodes: dict[Any, Known] = {}
        self.settings = recording.settings


_tables = _Tables()


def recorded_arrays(
    graph: Graph,
    inputs: Sequence[Tensor],
    home: Device,
    before: Callable[[int], Any] | None,
    recorded: Any,
) -> list[Any]:
    """The arrays of the outputs of a graph whose launches are recorded (see `graph.execute`).

    Args:
        graph: what runs.
        inputs: its inputs.
        home: the device that it runs on.
        before: is told the number of each node before it runs.
        recorded: the recording (see `plans.host`).
    """
    specs, nodes = graph.values, _Nodes(home, recorded)
    values: dict[int, Any] = {ABSENT: None}
    for i, tensor in zip(graph.inputs, inputs, strict=True):
        values[i] = plain(tensor, specs[i].dtype, home)
    last = {i: at for at, n in enumerate(graph.nodes) for i in n.inputs}
    for i in (ABSENT, *graph.outputs):
        last.pop(i, None)
    read: list[list[int]] = [[] for _ in graph.nodes]
    for i, at in last.items():
        read[at].append(i)
    for at, (first, n) in enumerate(zip(graph.firsts, graph.nodes, strict=True)):
        if before is not None:
            before(at)
        given = [values[i] for i in n.inputs]
        if n.op == "detach":
            values[first] = given[0] if type(given[0]) is np.ndarray else given[0].detach()
        elif n.op != "input":
            made = nodes.run(n, given, specs)
            if len(made) == 1:
                values[first] = made[0]
            else:
                values.update(enumerate(made, first))
        for i in read[at]:  # what no later op reads is let go
            del values[i]
        del given
    outputs = [values[i] for i in graph.outputs]
    return [v if type(v) is np.ndarray else v.storage.dense() for v in outputs]


def plain(tensor: Tensor, dtype: DType, home: Device) -> Any:
    """The array of a tensor of the host; the tensor itself, where it is more than that."""
    store = tensor.value.storage
    simple = type(tensor.value) is Value and type(store) is Dense and store.dtype is dtype
    here = store.device is home or store.device == home
    if simple and here and type(store.array) is np.ndarray:  # type: ignore[attr-defined]
        return store.array  # type: ignore[attr-defined]
    return tensor


def of_array(value: Any, dtype: DType, home: Device) -> Tensor | None:
    """A tensor of an array; what is none stays."""
    return made_of(value, dtype, home) if type(value) is np.ndarray else value


class _Nodes:
    """What runs the nodes of a graph: values are arrays, or tensors that are more than that."""

    def __init__(self, home: Device, recorded: Any) -> None:
        here = current()
        self.home, self.recorded, self.here = home, recorded, (here.backend, here.ordinal)

    def run(self, node: Node, given: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
        """The results of a node."""
        recorded, op = self.recorded, node.op
        if not blocks and not profile.active:
            if op in VIEWS and type(given[0]) is np.ndarray:
                view = viewed(node, given[0])
                if view is not None:
                    return [view]
            arrays = None if recorded.spoiled else arrays_of(given)
            if arrays is not None:
                return self.repeat(node, given, arrays, specs)
        return self.apply(node, given, specs)

    def apply(self, node: Node, given: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
        """The values that the op gives."""
        tensors = [
            of_array(v, specs[i].dtype, self.home) for v, i in zip(given, node.inputs, strict=True)
        ]
        made = apply(node.op, *tensors, **dict(node.attrs))
        several = made if type(made) is list else [made]
        return [plain(t, s.dtype, self.home) for t, s in zip(several, node.results, strict=True)]

    def compute(self, node: Node, given: Sequence[Any], specs: Sequence[Spec]) -> list[Any]:
        """The same; of arrays alone nothing is asked that the trace has asked."""
        if node.op == "constant" or any(v is not None and type(v) is not np.ndarray for v in given):
            return self.apply(node, given, specs)
        if given and given[0] is None:  # may be of numbers
            return self.apply(node, given, specs)
        attrs, op = dict(node.attrs), OPS[node.op]
        counters.ops += 1
        for n in op.written(attrs):
            if n < len(given) and given[n] is not None:
                expose(given[n])
        made = op.run(node.dtype.numpy, *given, **attrs)
        found = []
        for one, spec in zip(made if type(made) is list else [made], node.results, strict=True):
            like = type(one) is np.ndarray and one.shape == spec.shape
            if not like or one.dtype != spec.dtype.numpy:
                store = one if isinstance(one, Storage) else Dense(np.asarray(one))
                one = plain(Tensor(store), spec.dtype, self.home)
            found.append(one)
        return found

    def repeat(
        self, node: Node, given: Sequence[Any], arrays: list[Any], specs: Sequence[Spec]
    ) -> list[Any]:
        """The results of a node on plain arrays: like those of one before, if there was one."""
        if _tables.settings != recording.settings:
            _tables.nodes.clear()
            _tables.settings = recording.settings
        writes = OPS[node.op].writes
        try:
            key = (node.exactly, self.here, *situation(arrays, bool(writes)))
            known = _tables.nodes.get(key)
        except TypeError:  # something that no key is made of
            return self.apply(node, given, specs)
        recorded = self.recorded
        if known is not None and holds(known, arrays):
            return again(known, arrays, recorded, node, self.home)
        at = len(recorded.steps), len(recorded.kept), len(recorded.constants)
        flags = len(recorded.flags)
        made = self.compute(node, given, specs)
        if not recorded.spoiled and len(recorded.flags) == flags:
            known = learned(recorded, at, arrays, self.as_they_are(made, node.results))
            if known is not None and (not known.written or writes):
                room(_tables.nodes, KEPT)
                _tables.nodes[key] = known
        return made

    def as_they_are(
        self, made: Sequence[Any], specs: Sequence[Spec]
    ) -> list[tuple[Any, DType, Device]]:
        """The arrays of values, their dtypes and devices; None for an array of what is more."""
        found: list[tuple[Any, DType, Device]] = []
        for value, spec in zip(made, specs, strict=True):
            if type(value) is np.ndarray:
                found.append((value, spec.dtype, self.home))
                continue
            store = value.value.storage
            simple = type(store) is Dense and type(value.value) is Value
            found.append((store.array if simple else None, store.dtype, store.device))
        return found


def viewed(node: Node, array: np.ndarray) -> np.ndarray | None:
    """A view of the elements of an array; None where it is none."""
    if node.op == "permute":
        found: Any = array.transpose(node.attrs[0][1])
    elif node.op == "reshape":
        if not array.flags.c_contiguous:
            return None
        found = array.reshape(node.attrs[0][1])
    else:
        found = OPS[node.op].run(array.dtype, array, **dict(node.attrs))
    if type(found) is not np.ndarray:
        return None
    counters.ops += 1
    return found


def made_of(array: Any, dtype: DType, device: Device) -> Tensor:
    """A tensor of an array."""
    store = Dense.__new__(Dense)
    store.array, store.shape, store.dtype, store.device = array, array.shape, dtype, device
    store.packed = None
    tensor = Tensor.__new__(Tensor)
    tensor.value = Value(store)
    return tensor


def arrays_of(given: Sequence[Any]) -> list[Any] | None:
    """The arrays of inputs, None for an absent one; None where some are no plain arrays."""
    found: list[Any] = []
    for value in given:
        array = value
        if value is not None and type(value) is not np.ndarray:
            store = value.value.storage
            array = store.array if type(store) is Dense else None
        if (
            array is None
            and value is not None
            or array is not None
            and (type(array) is not np.ndarray or not array.size)
        ):
            return None
        found.append(array)
    return found


def again(known: Known, arrays: list[Any], recorded: Any, node: Node, home: Device) -> list[Any]:
    """The results of a node that is like one before."""
    counters.ops += 1
    counters.launches += len(known.launches)
    for n in known.written:
        expose(arrays[n])
    memory = [recorded.memory(*taken) for taken in known.memory]
    for constant in known.constants:
        recorded.constant(constant)
    whole = [*arrays, *memory, *known.values]
    for prepared, positions, parts in known.launches:
        leaves = [whole[n] for n in positions]
        for n, part in parts:
            leaves[n] = part.found(arrays, memory)
        recorded.launch(prepared, leaves)
        prepared.runner.run(leaves, ())
    made = []
    for (at, part, dtype, device), spec in zip(known.results, node.results, strict=True):
        array = whole[at] if part.whole else part.found(arrays, memory)
        like = dtype is spec.dtype and (device is home or device == home)
        made.append(array if like else made_of(array, dtype, device))
    return made
