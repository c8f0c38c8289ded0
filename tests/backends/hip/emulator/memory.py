"""What kernels may touch: allocations of the host's memory, and the shared memory of a cube."""

from __future__ import annotations

import numpy as np

FIRST = 4096
END_OF_ADDRESSES = 1 << 47


class Fault(Exception):
    """What hardware would answer with a memory fault, a hang, or silence."""


def _everything() -> np.ndarray:
    """This process's memory from its second page on."""
    whole = {
        "data": (FIRST, False),
        "shape": (END_OF_ADDRESSES - FIRST,),
        "typestr": "|u1",
        "version": 3,
    }
    return np.asarray(type("Everything", (), {"__array_interface__": whole})())


class Memory:
    """Allocations; an access to anything else is a fault."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.bytes = _everything()
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, address: int, size: int) -> None:
        """Let an allocation be touched; what lay there before is gone."""
        end = address + size
        self.set([(a, b) for a, b in self.ranges if b <= address or a >= end] + [(address, end)])

    def set(self, ranges: list[tuple[int, int]]) -> None:
        """Let these be touched, and nothing else."""
        self.ranges, self._sorted = ranges, None

    def check(self, address: np.ndarray, size: int, what: str) -> None:
        """Fail where `size` bytes at one of the addresses lie outside of every allocation."""
        if self._sorted is None:
            bounds = np.array(sorted(self.ranges), np.uint64).reshape(-1, 2)
            self._sorted = np.ascontiguousarray(bounds[:, 0]), np.ascontiguousarray(bounds[:, 1])
        starts, ends = self._sorted
        k = np.searchsorted(starts, address, "right").astype(np.int64) - 1
        bad = (k < 0) | (address + np.uint64(size) > ends[np.maximum(k, 0)])
        if bad.any():
            worst = int(address[bad.argmax()])
            raise Fault(f"{what}: {size} bytes at {worst:#x}, which lie in no allocation")


NOBODY, SEVERAL = -1, -2


class Shared:
    """The shared memory of a cube: garbage at first. Between two barriers no byte that a wave
    writes may be touched by another, but by atomics.
    """

    def __init__(self, content: bytes) -> None:
        self.bytes = np.frombuffer(content, np.uint8).copy()
        self.writer = np.full(len(content), NOBODY, np.int16)
        self.reader = np.full(len(content), NOBODY, np.int16)

    def barrier(self) -> None:
        """Whatever was written may be read now."""
        self.writer.fill(NOBODY)
        self.reader.fill(NOBODY)

    def check(self, at: np.ndarray, size: int, what: str) -> None:
        """Fail where `size` bytes at one of the places are not all inside."""
        if at.size and (at + size > self.bytes.size).any():
            raise Fault(f"{what}: byte {int(at.max())} of {self.bytes.size} bytes of shared memory")

    def reads(self, wave: int, places: np.ndarray, what: str) -> None:
        """A wave reads these bytes."""
        writer = self.writer[places]
        if ((writer != NOBODY) & (writer != wave)).any():
            raise Fault(f"{what}: reads shared memory that another wave wrote since the barrier")
        reader = self.reader[places]
        self.reader[places] = np.where((reader == NOBODY) | (reader == wave), wave, SEVERAL)

    def writes(self, wave: int, places: np.ndarray, what: str) -> None:
        """A wave writes these bytes."""
        for other in (self.writer[places], self.reader[places]):
            if ((other != NOBODY) & (other != wave)).any():
                raise Fault(
                    f"{what}: writes shared memory that another wave uses since the barrier"
                )
        self.writer[places] = wave
