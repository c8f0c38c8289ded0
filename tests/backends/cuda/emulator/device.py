"""A Hopper GPU on which whole functions of the library run: every launch is emulated, memory is the
host's.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from cubepy.runtime import device as devices
from cubepy.runtime.device import Device
from tests.backends.cuda import recording
from tests.backends.cuda.emulator.launch import run_cubes
from tests.backends.cuda.emulator.memory import Place
from tests.backends.gpu.recording import Note, Recorded
from tests.pretend import look


def words_of(array: Any) -> list[Any]:
    """An array of the device as generated code gets it: elements, lengths and strides."""
    low, high = array.layout.extent
    raw = np.frombuffer(
        (ctypes.c_uint8 * max(1, high - low)).from_address(array.address + low), np.uint8
    )
    items = raw[: high - low].view(array.dtype)
    return [
        Place(items, first=-low // array.itemsize),
        *array.shape,
        *(s // array.itemsize for s in array.strides),
    ]


class Graph:
    """What a capture records: launches, which run when it is launched."""

    current: Graph | None = None

    def __init__(self) -> None:
        self.launches: list[tuple[Launch, Sequence[Any], Any]] = []

    def begin(self) -> None:
        """From here on launches are recorded."""
        Graph.current = self

    def end(self, failed: bool) -> Graph | None:
        """They are no longer."""
        Graph.current = None
        return None if failed else self

    def launch(self, stream: Any) -> None:
        """Run what was recorded."""
        for launch, leaves, values in self.launches:
            launch.run(leaves, values)


class Launch(Note):
    """A launch that the emulator runs at once, or when a graph that records it is launched."""

    cubes: tuple[int, ...] = ()

    def run(self, leaves: Sequence[Any], values: Any, stream: Any = None) -> None:
        if Graph.current is not None:
            Graph.current.launches.append((self, leaves, values))
            return
        super().run(leaves, values)
        words: list[Any] = []
        for argument, leaf in zip(self.code.program.arguments, leaves, strict=True):
            if argument.mem is None:
                words.append(leaf)
            elif argument.mem.kind == "map":
                tiles = copy.copy(leaf)
                object.__setattr__(tiles, "array", look(leaf.array))
                words.append(tiles)
            else:
                words += words_of(leaf)
        x, y, z = (*self.cubes, 1, 1)[:3]
        run_cubes(self.code, words, (x, y, z), 0.5, 0)

    bound = run


@contextlib.contextmanager
def emulated() -> Iterator[Device]:
    """Make the device exist and the current one."""
    prepare = Recorded.prepare

    def emulating(self: Any, leaves: Any, values: Any, cubes: Any, ordinal: int = 0) -> Any:
        note = prepare(self, leaves, values, cubes, ordinal)
        if ordinal != recording.EMULATED:
            return note
        launch = Launch(note.backend, note.kernel, note.code)
        launch.cubes = tuple(cubes)
        return launch

    with pytest.MonkeyPatch.context() as m:
        m.setattr(Recorded, "prepare", emulating)
        m.setattr(recording.BACKEND.gpu, "capture", lambda ordinal: Graph(), raising=False)
        with recording.recording("sm_90a", recording.EMULATED):
            yield devices.current()
