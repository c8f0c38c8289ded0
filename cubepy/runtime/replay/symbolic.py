"""What a call would do with arrays whose lengths are symbols: nothing is launched, no memory is
taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.lang.grid import Over
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.layout import Layout
from cubepy.runtime.replay.gpu import LINE
from cubepy.runtime.replay.record import Recorder
from cubepy.runtime.symbolic.layout import SymbolicLayout
from cubepy.runtime.symbolic.number import Trace

SPACE = 200
"""Arrays are this power of two bytes from each other: none meets another one, however long."""


class Memory:
    """What stands for memory of a device."""

    last = None

    def __init__(self, number: int, bits: int = 0) -> None:
        self.address = number << SPACE | bits


class SymbolicLaunch:
    """A launch that is recorded, but not done; `Prepared` as far as plans look at it."""

    def __init__(self, executable: Any, runner: Any) -> None:
        self.runner, self.guard = runner, executable.program.guard


class SymbolicRecorder(Recorder):
    """A record in which lengths may be symbols."""

    symbolic = True

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace, self.memories = trace, 0
        self.inputs = 0
        self.given: dict[int, DeviceArray] = {}

    def array(self, source: DeviceArray) -> DeviceArray:
        """An array with symbols for the lengths of one; the same for the same memory."""
        layout = source.layout
        shape = tuple([self._input(n) for n in layout.shape])
        wide = (-(1 << 44), 1 << 44)
        strides = None
        if not layout.contiguous:
            strides = tuple([self._input(s, *wide) for s in layout.strides])
        made = SymbolicLayout(shape, strides, layout.dtype, layout.device, layout.contiguous)
        known = self.given.get(source.address)
        owner = self._memory(source.address & LINE) if known is None else known.owner
        found = DeviceArray(owner.address, made, owner, source.writeable)
        self.given.setdefault(source.address, found)
        return found

    def _input(self, value: int, *bounds: int) -> Any:
        self.inputs += 1
        return self.trace.input(self.inputs - 1, value, *bounds)

    def _memory(self, bits: int = 0) -> Memory:
        self.memories += 1
        return Memory(self.memories, bits)

    def empty(self, shape: tuple[Any, ...], dtype: np.dtype, device: Device) -> DeviceArray:
        """Memory that a repetition takes."""
        layout: Layout = SymbolicLayout(shape, None, dtype, device)
        owner = self._memory()
        self.allocation(owner, layout.nbytes)
        return DeviceArray(owner.address, layout, owner)

    def enqueue(self, launcher: Any, grid: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """Record a launch: its code is found as ever.

        Raises:
            Unsuitable: it names a stream, or works on memory in place in another way.
        """
        values, _, mode, where, stream = launcher.bound(args, kwargs)
        if stream is not None:
            raise Unsuitable("a launch on a stream of its own")
        if isinstance(grid, Over) and grid.size == 0:
            return
        exe, cubes, leaves, _, ordinal = launcher.find(grid, mode, where, values)
        lay_out = getattr(exe, "symbolic", None)
        if lay_out is None:
            raise Unsuitable("a device without symbolic launches")
        self.launch(SymbolicLaunch(exe, lay_out(leaves, cubes, ordinal)), leaves)
