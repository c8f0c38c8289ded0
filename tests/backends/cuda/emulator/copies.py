"""Copies that run beside the units' own work: each lands as late as it may, or at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.cuda.emulator.arithmetic import tf32_of
from tests.backends.cuda.emulator.matrices import permuted
from tests.backends.cuda.emulator.memory import Place

Copy = Callable[[], None]


class Groups:
    """Work of one unit under way: groups in order, the last of them not yet committed."""

    def __init__(self) -> None:
        self.groups: list[list[Copy]] = [[]]

    def begin(self, copy: Copy) -> None:
        self.groups[-1].append(copy)

    def commit(self) -> None:
        self.groups.append([])

    def wait(self, pending: int) -> None:
        """Until at most so many groups are under way."""
        while len(self.groups) - 1 > pending:
            for copy in self.groups.pop(0):
                copy()


class Engine:
    """The copy engine of a cube."""

    def __init__(self, shared: np.ndarray, chance: random.Random, late: float) -> None:
        self.shared, self.chance, self.late = shared, chance, late
        self.under_way: list[Copy] = []

    def start(self, groups: Groups, copy: Copy) -> None:
        """A copy that a unit waits for by its groups."""
        groups.begin(copy) if self.chance.random() < self.late else copy()

    def copy_async(
        self, groups: Groups, to: Place, source: Place, i: Any, j: Any, valid: Any, nbytes: int
    ) -> None:
        """Up to 16 bytes from an array to shared memory, or zeros."""
        count = nbytes // to.dtype.itemsize
        assert to.byte(i) % nbytes == 0, "the target of a copy is not aligned"
        target = to.part(i, count)
        part = (
            source.part(j, nbytes // source.dtype.itemsize).view(to.dtype)
            if valid
            else np.zeros(count, to.dtype)
        )
        assert not valid or int(j) * source.dtype.itemsize % nbytes == 0, (
            "the source of a copy is not aligned"
        )
        self.start(groups, lambda: target.__setitem__(slice(None), part))

    def tma_load(
        self, cubes: list[Any], signal: int, to: Place, source: Any, i: Any, coords: tuple[Any, ...]
    ) -> None:
        """A box of an array, zeros beyond it, to its place in the shared memory of each of the
        cubes, at whose barriers (at byte `signal`) its bytes arrive.
        """
        whole = np.zeros(source.box, source.array.dtype)
        inside, at = box_parts(source, coords)
        whole[at] = source.array[inside]
        data = (tf32_of(whole, even=True) if source.tf32 else whole).reshape(-1).view(np.uint8)
        where = self.tile(to, i, source.swizzle, data.size)

        def land() -> None:
            for cube in cubes:
                assert cube.alive, "a copy lands in shared memory after its cube has ended"
                cube.shared[where] = data
                cube.barriers[signal].update(0, -data.size)

        self.under_way.append(land) if self.chance.random() < self.late else land()

    def tma_store(
        self, groups: Groups, source: Place, target: Any, i: Any, coords: tuple[Any, ...]
    ) -> None:
        """What lies inside the array of a tile in shared memory."""
        inside, at = box_parts(target, coords)
        assert min(map(int, coords)) >= 0, "a box that is stored begins before its array"
        where = self.tile(
            source, i, target.swizzle, int(np.prod(target.box)) * target.array.itemsize
        )

        def land() -> None:
            target.array[inside] = (
                self.shared[where].view(target.array.dtype).reshape(target.box)[at]
            )

        self.start(groups, land)

    @staticmethod
    def tile(p: Place, i: Any, swizzle: int, nbytes: int) -> np.ndarray:
        """The bytes of a tile, in their order in the array."""
        start = p.byte(i)
        assert start % (1024 if swizzle else 128) == 0, "a tile starts at the wrong byte"
        return np.asarray(permuted(start + np.arange(nbytes), swizzle))

    def some_land(self, now: bool) -> bool:
        """Perhaps (or surely: `now`) let one copy land, mostly the oldest; whether one did."""
        if not self.under_way or not (now or self.chance.random() < 0.5):
            return False
        old = self.chance.random() < 0.7
        self.under_way.pop(0 if old else self.chance.randrange(len(self.under_way)))()
        return True


def box_parts(source: Any, coords: tuple[Any, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where a box lies in its array, and which part of the box that is."""
    assert int(coords[-1]) * source.array.itemsize % 16 == 0, "a box begins at the wrong byte"
    inside, at = [], []
    for c, size, n in zip(map(int, coords), source.box, source.array.shape, strict=True):
        low, high = min(max(0, c), n), min(max(0, c + size), n)
        inside.append(slice(low, high))
        at.append(slice(low - c, high - c) if high > low else slice(0, 0))
    return tuple(inside), tuple(at)
