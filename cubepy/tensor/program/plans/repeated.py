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
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cubepy.lang.dtypes import DType
from cubepy.runtime import profile, recording
from cubepy.runtime.device import Device, current
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.spans import extent
from cubepy.runtime.replay.record import Launch
from cubepy.runtime.stats import counters
from cubepy.runtime.tables import room
from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.exposed import expose
from cubepy.tensor.ir import ABSENT, Graph, Node
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.program.plans.arena import LINE
from cubepy.tensor.record import blocks
from cubepy.tensor.replay import STRIDED
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Value

KEPT = 2048
"""Nodes of a thread whose launches are remembered."""
VALUE, INPUT, MEMORY = range(3)
VIEWS = STRIDED | {"reshape"}


class Part(NamedTuple):
    """A leaf of a launch, or a result.

    Attributes:
        kind: VALUE (`of` itself), INPUT or MEMORY (`of` is its number).
        of: what it is a part of.
        whole: whether it is all of that, in the same layout.
        offset: bytes from the first element.
        layout: shape, dtype and strides.
        writeable: whether it may be written.
    """

    kind: int
    of: Any
    whole: bool = True
    offset: int = 0
    layout: tuple[Any, ...] = ()
    writeable: bool = True

    def found(self, inputs: Sequence[Any], memory: Sequence[Any]) -> Any:
        """The leaf among other arrays."""
        if self.kind == VALUE:
            return self.of
        array = (inputs if self.kind == INPUT else memory)[self.of]
        if self.whole:
            return array
        root, offset = array, self.offset
        if self.kind == INPUT:
            root = whole_of(array)
            offset += address(array) - address(root)
        shape, dtype, strides = self.layout
        made: Any = np.ndarray(shape, dtype, root, offset, strides)
        if not self.writeable:
            made.flags.writeable = False
        return made


class Known(NamedTuple):
    """What a node did.

    Attributes:
        memory: shapes, dtypes and bytes of what it took.
        constants: arrays that were made of its attributes.
        values: leaves of launches that are always the same.
        launches: what it launched: where its leaves are among inputs, memory and values, and those
            that are parts of them, by their numbers.
        written: the inputs that launches write.
        results: what it gave: where that is, as of leaves, and its dtype and device.
    """

    memory: tuple[tuple[Any, ...], ...]
    constants: tuple[Any, ...]
    values: tuple[Any, ...]
    launches: tuple[tuple[Any, tuple[int, ...], tuple[tuple[int, Part], ...]], ...]
    written: frozenset[int]
    results: tuple[tuple[int, Part, DType, Device], ...]


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
        return self.results(node, self.apply(node, given, specs))

    def apply(self, node: Node, given: Sequence[Any], specs: Sequence[Spec]) -> Any:
        """What the op gives."""
        tensors = [
            of_array(v, specs[i].dtype, self.home) for v, i in zip(given, node.inputs, strict=True)
        ]
        return apply(node.op, *tensors, **dict(node.attrs))

    def results(self, node: Node, made: Any) -> list[Any]:
        """The values that an op gave."""
        several = made if type(made) is list else [made]
        return [plain(t, s.dtype, self.home) for t, s in zip(several, node.results, strict=True)]

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
            return self.results(node, self.apply(node, given, specs))
        recorded = self.recorded
        if known is not None and holds(known, arrays):
            return again(known, arrays, recorded, node, self.home)
        at = len(recorded.steps), len(recorded.kept), len(recorded.constants)
        flags = len(recorded.flags)
        result = self.apply(node, given, specs)
        if not recorded.spoiled and len(recorded.flags) == flags:
            known = learned(recorded, at, arrays, result)
            if known is not None and (not known.written or writes):
                room(_tables.nodes, KEPT)
                _tables.nodes[key] = known
        return self.results(node, result)


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


def situation(arrays: Sequence[Any], writes: bool) -> list[Any]:
    """What of arrays decides launches: layouts, and how those lie to each other that share memory.

    Args:
        arrays: the inputs of a node.
        writes: whether it writes some of them; then also where they begin in a line of the cache.
    """
    found: list[Any] = [len(arrays)]
    spans: list[tuple[int, int, int]] = []
    for array in arrays:
        if array is None:
            found.append(None)
            continue
        at, dtype, shape, strides = address(array), array.dtype, array.shape, array.strides
        if array.flags.c_contiguous:
            low, high = at, at + array.nbytes
        else:
            low, high = reach(dtype, shape, strides)
            low, high = at + low, at + high
        for n, (first, behind, start) in enumerate(spans):
            if low < behind and first < high:
                found.append((n, at - start))
        spans.append((low, high, at))
        found += (dtype, shape, strides)
        if writes:
            found.append(at % LINE)
    return found


@lru_cache(4096)
def reach(dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The bytes of an array, from its first element on: the first one, and one past the last."""
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    return low, high + dtype.itemsize


def holds(known: Known, arrays: Sequence[Any]) -> bool:
    """Whether the code of launches is what it was, and what they write can be written."""
    for prepared, _, _ in known.launches:
        valid = prepared.holds
        if valid is not None and not valid() and not prepared.guard.valid():
            return False
    return all(arrays[n].flags.writeable for n in known.written)


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


def learned(
    recorded: Any, before: tuple[int, int, int], arrays: Sequence[Any], result: Any
) -> Known | None:
    """What a node did that has run; None where it cannot be done again on other memory.

    Args:
        recorded: the recording.
        before: how many steps, buffers and constants were recorded before it.
        arrays: its inputs.
        result: what it gave.
    """
    steps, taken, constants = (
        recorded.steps[before[0] :],
        [*zip(recorded.kept[before[1] :], recorded.asked[before[1] :], strict=True)],
        recorded.constants[before[2] :],
    )
    spans: list[tuple[int, int, int, int]] = []  # first byte, past the last, kind, number
    for n, array in enumerate(arrays):
        if array is not None:
            low, high = extent(array)
            spans.append((address(array) + low, address(array) + high, INPUT, n))
    themselves = {id(a): Part(INPUT, n) for n, a in reversed([*enumerate(arrays)])}
    for n, (raw, (shape, dtype, size)) in enumerate(taken):
        spans.append((address(raw), address(raw) + size, MEMORY, n))
        if (raw.shape, raw.dtype) == (shape, dtype):
            themselves[id(raw)] = Part(MEMORY, n)

    def part(value: Any) -> Part | None:
        if type(value) is not np.ndarray:
            return Part(VALUE, value) if isinstance(value, (bool, int, float)) else None
        if any(value is one for one in constants):
            return Part(VALUE, value)
        if id(value) in themselves:
            return themselves[id(value)]
        at, (low, high) = address(value), extent(value)
        layout = (value.shape, value.dtype, value.strides)
        inside = [p for p in spans if p[0] <= at + low and at + high <= p[1]]
        for _, _, kind, n in inside:
            if kind == INPUT:
                one = arrays[n]
                same = address(one) == at and (one.shape, one.dtype, one.strides) == layout
                if same and one.flags.writeable == value.flags.writeable:
                    return Part(INPUT, n)
        if len(inside) != 1 or low == high:
            return None
        _, _, kind, n = inside[0]
        if kind == MEMORY:
            raw, (shape, dtype, _) = taken[n]
            contiguous = value.flags.c_contiguous and (shape, dtype) == layout[:2]
            fits = address(raw) == at and contiguous
            return Part(MEMORY, n, fits, at - address(raw), layout, value.flags.writeable)
        if not whole_of(arrays[n]).flags.c_contiguous:
            return None
        return Part(INPUT, n, False, at - address(arrays[n]), layout, value.flags.writeable)

    launches, written, wrote = [], set(), set()
    values: list[Any] = []

    def position(p: Part) -> int:
        """Where a leaf, or what it is a part of, is among inputs, memory and values."""
        if p.kind == VALUE:
            values.append(p.of)
            return len(arrays) + len(taken) + len(values) - 1
        return int(p.of) + (len(arrays) if p.kind == MEMORY else 0)

    for step in steps:
        if not isinstance(step, Launch):
            return None
        parts = [part(leaf) for leaf in step.leaves]
        if any(p is None for p in parts) or not hasattr(step.prepared.runner, "step"):
            return None
        found = [p for p in parts if p is not None]
        outputs = [found[n] for n in step.prepared.outputs]
        wrote |= {p.of for p in outputs if p.kind == MEMORY}
        written |= {p.of for p in outputs if p.kind == INPUT}
        if any(p.kind == VALUE for p in outputs):
            return None
        if any(p.kind == MEMORY and p.of not in wrote for p in found):
            return None  # what it reads was written by something else
        positions = tuple(map(position, found))
        parts_ = tuple([(n, p) for n, p in enumerate(found) if not p.whole])
        launches.append((step.prepared, positions, parts_))
    results = []
    for tensor in result if type(result) is list else [result]:
        store = tensor.value.storage
        made = part(store.array) if type(store) is Dense and type(tensor.value) is Value else None
        if made is None or made.kind == VALUE or (made.kind == MEMORY and made.of not in wrote):
            return None
        results.append((position(made), made, store.dtype, store.device))
    return Known(
        tuple(asked for _, asked in taken),
        tuple(constants),
        tuple(values),
        tuple(launches),
        frozenset(written),
        tuple(results),
    )


def whole_of(array: np.ndarray) -> np.ndarray:
    """The array whose memory an array is a view of."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array
