"""What kernels may touch: allocations of the host's memory, and the shared memory of a cube."""

from __future__ import annotations

import bisect

import numpy as np

FIRST = 4096
END_OF_ADDRESSES = 1 << 47
LEAST, MOST = np.minimum.reduce, np.maximum.reduce


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
        self._sorted: tuple[list[int], list[int]] | None = None
        self._last = (0, 0)

    def add(self, address: int, size: int) -> None:
        """Let an allocation be touched; what lay there before is gone."""
        end = address + size
        self.set([(a, b) for a, b in self.ranges if b <= address or a >= end] + [(address, end)])

    def remove(self, address: int) -> None:
        """Forget the allocation that begins here."""
        self.set([(a, b) for a, b in self.ranges if a != address])

    def set(self, ranges: list[tuple[int, int]]) -> None:
        """Let these be touched, and nothing else."""
        self.ranges, self._sorted, self._last = ranges, None, (0, 0)

    def whole(self, begin: int, end: int) -> bool:
        """Whether all bytes from one address to another lie in one allocation."""
        a, b = self._last
        if a <= begin and end <= b:
            return True
        if self._sorted is None:
            bounds = sorted(self.ranges)
            self._sorted = [a for a, _ in bounds], [b for _, b in bounds]
        starts, ends = self._sorted
        k = bisect.bisect_right(starts, begin) - 1
        if k < 0 or end > ends[k]:
            return False
        self._last = starts[k], ends[k]
        return True

    def check(self, address: np.ndarray, size: int, what: str) -> None:
        """Fail where `size` bytes at one of the addresses lie outside of every allocation."""
        if self.whole(int(LEAST(address)), int(MOST(address)) + size):
            return
        for at in address.tolist():
            if not self.whole(at, at + size):
                raise Fault(f"{what}: {size} bytes at {at:#x}, which lie in no allocation")


NOBODY, SEVERAL = -1, -2
EACH = 0x0001_0001_0001_0001
"""By which a wave's number is that of four bytes."""
SEVERAL_WORD = int(np.full(4, SEVERAL, np.int16).view(np.int64)[0])


class Shared:
    """The shared memory of a cube: garbage at first. Between two barriers no byte that a wave
    writes may be touched by another, but by atomics.

    `waves`: how many the cube has; one alone races with nobody.
    """

    def __init__(self, content: bytes, waves: int) -> None:
        self.bytes = np.frombuffer(content, np.uint8).copy()
        self.waves, size = waves, -(-len(content) // 4) * 4 if waves > 1 else 0
        self.writer, self.reader = np.full(size, NOBODY, np.int16), np.full(size, NOBODY, np.int16)
        self.writers, self.readers = self.writer.view(np.int64), self.reader.view(np.int64)
        self.by_words = True  # so far: the four bytes of a word have one reader, or several

    def barrier(self) -> None:
        """Whatever was written may be read now."""
        self.writer.fill(NOBODY)
        self.reader.fill(NOBODY)
        self.by_words = True

    def check(self, at: np.ndarray, size: int, what: str) -> None:
        """Fail where `size` bytes at one of the places are not all inside."""
        if at.size and (last := int(MOST(at))) + size > self.bytes.size:
            raise Fault(f"{what}: byte {last} of {self.bytes.size} bytes of shared memory")

    def reads(self, wave: int, at: np.ndarray, size: int, what: str) -> None:
        """A wave reads so many bytes at these places."""
        if self.waves == 1:
            return
        words, mine = _words(at, size), wave * EACH
        if words is not None and _free(self.writers[words], mine):
            known = self.readers[words]
            if _free(known, mine):
                self.readers[words] = mine
                return
            if self.by_words:
                one = (known == NOBODY) | (known == mine)
                self.readers[words] = np.where(one, mine, SEVERAL_WORD)
                return
        self.by_words = self.by_words and words is not None
        places = at[:, None] + np.arange(size)
        writer = self.writer[places]
        if ((writer != NOBODY) & (writer != wave)).any():
            raise Fault(f"{what}: reads shared memory that another wave wrote since the barrier")
        reader = self.reader[places]
        self.reader[places] = np.where((reader == NOBODY) | (reader == wave), wave, SEVERAL)

    def writes(self, wave: int, at: np.ndarray, size: int, what: str) -> None:
        """A wave writes so many bytes at these places."""
        if self.waves == 1:
            return
        words, mine = _words(at, size), wave * EACH
        if (
            words is not None
            and _free(self.writers[words], mine)
            and _free(self.readers[words], mine)
        ):
            self.writers[words] = mine
            return
        places = at[:, None] + np.arange(size)
        for other in (self.writer[places], self.reader[places]):
            if ((other != NOBODY) & (other != wave)).any():
                raise Fault(
                    f"{what}: writes shared memory that another wave uses since the barrier"
                )
        self.writer[places] = wave


def whole_words(at: np.ndarray) -> bool:
    """Whether all places are where a word of four bytes begins."""
    return not int(np.bitwise_or.reduce(at)) & 3


_STEPS = [np.arange(k).reshape(-1, 1) for k in range(5)]


def _words(at: np.ndarray, size: int) -> np.ndarray | None:
    """The words of four bytes that an access touches; None, unless it is whole ones."""
    if size % 4 or not whole_words(at):
        return None
    return (at >> 2) + _STEPS[size // 4]


def _free(users: np.ndarray, mine: int) -> bool:
    """Whether nobody, or this wave alone, has touched all bytes of words with these users."""
    return int(np.count_nonzero((users == NOBODY) | (users == mine))) == users.size
