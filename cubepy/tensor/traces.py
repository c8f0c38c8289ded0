"""Ops on a device with its own memory, repeated from traces: see `cubepy.runtime.trace`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.runtime import trace
from cubepy.runtime.device import Device
from cubepy.runtime.device_array import DeviceArray, constant_on
from cubepy.runtime.stats import active
from cubepy.tensor.storage import Dense, Storage

_traces = trace.Traces()


class Call:
    """One op on storages of a device.

    Attributes:
        stores: the storages, with numbers on the device.
        arrays: all of their arrays.
        key: what decides the trace, or None where a storage does not say.
    """

    __slots__ = ("arrays", "device", "key", "stores")

    def __init__(self, op: str, inputs: Sequence[Storage | None], attrs: dict[str, Any], device: Device) -> None:
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

    def repeat(self) -> Dense | None:
        """The result by the trace of an earlier call, if there is one."""
        known = _traces.known.get(self.key)
        return None if known is None or active else made(known.replay(self.arrays))

    def keep(self, recorder: trace.Recorder, result: Any) -> None:
        """Keep what was recorded for later calls."""
        if self.key is not None and type(result) is Dense:
            _traces.keep(self.key, recorder, result.array, self.device)


def made(array: DeviceArray) -> Dense:
    """The storage of a device array."""
    out = Dense.__new__(Dense)
    layout = array.layout
    out.array, out.shape, out.dtype, out.device = array, layout.shape, layout.element, layout.device
    return out
