"""The registers of a wave, and the cube that it belongs to."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.backends.hip.emulator.memory import Shared
from tests.backends.hip.emulator.operands import (
    EXEC,
    EXECZ,
    M32,
    M64,
    NULL,
    PRIVATE_BASE,
    SCC,
    SHARED_BASE,
    SPECIAL,
    TRAP,
    VCC,
    VCCZ,
    Operand,
    constant,
)
from tests.backends.hip.emulator.program import Program
from tests.backends.hip.emulator.registers import REMEMBERED, Writer, reader, views_of, writer

if TYPE_CHECKING:
    from tests.backends.hip.emulator.gpu import Gpu

VECTORS, SCALARS = 256, 128
SHARED_APERTURE, PRIVATE_APERTURE = 0x10000, 0x20000
"""High words of addresses that mean shared and private memory."""
GARBAGE = 0xA5
LANE = {size: np.arange(size) for size in (32, 64)}
_masks: dict[int, dict[int, np.ndarray]] = {32: {}, 64: {}}
_writers: dict[tuple[object, ...], Writer] = {}


@dataclass
class Cube:
    """A cube of a launch: the address of its arguments, its position, its units."""

    arguments: int
    position: tuple[int, int, int]
    units: tuple[int, int, int]
    shared: Shared


class Wave:
    """A wave: `v` and `a` are vector registers (rows of lanes), `s` scalar ones; `on` says which
    lanes run.
    """

    def __init__(
        self, program: Program, gpu: Gpu, cube: Cube, number: int, units: tuple[int, int]
    ) -> None:
        first, count = units
        self.program, self.gpu, self.cube, self.number = program, gpu, cube, number
        self.size = program.wave
        self.v = self._bank()
        self.a = self._bank() if gpu.major == 9 else self.v
        self.views = views_of((self.v, self.a))
        self.s: list[int] = gpu.garbage(SCALARS).tolist()
        self.lane = LANE[self.size]
        self.scc = self.pc = 0
        self.index: tuple[int, bool, bool] | None = None
        self.s[EXEC], self.s[EXEC + 1] = (1 << min(count, 32)) - 1, (1 << max(count - 32, 0)) - 1
        self._start(first)
        private = max(1, program.descriptor.get("private_segment_fixed_size", 0))
        self.private = np.full((self.size, private), GARBAGE, np.uint8)
        self._masked()

    def _bank(self) -> np.ndarray:
        return self.gpu.garbage(VECTORS * self.size).reshape(VECTORS, self.size).copy()

    def _start(self, first: int) -> None:
        """The registers that a wave begins with, as its descriptor asks for them."""
        has, at, arguments = self.program.descriptor, 0, self.cube.arguments
        buffers = (("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2))
        at += sum(n * has.get(f"user_sgpr_{name}", 0) for name, n in buffers)
        if has.get("user_sgpr_kernarg_segment_ptr"):
            self.s[at], self.s[at + 1] = arguments & M32, arguments >> 32
            at += 2
        others = (("dispatch_id", 2), ("flat_scratch_init", 2), ("private_segment_size", 1))
        at += sum(n * has.get(f"user_sgpr_{name}", 0) for name, n in others)
        offset = has.get("user_sgpr_kernarg_preload_offset", 0)
        for k in range(has.get("user_sgpr_kernarg_preload_length", 0)):
            self.s[at] = ctypes.c_uint32.from_address(arguments + 4 * (k + offset)).value
            at += 1
        x, y, z = self.cube.position
        if self.gpu.major >= 12:
            self.s[TRAP + 9], self.s[TRAP + 7] = x, y | z << 16
        else:
            at = has.get("user_sgpr_count", at)
            for axis, n in zip("xyz", (x, y, z), strict=True):
                if has.get(f"system_sgpr_workgroup_id_{axis}", int(axis == "x")):
                    self.s[at] = n
                    at += 1
        along_x, along_y, _ = self.cube.units
        unit = first + self.lane
        packed = unit % along_x | unit // along_x % along_y << 10
        self.v[0] = (packed | unit // (along_x * along_y) << 20).astype(np.uint32)

    def _masked(self) -> None:
        self.running = (self.s[EXEC] | self.s[EXEC + 1] << 32) & ((1 << self.size) - 1)
        self.on = self.lanes_of(self.running)
        self.full = self.running == (1 << self.size) - 1

    def bits(self, mask: np.ndarray) -> int:
        """A mask of lanes as a number."""
        return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")

    def lanes_of(self, word: int) -> np.ndarray:
        """A number as a mask of lanes, which is not to be written to."""
        known = _masks[self.size]
        found = known.get(word)
        if found is None:
            if len(known) >= REMEMBERED:
                known.clear()
            raw = np.frombuffer((word & M64).to_bytes(8, "little"), np.uint8)
            found = np.unpackbits(raw, bitorder="little")[: self.size].astype(bool)
            found.flags.writeable = False
            known[word] = found
        return found

    @property
    def vcc(self) -> int:
        """The mask that comparisons leave."""
        return self.s[VCC] | (self.s[VCC + 1] << 32 if self.size == 64 else 0)

    def scalar(self, o: Operand, size: int | None = None) -> int:
        """A scalar operand of so many words."""
        n = size or o.size
        if o.kind == "s" and o.at not in SPECIAL:
            s, at = self.s, o.at
            return s[at] if n == 1 else sum(s[at + k] << 32 * k for k in range(n))
        if o.kind == "k":
            if isinstance(o.value, float):
                return int(constant(o.value, "u64" if n == 2 else "u32"))
            return int(o.value) & (M64 if n == 2 else M32)
        if o.kind == "x":
            symbol, half = o.value
            address = self.program.address(symbol)
            return address >> (32 if half == "hi" else 0) & M32
        assert o.kind == "s", "a vector register where a scalar belongs"
        return {
            NULL: 0,
            SCC: self.scc,
            VCCZ: int(not self.vcc),
            EXECZ: int(self.running == 0),
            SHARED_BASE: SHARED_APERTURE << 32 if n == 2 else 0,
            PRIVATE_BASE: PRIVATE_APERTURE << 32 if n == 2 else 0,
        }[o.at]

    def put_scalar(self, o: Operand, value: int, size: int | None = None) -> None:
        """Set a scalar register."""
        if o.at == NULL:
            return
        n = size or o.size
        for k in range(n):
            self.s[o.at + k] = value >> 32 * k & M32
        if o.at <= EXEC + 1 and o.at + n > EXEC:
            self._masked()

    def bank(self, o: Operand) -> np.ndarray:
        """The registers that a vector operand is one of."""
        return self.v if o.kind == "v" else self.a

    def raw(self, o: Operand, words: int) -> np.ndarray:
        """The bits of an operand in every lane, as u32 or u64."""
        if o.kind in "va":
            bank = self.bank(o)
            if words == 1:
                return bank[o.at]
            return bank[o.at].astype(np.uint64) | bank[o.at + 1].astype(np.uint64) << np.uint64(32)
        return np.full(self.size, self.scalar(o, words), np.uint64 if words == 2 else np.uint32)

    def get(self, o: Operand, kind: str, half: int = 0) -> np.ndarray:
        """An operand in every lane, as numbers of a kind (see `registers.reader`)."""
        found = o.readers.get((kind, half))
        if found is None:
            found = o.readers[kind, half] = reader(o, kind, half)
        return np.asarray(found(self))

    def put(
        self,
        o: Operand,
        value: np.ndarray,
        kind: str,
        half: int | None = None,
        on: np.ndarray | None = None,
        clear: bool = False,
    ) -> None:
        """Set a vector register in the lanes that run, or in `on` (see `registers.writer`)."""
        found = _writers.get((o.kind, o.at, o.half, kind, half, clear))
        if found is None:
            found = _writers[o.kind, o.at, o.half, kind, half, clear] = writer(o, kind, half, clear)
        found(self, value, self.on if on is None else on)
