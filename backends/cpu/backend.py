"""What this CPU can do, and executables for it."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

from cubepy.backends.cpu import argument_key, replay
from cubepy.backends.cpu import compile as native
from cubepy.backends.cpu.amx import TILES, tiles_granted
from cubepy.backends.cpu.emit import emit
from cubepy.backends.cpu.run import CpuRunner
from cubepy.backends.cpu.threads import choice
from cubepy.backends.llvm.machine_code import host, load_object
from cubepy.backends.llvm.names import OPS
from cubepy.backends.llvm.printing import Emitted
from cubepy.compiler.ir import Program
from cubepy.compiler.signature import Spec
from cubepy.config import config
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Dim3
from cubepy.runtime import cache as disk
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.inspection import Inspection
from cubepy.runtime.stats import counters

UNITS = 256


class CpuReplay:
    """Machine code that replays launches (see `HostReplay`)."""

    def entry(self) -> Any:
        """`replay(address of a table, tuple of arrays)`, or None."""
        return replay.entry()

    def key(self) -> Any:
        """What writes a short key for a tuple of arguments, or None."""
        return argument_key.layouts()

    def table(self) -> replay.HostTable:
        """What the machine code reads, to be filled."""
        return replay.HostTable()

    def driver(self) -> Any:
        """What runs a launch on all threads."""
        return choice.driver()


class CpuBackend:
    """Runs kernels on the CPU's cores."""

    name = "cpu"
    replay = CpuReplay()

    def count(self) -> int:
        """There is one CPU."""
        return 1

    def properties(self, ordinal: int = 0) -> DeviceProperties:
        """What the CPU can do."""
        return _properties()

    def units(self, elements: int) -> tuple[int, int]:
        """Cubes of 256 units, however few have work: their number is part of the code, a size must
        not be.
        """
        return max(1, -(-elements // UNITS)), UNITS

    def executable(
        self, kernel: Kernel, program: Program, specs: tuple[Spec, ...], in_place: bool
    ) -> CpuExecutable:
        """Machine code for a program, from the cache if it is there."""
        return CpuExecutable(program, in_place)


class CpuExecutable:
    """Generated code, loaded into the process."""

    def __init__(self, program: Program, in_place: bool) -> None:
        self.program, self.noalias = program, not in_place
        self.emitted: Emitted = emit(program, _reserved())
        options = f"noalias={self.noalias} fast_math={sorted(program.fast_math)}"
        self.key = disk.digest(
            self.emitted.text, options, repr(self.emitted.parameters), native.versions()
        )
        self.symbol = f"cubepy_{program.name}_{self.key[:16]}"
        if config.debug >= 4:
            print(self.emitted.text, file=sys.stderr)
        code = disk.read(self.key)
        if code is not None:
            counters.loaded += 1
        else:
            code = self.translate()[0]
            disk.write(self.key, code)
            for written in (replay.entry, argument_key.layouts):
                written()  # what the second call needs, in the cache now: LLVM is at work anyway
        self.entry = load_object(code, self.symbol)

    def translate(self) -> tuple[bytes, str]:
        """Compile the generated source."""
        path = disk.write_source(self.key, self.emitted.text)
        counters.compiled += 1
        out: tuple[bytes, str] = native.compile_object(
            path, self.emitted, self.symbol, self.program.fast_math, self.noalias
        )
        return out

    def prepare(self, leaves: list[Any], values: tuple, cubes: Dim3, ordinal: int = 0) -> CpuRunner:
        """Lay out a launch."""
        return CpuRunner(self, leaves, cubes)

    def inspect(self) -> Inspection:
        """The generated Python, its LLVM IR and assembly."""
        return Inspection(self.emitted.text, self._llvm, self._assembly)

    def _llvm(self) -> str:
        return self.translate()[1]

    def _assembly(self) -> str:
        from cubepy.backends.cpu.lowering import disassemble

        return disassemble(self._llvm().encode())


@cache
def _reserved() -> frozenset[str]:
    """Names that generated code uses, so that variables must not hide them."""
    return frozenset(OPS) | {
        "first",
        "last",
        "cubes_x",
        "cubes_y",
        "cubes_z",
        "err",
        "cube",
        "cube_x",
        "cube_y",
        "cube_z",
        "unit",
        "unit_x",
        "unit_y",
        "unit_z",
        "INF",
        "NAN",
        "kernel",
        "range",
    }


@cache
def _properties() -> DeviceProperties:
    name, features = host()
    on = {f[1:] for f in features.split(",") if f.startswith("+")}
    wide = "avx512f" in on
    return DeviceProperties(
        backend="cpu",
        name=name,
        cores=choice.threads(),
        max_units=4096,
        register_bytes=64 if wide else (32 if "avx" in on else 16),
        vector_registers=32 if wide or "neon" in on else 16,
        l1_bytes=_cache_bytes("SC_LEVEL1_DCACHE_SIZE", 32 * 1024),
        l2_bytes=_cache_bytes("SC_LEVEL2_CACHE_SIZE", 1024 * 1024),
        features=frozenset(
            n
            for n, f in (
                ("int8_dot", ("avx512vnni", "avxvnni")),
                ("bf16_dot", ("avx512bf16",)),
                ("f16c", ("f16c",)),
                ("partition", ("avx2",)),
            )
            if on & set(f)
        )
        | ({"tiles"} if TILES <= on and tiles_granted() else set()),
    )


def _cache_bytes(name: str, default: int) -> int:
    try:
        return os.sysconf(name) or default
    except (ValueError, OSError, AttributeError):  # the system does not tell
        return default
