"""Launches: the cubes of a grid one after another, the waves of a cube by turns."""

from __future__ import annotations

import ctypes
import random
from functools import lru_cache

import numpy as np

from tests.backends.hip.emulator.meaning import meaning
from tests.backends.hip.emulator.memory import Fault, Memory, Shared
from tests.backends.hip.emulator.operands import M64
from tests.backends.hip.emulator.program import BARRIER, Program
from tests.backends.hip.emulator.wave import Cube, Wave

LONGEST = 3_000_000
"""Instructions of a wave between two barriers, at most."""
BEHIND = 64
"""Bytes behind the arguments, which code may read ahead."""
GARBAGE = 1 << 17
"""Random words, of which registers begin with some."""


class TooLong(BaseException):
    """A launch has more instructions than are to be executed; nobody shall take it for an error."""


class Gpu:
    """Runs kernels; `memory` knows what they may touch.

    Attributes:
        executed: instructions of waves so far.
        left: how many more are executed, if not all.
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name, self.major = name, int(name[3:-2])
        self.random = random.Random(seed)
        self.memory = Memory()
        self.executed = 0
        self.left: int | None = None
        self._garbage = np.frombuffer(self.random.randbytes(4 * GARBAGE), np.uint32)

    def garbage(self, words: int) -> np.ndarray:
        """Random words, not to be written to."""
        first = self.random.randrange(GARBAGE - words)
        return self._garbage[first : first + words]

    def launch(
        self,
        text: str,
        words: list[int],
        cubes: tuple[int, ...],
        units: tuple[int, int, int],
        shared: int = 0,
    ) -> None:
        """Run a kernel to its end.

        Args:
            text: its assembly.
            words: its arguments.
            cubes: of the launch.
            units: of a cube.
            shared: bytes of shared memory that the launch gives a cube.

        Raises:
            Fault: what the kernel did wrong.
            NotImplementedError: an instruction that is not known.
            TooLong: there are more than `left` instructions.
        """
        program = parsed(text, self.major)
        x, y, z = (*cubes, 1, 1)[:3]
        arguments = _arguments(program, words, (x, y, z), units)
        place = ctypes.addressof(arguments)
        own = [*program.allocations(), (place, place + len(arguments))]
        for begin, end in own:
            self.memory.add(begin, end - begin)
        shared += program.descriptor.get("group_segment_fixed_size", 0)
        waves = -(-units[0] * units[1] * units[2] // program.wave)
        positions = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
        self.random.shuffle(positions)
        try:
            with np.errstate(all="ignore"):
                for position in positions:
                    memory = Shared(self.random.randbytes(shared), waves)
                    self._cube(program, Cube(place, position, units, memory))
        finally:
            for begin, _ in own:
                self.memory.remove(begin)

    def _cube(self, program: Program, cube: Cube) -> None:
        n = cube.units[0] * cube.units[1] * cube.units[2]
        starts = range(0, n, program.wave)
        live = [
            Wave(program, self, cube, k, (first, min(program.wave, n - first)))
            for k, first in enumerate(starts)
        ]
        while live:
            self.random.shuffle(live)
            waiting = [wave for wave in live if self._until_barrier(program, wave)]
            if waiting and len(waiting) != len(live):
                raise Fault("some waves of a cube ended while others wait at a barrier")
            cube.shared.barrier()
            live = waiting

    def _until_barrier(self, program: Program, wave: Wave) -> bool:
        """Run a wave to a barrier or its end; whether it waits."""
        code, count = program.code, 0
        most = LONGEST if self.left is None else min(LONGEST, self.left)
        while True:
            step = code[wave.pc]
            wave.pc += 1
            count += 1
            if count > most:
                if most < LONGEST:
                    raise TooLong
                raise Fault(f"a wave runs on and on, at {program.lines[wave.pc - 1]}")
            to = step(wave)
            if to is None:
                continue
            if to >= 0:
                wave.pc = to
            else:
                self.executed += count
                if self.left is not None:
                    self.left -= count
                return to == BARRIER


def _arguments(
    program: Program, words: list[int], cubes: tuple[int, int, int], units: tuple[int, int, int]
) -> ctypes.Array[ctypes.c_ubyte]:
    """The segment that a kernel reads: its words, and what the runtime puts behind them."""
    out = (ctypes.c_ubyte * (program.argument_bytes + 8 * len(words) + BEHIND))()
    out[: 8 * len(words)] = list(b"".join((w & M64).to_bytes(8, "little") for w in words))
    hidden = {"hidden_grid_dims": (3, 2)}
    for axis, c, u in zip("xyz", cubes, units, strict=True):
        hidden |= {f"hidden_block_count_{axis}": (c, 4), f"hidden_group_size_{axis}": (u, 2)}
        hidden[f"hidden_remainder_{axis}"] = (0, 2)
    for kind, at in program.hidden.items():
        if kind in hidden:
            value, size = hidden[kind]
            out[at : at + size] = list(value.to_bytes(size, "little"))
    return out


@lru_cache(256)
def parsed(text: str, major: int) -> Program:
    """A kernel whose lines have become functions of a wave."""
    program = Program(text)
    program.code = [meaning(program, line, major) for line in program.lines]
    return program
