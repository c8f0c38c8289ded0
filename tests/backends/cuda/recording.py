"""NVIDIA GPUs that keep the code of what is launched on them and run nothing (`gpu.recording`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

from cubepy.backends.cuda.backend import CudaBackend, offline
from cubepy.backends.cuda.codegen.compile import Architecture, Code
from tests.backends.gpu.recording import Recording, recorded

ORDINALS = {"sm_80": 70, "sm_90a": 71}
EMULATED = 72
"""Of the devices; no machine has so many, so that nothing prepared for them is ever launched on a
real one. The device of the emulator (`emulator/device.py`) has its own: launchers keep prepared
launches by device, and those of one that only notes them would be found and run nothing.
"""


class RecordingBackend(Recording, CudaBackend):
    """The devices "cuda:70" (Ampere), "cuda:71" and "cuda:72" (Hopper)."""

    name = "cuda"
    codes = Code
    architectures: ClassVar[dict[int, str]] = {n: name for name, n in ORDINALS.items()} | {
        EMULATED: "sm_90a"
    }

    def properties(self, ordinal: int = 0) -> Any:
        return offline(self.architectures[ordinal])

    def architecture(self, properties: Any) -> Any:
        return Architecture.of(properties.architecture.replace(".", ""))


BACKEND = RecordingBackend()


@contextlib.contextmanager
def recording(architecture: str, ordinal: int | None = None) -> Iterator[list[tuple[Any, Code]]]:
    """Make the devices exist, the one of this architecture (or ordinal) the current one; gives the
    list of launches, kernel and code.
    """
    with recorded(BACKEND, ORDINALS[architecture] if ordinal is None else ordinal) as launches:
        yield launches
