"""GPUs that keep the code of what is launched on them and run nothing: what the host chooses can be
compiled and read.

Memory is the host's and stays zero, so a function whose host part looks at results sees zeros.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

import cubepy as cb
from cubepy.backends.gpu.code import aligned_rows
from cubepy.backends.gpu.printing import WIDEST
from cubepy.runtime import device as devices
from cubepy.runtime.memory import layout
from tests.pretend import PretendGpu


class Recording:
    """Mixed into a vendor's backend: its devices, by ordinal, are of these architectures."""

    name: str
    codes: Any
    architectures: ClassVar[dict[int, str]]
    launches: list[tuple[Any, Any]]

    def __init__(self) -> None:
        self.gpu: Any = PretendGpu()
        self.launches = []

    def count(self) -> int:
        return 1 + max(self.architectures)

    def missing(self) -> str:
        return ""

    def architecture(self, properties: Any) -> Any:
        """What code is made for."""
        raise NotImplementedError

    def executable(self, kernel: Any, program: Any, specs: Any, in_place: bool) -> Any:
        return Recorded(self, kernel, program, in_place)


class Recorded:
    """An executable that notes what is launched."""

    def __init__(self, backend: Recording, kernel: Any, program: Any, in_place: bool) -> None:
        self.backend, self.kernel, self.program = backend, kernel, program
        self.in_place = in_place
        self.known: dict[Any, Any] = {}

    def prepare(self, leaves: list[Any], values: tuple, cubes: Any, ordinal: int = 0) -> Any:
        aligned = not any(getattr(leaf, "address", 0) % WIDEST for leaf in leaves)
        key = aligned, aligned_rows(self.program, leaves, aligned)
        if key not in self.known:
            architecture = self.backend.architecture(self.program.properties)
            self.known[key] = self.backend.codes(self.program, architecture, self.in_place, *key)
        return Note(self.backend, self.kernel, self.known[key])


class Note:
    """A launch that runs nothing."""

    def __init__(self, backend: Recording, kernel: Any, code: Any) -> None:
        self.backend, self.kernel, self.code = backend, kernel, code

    def run(self, leaves: Any, values: Any, stream: Any = None) -> None:
        self.backend.launches.append((self.kernel, self.code))

    bound = run

    def quick(self, *_: Any) -> None:
        """There is no quick launch."""


@contextlib.contextmanager
def recorded(backend: Any, ordinal: int) -> Iterator[list[tuple[Any, Any]]]:
    """Make the devices of a backend exist, one of them the current one; gives the list of
    launches, kernel and code.
    """
    known = devices.backend_named
    with pytest.MonkeyPatch.context() as m:
        m.setattr(
            devices, "backend_named", lambda name: backend if name == backend.name else known(name)
        )
        m.setattr(layout, "devices_seen", set())  # a later `cb.sync` waits for none of them
        backend.launches = []
        with cb.use(f"{backend.name}:{ordinal}"):
            yield backend.launches
