"""Ops on a device with its own memory, repeated from traces: see `cubepy.runtime.replay.trace`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.compiler.signature import exact
from cubepy.runtime import recording
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import DeviceArray, constant_on
from cubepy.runtime.replay import trace
from cubepy.runtime.replay.gpu_plan import GpuCalls, view_at
from cubepy.runtime.replay.host_plan import REFUSED
from cubepy.runtime.replay.record import Recorder
from cubepy.runtime.stats import active
from cubepy.runtime.tables import room
from cubepy.tensor.storage import Dense, Storage

_traces = trace.Traces()
_calls = GpuCalls()
_numbers: dict[tuple[int, int], DeviceArray] = {}
"""Numbers on the GPUs that they were used on, by the identities of their tensors and the ordinals.
"""
_UNLIKE = frozenset(
    {int, float, tuple}
)  # types whose values may be equal to others that mean something else
seen: list[bool] = []
"""Not empty as soon as an op ran on a GPU."""


def key_of(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """What decides the launches of an op of tensors, and the arrays that it reads; (None, ...)
    where unknown.
    """
    parts: list[Any] = [op]
    values: list[Any] = []
    for t in inputs:
        if t is None:
            parts.append(None)
            continue
        store = t.storage
        if type(store) is Dense:
            array = store.array
            if type(array) is not DeviceArray:
                array = _numbers.get((t.id, _ordinal(inputs)))
                if array is None:
                    return None, values
            parts.append(array.layout)
            values.append(array)
        else:
            plan = store.plan()
            if plan is None:
                return None, values
            arrays = list(store.read())
            if any(type(a) is not DeviceArray for a in arrays):
                return None, values
            parts += [plan, len(arrays), *[a.layout for a in arrays]]
            values += arrays
    if attrs:
        parts += attrs
        parts += [exact(v) if type(v) in _UNLIKE else v for v in attrs.values()]
    return tuple(parts), values


def _ordinal(inputs: Sequence[Any]) -> int:
    """Of the GPU that the numbers among the inputs come to: where the other inputs are; -1 where
    there are none.
    """
    for t in inputs:
        if t is not None and t.made_by[0] != "constant":
            return t.storage.device.ordinal  # type: ignore[no-any-return]
    return -1


def swift(key: Any, values: list[Any]) -> Dense | None:
    """The result of an op that came before, by the shortest way; None, with nothing done, where
    there is none.
    """
    again = _calls.ready.get(key)
    if again is None:
        return None
    array = again(*values)
    return None if array is REFUSED else made(array)


class Call:
    """One op on storages of a device.

    Attributes:
        stores: the storages, with numbers on the device.
        arrays: all of their arrays.
        key: what decides the trace, or None where a storage does not say.
    """

    __slots__ = ("arrays", "device", "key", "stores")

    def __init__(
        self, op: str, inputs: Sequence[Storage | None], attrs: dict[str, Any], device: Device
    ) -> None:
        if not seen:
            seen.append(True)
        arrays: list[Any] = []
        plans: list[Any] = []
        stores: list[Any] = []
        known = True
        for s in inputs:
            plan: Any = 0
            if type(s) is Dense:
                array = s.array
                if type(array) is not DeviceArray:  # a number
                    array = constant_on(device, array)
                    s = made(array)
                arrays.append(array)
            elif s is not None:
                plan = s.plan()
                known = known and plan is not None
                arrays += s.read()
            plans.append(plan if s is not None else None)
            stores.append(s)
        self.stores, self.arrays, self.device = stores, arrays, device
        self.key = None
        if known and arrays:
            kind = trace.kind_of(arrays)
            self.key = (op, tuple(plans), tuple(attrs.items()), trace.settings(device), kind)

    def repeat(self, key: Any) -> Dense | None:
        """The result by the trace of an earlier call, if there is one; `key` is that of the op
        (`key_of`).
        """
        known = _traces.known.get(self.key)
        if known is None or active or not known.holds():
            return None
        array = known.replay(self.arrays)
        if key is not None and not recording.detours:
            _calls.keep(key, self.arrays, None, known, self.arrays)
        return made(array)

    def note(self, inputs: Sequence[Any]) -> None:
        """Remember where the numbers among the tensors are on this GPU."""
        for t, store in zip(inputs, self.stores, strict=True):
            if t is not None and type(store) is Dense and store.array is not t.storage.array:
                room(_numbers, _VIEWS)
                _numbers[t.id, self.device.ordinal] = store.array

    def keep(self, recorder: Recorder, result: Any) -> None:
        """Keep what was recorded for later calls."""
        if self.key is not None and type(result) is Dense:
            _traces.keep(self.key, recorder, result.array, self.device)


def made(array: DeviceArray) -> Dense:
    """The storage of a device array."""
    out = Dense.__new__(Dense)
    layout = array.layout
    out.array, out.shape, out.dtype, out.device = array, layout.shape, layout.element, layout.device
    return out


_views: dict[Any, tuple[Any, int]] = {}
_VIEWS = 4096


def view_of(op: str, storages: Sequence[Any], attrs: dict[str, Any], key: Any) -> Dense | None:
    """The result of an op that gave a view of such an array before: no launch, and no search for
    one.
    """
    store = storages[0]
    if type(store) is not Dense or type(store.array) is not DeviceArray:
        return None
    array = store.array
    found = _views.get((op, array.layout, tuple(attrs.items())))
    if found is None:
        return None
    if key is not None:
        _calls.ready[key] = view_at(*found)
    return made(DeviceArray(array.address + found[1], found[0], array.owner, array.writeable))


def keep_view(op: str, source: Any, attrs: dict[str, Any], result: Any) -> None:
    """Remember that an op gave a view of its only input, if it did."""
    if type(source) is not Dense or type(result) is not Dense:
        return
    array, view = source.array, result.array
    if type(array) is DeviceArray and type(view) is DeviceArray and view.owner is array.owner:
        room(_views, _VIEWS)
        _views[op, array.layout, tuple(attrs.items())] = view.layout, view.address - array.address
