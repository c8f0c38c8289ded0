"""Traces: what a library function launched, kept so that the next call of the same kind skips its
host code.

Choosing a routine, laying out views and checking shapes costs the host tens of microseconds; none
of it depends on anything but dtypes, shapes, strides, alignment and settings. On a device with its
own memory the first call therefore records its allocations and launches, and later calls repeat
them with the new addresses. What a trace cannot repeat (reading elements, taking the time, streams
of its own) makes the call keep no trace.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from cubepy.config import config
from cubepy.runtime import recording
from cubepy.runtime.device import Device, gpu_of
from cubepy.runtime.memory import device_array as da
from cubepy.runtime.memory.layout import Layout
from cubepy.runtime.memory.spans import meet, span
from cubepy.runtime.replay.record import Call, Launch, Recorder
from cubepy.runtime.stats import counters
from cubepy.runtime.tables import room
from cubepy.runtime.tensor_map import ArrayMap

CONSTANT = (0, 0)
RIPE = 3
"""At which repetition by this way launches get functions of their own: most calls are repeated by
machine code then.
"""
Place = tuple[int, int, Layout, bool]
"""Where a leaf's memory is: which input (0, 1, ...) or allocation (-1, -2, ...), bytes from there,
and the view.
"""


class MapPlace(NamedTuple):
    """A tensor map: where its array is, and what it takes of it."""

    array: Any
    box: tuple[int, ...]
    swizzle: int
    tf32: bool


class _Operands:
    """Where the arrays of a recorded call are: in its inputs, or in memory that it took.

    Attributes:
        bound: whether places hold only for inputs that lie to each other as these do.
        unknown: whether something was met of which that cannot be told.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.inputs = recorder.inputs
        self.owners: dict[int, tuple[int, int]] = {}  # owner -> (input or allocation, its address)
        self.shared: dict[int, list[int]] = {}  # owner -> its inputs
        for n, array in enumerate(self.inputs):
            self.owners.setdefault(id(array.owner), (n, array.address))
            self.shared.setdefault(id(array.owner), []).append(n)
        for n, (owner, _) in enumerate(recorder.allocations):
            self.owners[id(owner)] = (-1 - n, owner.address)
        self.owners.update((id(owner), CONSTANT) for owner in recorder.constants)
        self.bound = self.unknown = False

    def place(self, array: Any) -> Place | da.DeviceArray:
        """Where an array is; a constant stays the same array."""
        known = self.owners.get(id(array.owner))
        if known is None:  # somebody keeps it; for which inputs it is right is not known here
            self.unknown = True
        if known is None or known is CONSTANT:
            return array  # type: ignore[no-any-return]
        source, address = known
        if source >= 0 and len(self.shared[id(array.owner)]) > 1:
            source = self.input_with(array, self.shared[id(array.owner)])
            address = self.inputs[source].address
        return source, array.address - address, array.layout, array.writeable

    def input_with(self, array: da.DeviceArray, inputs: list[int]) -> int:
        """Which of the inputs on one piece of memory an array is a part of."""
        low, high = span(array)
        inside = [
            n for n in inputs if span(self.inputs[n])[0] <= low and high <= span(self.inputs[n])[1]
        ]
        self.bound |= not inside
        return next(
            (n for n in inside if self.inputs[n].address == array.address), (inside or inputs)[0]
        )

    def leaf(self, value: Any) -> Any:
        """What stands for a leaf of a launch."""
        if isinstance(value, da.DeviceArray):
            return self.place(value)
        if isinstance(value, ArrayMap):
            return MapPlace(self.place(value.array), value.box, value.swizzle, value.tf32)
        self.unknown |= not isinstance(value, (bool, int, float))
        return value

    def step(self, step: Launch | Call) -> tuple[Any, Any, tuple[Any, ...]]:
        """A step as (what was prepared, its runner, places), or (a function, None, places)."""
        if isinstance(step, Launch):
            prepared = None if step.prepared.in_place else step.prepared
            return prepared, step.prepared.runner, tuple(map(self.leaf, step.leaves))
        places = (self.place(v) if isinstance(v, da.DeviceArray) else v for v in step.arguments)
        return step.function, None, tuple(places)


class Trace:
    """A recorded call, laid out for other arrays of the same layouts.

    Attributes:
        possible: whether it can be replayed at all.
    """

    def __init__(self, recorder: Recorder, result: Any, device: Device) -> None:
        self.gpu, self.ordinal = gpu_of(device), device.ordinal
        self.sizes = tuple([size for _, size in recorder.allocations])
        operands = _Operands(recorder)
        self.recorded = tuple(map(operands.step, recorder.steps))
        self.steps: tuple[Any, ...] = tuple(
            [(None if runner else function, runner, at) for function, runner, at in self.recorded]
        )
        launched = [step.prepared for step in recorder.steps if isinstance(step, Launch)]
        self.guards = tuple(dict.fromkeys(p.guard for p in launched if p.guard is not None))
        self.wrapped = False
        self.tried: set[Any] = (
            set()
        )  # keys of calls that it was tried to plan a replay by machine code for (`gpu_plan`)
        self.replays = 0
        self.launches = sum(runner is not None for _, runner, _ in self.steps)
        self.several = type(result) is tuple
        self.results = tuple(map(operands.place, result if type(result) is tuple else (result,)))
        self.bound, self.possible = operands.bound, not (recorder.spoiled or operands.unknown)

    def holds(self) -> bool:
        """Whether globals and the like, which its kernels read, are what they were."""
        return all(g.valid() for g in self.guards)

    def replay(self, inputs: Sequence[da.DeviceArray]) -> Any:
        """The call with other arrays of the same layouts."""
        self.replays += 1
        if self.replays == RIPE:
            self.steps = tuple(map(_ripened, self.recorded))
        allocate, ordinal = self.gpu.allocate, self.ordinal
        taken = [allocate(ordinal, size) for size in self.sizes]
        recording.spoil()
        counters.launches += self.launches
        for function, runner, places in self.steps:
            values = [found(p, inputs, taken) for p in places]
            if runner is None:
                function(*values)
            elif function is None or not function(values, None):
                runner.run(values, ())
        if self.several:
            return tuple([found(p, inputs, taken) for p in self.results])
        return found(self.results[0], inputs, taken)


def found(place: Any, inputs: Sequence[da.DeviceArray], taken: list[Any]) -> Any:
    """What is at a place of a call. (No closure: one that calls itself would keep the memory until
    the next collection of garbage.)"""
    if type(place) is not tuple:
        if type(place) is MapPlace:
            array = found(place.array, inputs, taken)
            return ArrayMap(array, array, place.box, place.swizzle, place.tf32)
        return place
    source, offset, layout, writeable = place
    if source >= 0:
        array = inputs[source]
        return da.DeviceArray(
            array.address + offset, layout, array.owner, writeable and array.writeable
        )
    owner = taken[-1 - source]
    return da.DeviceArray(owner.address + offset, layout, owner, writeable)


class Traces(threading.local):
    """Traces by key, for one thread: each fills the argument blocks of its own launches."""

    LIMIT = 4096

    def __init__(self) -> None:
        self.known: dict[Any, Trace] = {}

    def keep(self, key: Any, recorder: Recorder, result: Any, device: Device) -> Trace | None:
        """Keep what was recorded, if it can be repeated."""
        results = result if type(result) is tuple else (result,)
        if recorder.spoiled or any(type(r) is not da.DeviceArray for r in results):
            return None
        made = Trace(recorder, result, device)
        if not made.possible:
            return None
        room(self.known, self.LIMIT)
        self.known[key] = made
        return made


def settings(device: Device) -> tuple[Any, ...]:
    """What besides the arguments decides what a library function launches."""
    return (
        config.mode,
        config.debug,
        config.tune,
        config.deterministic,
        config.exact_weights,
        recording.generation,
        device.ordinal,
    )


def _ripened(step: Any) -> Any:
    """A step whose launch has a function of its own, where the runner makes them."""
    prepared, runner, places = step
    if runner is None or prepared is None:
        return step
    make = getattr(runner, "quick", None)
    numbered = [(k, -1) for k in range(len(places))]
    return (
        None if make is None else make(numbered, prepared.outputs, prepared.ranges, True),
        runner,
        places,
    )


def kind_of(inputs: Sequence[da.DeviceArray | None]) -> tuple[Any, ...]:
    """What of the inputs decides a trace: layouts, alignment, and which of them share memory."""
    out: list[Any] = []
    for n, array in enumerate(inputs):
        if array is None:
            out.append(None)
            continue
        shared = [
            (m, array.address - v.address)
            for m, v in enumerate(inputs[:n])
            if v is not None and near(v, array)
        ]
        out.append((array.layout, array.address & 127, array.writeable, *shared))
    return tuple(out)


def near(one: da.DeviceArray, other: da.DeviceArray) -> bool:
    """Whether two arrays are of one piece of memory, or their spans meet."""
    if one.owner is other.owner:
        return True
    return meet(one, other)
