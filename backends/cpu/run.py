"""Laying out and running launches: the argument block, serial and parallel runs, reported
faults.
"""

from __future__ import annotations

import ctypes
import math
import struct
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.backends.cpu.quick import launch_of
from cubepy.backends.cpu.threads import choice
from cubepy.config import config
from cubepy.errors import KernelAssertionError, OutOfBoundsError
from cubepy.lang.grid import Dim3
from cubepy.runtime.memory.address import address

TRIALS = 3  # short runs in a row after which a launch on few elements stays on one thread
_FLOAT, _WORD = struct.Struct("=d"), struct.Struct("=q")
_prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_callable = lru_cache(4096)(_prototype)  # of the address of code


class CpuRunner:
    """A launch whose argument block is laid out: shapes and strides are in it, pointers come at
    every run (`plain` is the block without them).

    The executable gives `entry` (the address of its code), `program`, `parts` of a cube that run
    for themselves, and `sites` (what can fail).
    """

    def __init__(self, exe: Any, leaves: list[Any], cubes: Dim3) -> None:
        self.exe = exe
        self.cubes = math.prod(cubes) * exe.parts  # or parts of them, where they have some
        self.entry = _callable(exe.entry)
        slots: list[tuple[int, bool, bool]] = []  # slot, is an array, is a float
        words: list[Any] = [*cubes, 0]
        has_floats = False
        for value, argument in zip(leaves, exe.program.arguments, strict=True):
            if argument.mem is not None:
                slots.append((len(words), True, False))
                words.append(0)
                words += value.shape
                size = value.itemsize
                words += [s // size for s in value.strides]
            else:
                assert argument.scalar is not None
                is_float = argument.scalar.dtype.is_float
                slots.append((len(words), False, is_float))
                has_floats |= is_float
                words.append(0)
        self.slots = slots
        self.keep: Any = None
        self.plain = words
        self.block = (ctypes.c_int64 * len(words))(*words)
        self.floats: Any = self.seen_as_floats() if has_floats else None
        self.at = ctypes.addressof(self.block)
        self.faults = (ctypes.c_int64 * 3)() if exe.sites else None
        if self.faults is not None:
            words[3] = self.block[3] = ctypes.addressof(self.faults)
        several = self.cubes > 1 and choice.threads() > 1
        elements = sum([v.size for v in leaves if isinstance(v, np.ndarray)]) if several else 0
        self.parallel = several and elements >= config.serial_elements
        self.trials = TRIALS if several and not self.parallel and config.serial_us else 0

    def seen_as_floats(self) -> Any:
        """The block as floats, which are there where it has some."""
        return (ctypes.c_double * len(self.block)).from_buffer(self.block)

    @property
    def untried(self) -> bool:
        """Whether no run has told yet that one thread is enough, or that more pay."""
        return self.trials == TRIALS

    def fill(self, leaves: list[Any]) -> None:
        """Put pointers and numbers into the block."""
        block = self.block
        for value, (slot, is_array, is_float) in zip(leaves, self.slots, strict=True):
            if is_array:
                block[slot] = address(value)
            elif is_float:
                self.floats[slot] = value
            else:
                block[slot] = _wrap(int(value))

    def run(self, leaves: list[Any], values: tuple, stream: Any = None) -> None:
        """Run with these leaves."""
        self.fill(leaves)
        self.go()

    def go(self) -> None:
        """Run with what the block holds."""
        if self.parallel:
            self.share(0)
        elif self.trials:
            self.trial()
        else:
            self.entry(0, self.cubes, self.at)
        if self.faults is not None and self.faults[0]:
            self.report()

    def chunks(self) -> int:
        """The pieces that threads take."""
        return min(self.cubes, choice.threads() * choice.CHUNKS_PER_THREAD)

    def share(self, done: int) -> None:
        """Run all chunks but the first `done` on all threads."""
        driver = choice.driver()
        if driver.lock is None:
            driver.run(self.exe.entry, self.cubes, self.chunks(), choice.threads(), self.at, done)
        else:
            with driver.lock:
                driver.run(
                    self.exe.entry, self.cubes, self.chunks(), choice.threads(), self.at, done
                )

    def trial(self) -> None:
        """Run a launch on few elements: the first chunk tells how long the rest takes."""
        chunks = self.chunks()
        first = self.cubes // chunks
        start = time.perf_counter_ns()
        self.entry(0, first, self.at)
        left = (time.perf_counter_ns() - start) * (chunks - 1)
        if left > config.serial_us * 1000:
            self.parallel, self.trials = True, 0
            self.share(1)
        else:
            self.trials -= 1
            self.entry(first, self.cubes, self.at)

    def report(self) -> None:
        """Raise what the kernel reported."""
        assert self.faults is not None
        number, index, length = self.faults
        self.faults[0] = 0
        site = self.exe.sites[number - 1]
        name = self.exe.program.name
        if site.kind == "assert":
            raise KernelAssertionError(f"in {name}: {site.message}", location=site.location)
        raise OutOfBoundsError(
            f"{name} accesses index {index} of {site.array!r}, whose length is {length}",
            location=site.location,
            hint=f"guard it with: if i < {site.array}.size",
        )

    def twin(self, leaves: list[Any]) -> CpuRunner:
        """The same launch with an argument block of its own, filled with these leaves; it does not
        keep them alive.
        """
        twin = CpuRunner.__new__(CpuRunner)
        twin.__dict__.update(self.__dict__)
        size = len(self.block)
        twin.block = (ctypes.c_int64 * size)(*self.block)
        twin.floats = None if self.floats is None else twin.seen_as_floats()
        twin.at = ctypes.addressof(twin.block)
        twin.fill(leaves)
        return twin

    def words(self, leaves: list[Any], later: Sequence[Any]) -> list[int]:
        """The block filled with these leaves.

        Args:
            leaves: of a launch.
            later: what comes later of arrays; None for what is there now.
        """
        words: list[int] = self.plain.copy()
        for value, (slot, is_array, is_float), comes in zip(leaves, self.slots, later, strict=True):
            if comes is not None:
                continue
            if is_array:
                words[slot] = address(value)
            elif is_float:
                words[slot] = _bits(value)
            else:
                words[slot] = _wrap(int(value))
        return words

    def step(self, begin: int) -> tuple[int, ...]:
        """What machine code needs to run this, when the block begins at a word of its own (see
        `replay`).
        """
        faults = 0 if self.faults is None else ctypes.addressof(self.faults)
        chunks = self.chunks() if self.parallel else 0
        return self.exe.entry, self.cubes, begin, chunks, choice.threads(), faults

    def quick(self, positions: Any, outputs: Any, extents: Any) -> Any:
        """A function of (values, stream) that launches, or None when only the general path can."""
        return launch_of(self, positions, outputs, extents)

    def bound(self, leaves: list[Any], values: tuple, stream: Any = None) -> Callable[[], None]:
        """A function that runs with these leaves."""
        twin = self.twin(leaves)
        twin.keep = leaves
        if twin.parallel or twin.trials or twin.faults is not None:
            return twin.go
        entry, cubes, at = twin.entry, twin.cubes, twin.at
        return lambda _alive=twin: entry(0, cubes, at)  # type: ignore[misc]


def _bits(value: float) -> int:
    """A float as the signed number with the same bits."""
    return int(_WORD.unpack(_FLOAT.pack(value))[0])


def _wrap(value: int) -> int:
    """An unsigned 64-bit number as the signed one with the same bits."""
    return value - (1 << 64) if value >= 1 << 63 else value
