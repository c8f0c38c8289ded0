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
from cubepy.runtime.replay.arguments import key_of
from cubepy.runtime.replay.record import Launch
from cubepy.runtime.stats import counters
from cubepy.runtime.tables import room
from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.exposed import expose
from cubepy.tensor.ops import OPS
from cubepy.tensor.program.plans.arena import LINE
from cubepy.tensor.record import blocks
from cubepy.tensor.replay import STRIDED
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Value

KEPT = 4096
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
        launches: what it launched, and the leaves.
        written: the inputs that launches write.
        results: what it gave, each with its dtype and device.
        several: whether that is a list.
    """

    memory: tuple[tuple[Any, ...], ...]
    constants: tuple[Any, ...]
    launches: tuple[tuple[Any, tuple[Part, ...]], ...]
    written: frozenset[int]
    results: tuple[tuple[Part, DType, Device], ...]
    several: bool


class _Tables(threading.local):
    """What a thread knows: launches that are prepared have argument blocks of their thread."""

    def __init__(self) -> None:
        self.nodes: dict[Any, Known] = {}
        self.settings = recording.settings


_tables = _Tables()


def repeating(recorded: Any) -> Callable[..., Any]:
    """What runs the nodes of a program whose launches are recorded: like `apply`.

    Args:
        recorded: the recording (see `plans.host`).
    """

    def run(op: str, *inputs: Any, **attrs: Any) -> Any:
        if op in VIEWS and (view := viewed(op, inputs[0], attrs)) is not None:
            return view
        arrays = arrays_of(inputs)
        if arrays is None or blocks or profile.active or recorded.spoiled:
            return apply(op, *inputs, **attrs)
        if _tables.settings != recording.settings:
            _tables.nodes.clear()
            _tables.settings = recording.settings
        try:
            where = situation(arrays, bool(OPS[op].writes))
            key = key_of((op, len(arrays), *attrs, *attrs.values()), current(), *where)
            known = _tables.nodes.get(key)
        except (TypeError, ValueError):  # something that no key is made of
            return apply(op, *inputs, **attrs)
        if known is not None and holds(known, arrays):
            return again(known, arrays, recorded)
        at = len(recorded.steps), len(recorded.kept), len(recorded.constants)
        flags = len(recorded.flags)
        result = apply(op, *inputs, **attrs)
        if not recorded.spoiled and len(recorded.flags) == flags:
            known = learned(recorded, at, arrays, result)
            if known is not None and (not known.written or OPS[op].writes):
                room(_tables.nodes, KEPT)
                _tables.nodes[key] = known
        return result

    return run


def viewed(op: str, tensor: Any, attrs: dict[str, Any]) -> Any:
    """A view of the elements of a tensor on the host; None where it is none."""
    store = tensor.value.storage
    if blocks or profile.active or type(store) is not Dense or type(store.array) is not np.ndarray:
        return None
    if op == "reshape" and not store.array.flags.c_contiguous:
        return None
    found = OPS[op].run(store.array.dtype, store.array, **attrs)
    if type(found) is not np.ndarray:
        return None
    counters.ops += 1
    return made_of(found, store.dtype, store.device)


def made_of(array: Any, dtype: DType, device: Device) -> Tensor:
    """A tensor of an array."""
    store = Dense.__new__(Dense)
    store.array, store.shape, store.dtype, store.device = array, array.shape, dtype, device
    tensor = Tensor.__new__(Tensor)
    tensor.value = Value(store)
    return tensor


def arrays_of(inputs: Sequence[Any]) -> list[Any] | None:
    """The arrays of tensors, None for an absent one; None where some are no plain arrays."""
    found: list[Any] = []
    for tensor in inputs:
        if tensor is None:
            found.append(None)
            continue
        store = tensor.value.storage
        if type(store) is not Dense or type(store.array) is not np.ndarray or not store.array.size:
            return None
        found.append(store.array)
    return found


def situation(arrays: Sequence[Any], writes: bool) -> list[Any]:
    """What of arrays decides launches: layouts, and how those lie to each other that share memory.

    Args:
        arrays: the inputs of a node.
        writes: whether it writes some of them; then also where they begin in a line of the cache.
    """
    found: list[Any] = []
    spans: list[tuple[int, int, int]] = []
    for array in arrays:
        if array is None:
            found.append(None)
            continue
        at, layout = address(array), (array.dtype, array.shape, array.strides)
        low, high = reach(*layout)
        for n, (first, behind, start) in enumerate(spans):
            if at + low < behind and first < at + high:
                found.append((n, at - start))
        spans.append((at + low, at + high, at))
        found.append((layout, at % LINE if writes else 0))
    return found


@lru_cache(4096)
def reach(dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The bytes of an array, from its first element on: the first one, and one past the last."""
    low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    return low, high + dtype.itemsize


def holds(known: Known, arrays: Sequence[Any]) -> bool:
    """Whether the code of launches is what it was, and what they write can be written."""
    for prepared, _ in known.launches:
        valid = prepared.holds
        if valid is not None and not valid() and not prepared.guard.valid():
            return False
    return all(arrays[n].flags.writeable for n in known.written)


def again(known: Known, arrays: Sequence[Any], recorded: Any) -> Any:
    """The result of a node that is like one before."""
    counters.ops += 1
    counters.launches += len(known.launches)
    for n in known.written:
        expose(arrays[n])
    memory = [recorded.memory(*taken) for taken in known.memory]
    for constant in known.constants:
        recorded.constant(constant)
    for prepared, parts in known.launches:
        leaves = [part.found(arrays, memory) for part in parts]
        recorded.launch(prepared, leaves)
        prepared.runner.run(leaves, ())
    made = [made_of(p.found(arrays, memory), dtype, home) for p, dtype, home in known.results]
    return made if known.several else made[0]


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
    for n, (raw, (_, _, size)) in enumerate(taken):
        spans.append((address(raw), address(raw) + size, MEMORY, n))

    def part(value: Any) -> Part | None:
        if type(value) is not np.ndarray:
            return Part(VALUE, value) if isinstance(value, (bool, int, float)) else None
        if any(value is one for one in constants):
            return Part(VALUE, value)
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
        launches.append((step.prepared, tuple(found)))
    results = []
    for tensor in result if type(result) is list else [result]:
        store = tensor.value.storage
        made = part(store.array) if type(store) is Dense and type(tensor.value) is Value else None
        if made is None or made.kind == VALUE or (made.kind == MEMORY and made.of not in wrote):
            return None
        results.append((made, store.dtype, store.device))
    return Known(
        tuple(asked for _, asked in taken),
        tuple(constants),
        tuple(launches),
        frozenset(written),
        tuple(results),
        type(result) is list,
    )


def whole_of(array: np.ndarray) -> np.ndarray:
    """The array whose memory an array is a view of."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array
