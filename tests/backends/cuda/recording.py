"""GPUs that keep the code of what is launched on them and run nothing: what the host chooses can be
compiled and read.

Memory is the host's and stays zero, so a function whose host part looks at results sees zeros.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from cubepy.backends.cuda.backend import CudaBackend, offline
from cubepy.backends.cuda.codegen.compile import Architecture, Code
from cubepy.backends.gpu.code import aligned_rows
from cubepy.backends.gpu.printing import WIDEST
from cubepy.runtime import device as devices
from cubepy.runtime.memory import layout
from tests.pretend import PretendGpu

ORDINALS = {"sm_80": 70, "sm_90a": 71}
EMULATED = 72
"""Of the devices; no machine has so many, so that nothing prepared for them is ever launched on a
real one. The device of the emulator (`emulator/device.py`) has its own: launchers keep prepared
launches by device, and those of one that only notes them would be found and run nothing.
"""
ARCHITECTURES = {n: name for name, n in ORDINALS.items()} | {EMULATED: "sm_90a"}


class RecordingBackend(CudaBackend):
    """The devices "cuda:70" (Ampere), "cuda:71" and "cuda:72" (Hopper)."""

    def __init__(self) -> None:
        self.gpu: Any = PretendGpu()
        self.launches: list[tuple[Any, Code]] = []

    def count(self) -> int:
        return 1 + max(ARCHITECTURES)

    def missing(self) -> str:
        return ""

    def properties(self, ordinal: int = 0) -> Any:
        return offline(ARCHITECTURES[ordinal])

    def executable(self, kernel: Any, program: Any, specs: Any, in_place: bool) -> Any:
        return Recorded(kernel, program, in_place)


BACKEND = RecordingBackend()


class Recorded:
    """An executable that notes what is launched."""

    def __init__(self, kernel: Any, program: Any, in_place: bool) -> None:
        self.kernel, self.program, self.in_place = kernel, program, in_place
        self.known: dict[Any, Code] = {}

    def prepare(self, leaves: list[Any], values: tuple, cubes: Any, ordinal: int = 0) -> Any:
        aligned = not any(getattr(leaf, "address", 0) % WIDEST for leaf in leaves)
        key = aligned, aligned_rows(self.program, leaves, aligned)
        if key not in self.known:
            architecture = Architecture.of(self.program.properties.architecture.replace(".", ""))
            self.known[key] = Code(self.program, architecture, self.in_place, *key)
        return Note(self.kernel, self.known[key])


class Note:
    """A launch that runs nothing."""

    def __init__(self, kernel: Any, code: Code) -> None:
        self.kernel, self.code = kernel, code

    def run(self, leaves: Any, values: Any, stream: Any = None) -> None:
        BACKEND.launches.append((self.kernel, self.code))

    bound = run

    def quick(self, *_: Any) -> None:
        """There is no quick launch."""


@contextlib.contextmanager
def recording(architecture: str, ordinal: int | None = None) -> Iterator[list[tuple[Any, Code]]]:
    """Make the devices exist, the one of this architecture (or ordinal) the current one; gives the
    list of launches, kernel and code.
    """
    import cubepy as cb

    known = devices.backend_named
    with pytest.MonkeyPatch.context() as m:
        m.setattr(devices, "backend_named", lambda name: BACKEND if name == "cuda" else known(name))
        m.setattr(layout, "devices_seen", set())  # a later `cb.sync` waits for none of them
        BACKEND.launches = []
        with cb.use(f"cuda:{ORDINALS[architecture] if ordinal is None else ordinal}"):
            yield BACKEND.launches
