"""AMD GPUs that keep the code of what is launched on them and run nothing (`gpu.recording`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

from cubepy.backends.hip.backend import HipBackend, offline
from cubepy.backends.hip.codegen.architecture import KNOWN, Architecture
from cubepy.backends.hip.codegen.compile import Code
from tests.backends.gpu.recording import Recording, recorded

ORDINALS = {name: 70 + n for n, name in enumerate(KNOWN)}
"""Of the devices; no machine has so many, so that nothing prepared for them is ever launched."""


class RecordingBackend(Recording, HipBackend):
    """The devices "hip:70" and so on, one of each processor."""

    name = "hip"
    codes = Code
    architectures: ClassVar[dict[int, str]] = {ordinal: name for name, ordinal in ORDINALS.items()}

    def properties(self, ordinal: int = 0) -> Any:
        return offline(self.architectures[ordinal])

    def architecture(self, properties: Any) -> Any:
        return Architecture.of(properties.architecture)


BACKEND = RecordingBackend()


@contextlib.contextmanager
def recording(processor: str) -> Iterator[list[tuple[Any, Code]]]:
    """Make the devices exist, the one of this processor the current one; gives the list of
    launches, kernel and code.
    """
    with recorded(BACKEND, ORDINALS[processor]) as launches:
        yield launches
