"""What a node of a program did: its launches, and where their leaves were among its inputs and what
it took.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cubepy.lang.dtypes import DType
from cubepy.runtime.device import Device
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.spans import extent
from cubepy.runtime.replay.record import Launch
from cubepy.tensor.program.plans.arena import LINE

VALUE, INPUT, MEMORY = range(3)


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


def learned(
    recorded: Any,
    before: tuple[int, int, int],
    arrays: Sequence[Any],
    result: Sequence[tuple[Any, DType, Device]],
) -> Known | None:
    """What a node did that has run; None where it cannot be done again on other memory.

    Args:
        recorded: the recording.
        before: how many steps, buffers and constants were recorded before it.
        arrays: its inputs.
        result: the arrays that it gave (None for what is more than that), their dtypes and devices.
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
    for array, dtype, device in result:
        made = None if array is None else part(array)
        if made is None or made.kind == VALUE or (made.kind == MEMORY and made.of not in wrote):
            return None
        results.append((position(made), made, dtype, device))
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
