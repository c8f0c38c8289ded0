"""What this CPU can do, and executables for it."""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from cubepy.backends.cpu import argument_key, replay
from cubepy.backends.cpu import compile as native
from cubepy.backends.cpu.jobs import POOL, Job, nothing
from cubepy.backends.cpu.run import CpuRunner
from cubepy.backends.cpu.threads import choice
from cubepy.backends.llvm.machine_code import host, load_object
from cubepy.backends.llvm.object_loader import Laid
from cubepy.backends.llvm.processes import jobs
from cubepy.compiler.program import Program
from cubepy.compiler.signature import Spec
from cubepy.config import config
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Dim3, cubes_over
from cubepy.runtime import cache as disk
from cubepy.runtime.ahead import walked
from cubepy.runtime.ahead.waiting import WAIT
from cubepy.runtime.deep_stack import with_room
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.inspection import Inspection
from cubepy.runtime.stats import counters

if TYPE_CHECKING:
    from cubepy.backends.cpu.emit import CpuText
    from cubepy.backends.llvm.ranges import Sum

CACHES = "/sys/devices/system/cpu/cpu0/cache"
BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
UNITS = (256, 1, 1)
"""Units of a cube of `cb.over`, however many axes it has: a line of neighbours, which LLVM makes
lines of.
"""


VARIANTS = 4
"""Kinds of sizes for which a kernel gets code of its own: where its arrays are not as large as each
other, say.
"""
LONGEST = 2**31
MANY = 64
"""Programs that a process compiles itself before others do; LLVM keeps 100 to 230 KB of each."""
TILES = frozenset({"amx-tile", "amx-bf16", "amx-int8"})
"""LLVM's names of what `cb.tile_dot` needs."""
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
"""A system call of x86-64, what is asked of it, and for which state."""
_loading = threading.RLock()
pretended: DeviceProperties | None = None
"""The CPU that a process compiles for, if it is another one than its own; nothing can run there."""


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


class CpuBackend:
    """Runs kernels on the CPU's cores."""

    name = "cpu"
    replay = CpuReplay()

    def count(self) -> int:
        """There is one CPU."""
        return 1

    def properties(self, ordinal: int = 0) -> DeviceProperties:
        """What the CPU can do."""
        return pretended or _properties()

    def units(self, axes: tuple[int, ...]) -> tuple[Dim3, Dim3]:
        """Cubes of 256 units, however few have work: their number is part of the code, a size must
        not be.
        """
        return cubes_over(axes, UNITS), UNITS

    def executable(
        self, kernel: Kernel, program: Program, specs: tuple[Spec, ...], in_place: bool
    ) -> CpuExecutable:
        """Machine code for a program, from the cache if it is there."""
        return CpuExecutable(program, in_place)


class CpuExecutable:
    """Generated code, loaded into the process."""

    def __init__(
        self, program: Program, in_place: bool, denied: frozenset[Sum] | None = frozenset()
    ) -> None:
        self.program, self.noalias, self.denied = program, not in_place, denied
        self.others: dict[frozenset[Sum] | None, CpuExecutable] = {}
        self._laid: Laid | None = None  # code that runs is kept by who runs it: runners have this
        name = self.name_of_kept()
        known = None if name is None else walked.read(name)
        if type(known) is tuple and len(known) == 4:
            self.key, self.sites, self.assumes, self.parts = known
        else:
            self.write_text()
            if name is not None:
                walked.write(name, (self.key, self.sites, self.assumes, self.parts))

    def name_of_kept(self) -> str | None:
        """The name under which a process finds what launches need of the text that another one has
        written; None where they do not.
        """
        if self.program.kept is None:
            return None
        denied = None if self.denied is None else sorted(map(repr, self.denied))
        options = f"text noalias={self.noalias} denied={denied}"  # sources are in `kept`
        return disk.digest(self.program.kept, options, native.toolchain())

    def write_text(self) -> None:
        """Write the text, and what is known by it."""
        from cubepy.backends.cpu.emit import text_of  # loaded where something is compiled

        program = self.program
        self.emitted: CpuText = text_of(program, self.denied, not self.noalias)
        self.sites, self.assumes = self.emitted.sites, self.emitted.assumes
        self.parts = self.emitted.parts
        options = f"noalias={self.noalias} fast_math={sorted(program.fast_math)}"
        self.key = disk.digest(
            self.emitted.text, options, repr(self.emitted.parameters), native.versions()
        )

    @property
    def symbol(self) -> str:
        """The name of the code."""
        return f"cubepy_{self.program.name}_{self.key[:16]}"

    @property
    def entry(self) -> int:
        """The address of the code, which is compiled, or read from the cache, when asked for."""
        laid = self._laid
        if laid is None:
            with _loading:
                if self._laid is None:
                    self._laid = self._load()
                laid = self._laid
        return laid.entry

    def loaded(self) -> CpuExecutable:
        """This, with its code in memory."""
        assert self.entry
        return self

    def __getattr__(self, name: str) -> Any:
        if name != "emitted":
            raise AttributeError(name)
        self.write_text()
        return self.emitted

    def _load(self) -> Laid:
        if config.debug >= 4:
            print(self.emitted.text, file=sys.stderr)
        code = disk.read(self.key)
        if code is None and "emitted" not in vars(self):
            self.write_text()  # the code is gone of which only the name was kept
            code = disk.read(self.key)
        if jobs.found is not None:
            if code is None:
                jobs.found.setdefault(self.key, self.job())
            return Laid(nothing())
        if code is not None:
            self.count()
        else:
            with WAIT.compiling(self.program.name):
                code = self.compiled_elsewhere() or self.compiled_here()
        laid = load_object(code, self.symbol)
        if self.program.kept is not None:  # its text can be written again
            walked.let_go(self.program)
            vars(self).pop("emitted", None)
        return laid

    def count(self) -> None:
        """The code was in the cache: it was compiled for this process, or earlier."""
        if self.key in POOL.made:
            POOL.made.discard(self.key)
            counters.compiled += 1
        else:
            counters.loaded += 1

    def compiled_here(self) -> bytes:
        """The code, compiled now; in the cache from now on."""
        code: bytes = self.translate()[0]
        disk.write(self.key, code)
        POOL.own += 1
        return code

    def compiled_elsewhere(self) -> bytes | None:
        """The code, if another process compiles it (see `foresee`): all of it from `MANY` programs
        on, since what LLVM keeps of each goes with a process alone.
        """
        if POOL.own >= MANY:
            self.foresee()
        if not POOL.settle(self.key, alone=POOL.own < MANY):
            return None
        code = disk.read(self.key)
        if code is not None:
            self.count()
        elif self.key in POOL.made:  # who has compiled it could not write it
            POOL.give_up()
        return code

    @property
    def missing(self) -> bool:
        """Whether the code is neither in memory nor in the cache, and others can compile it."""
        return (
            self._laid is None
            and config.cache
            and config.debug < 2
            and POOL.useful
            and not disk.holds(self.key)
        )

    def foresee(self) -> None:
        """The code is needed soon: let another process compile it, if it is missing."""
        if self.missing:
            POOL.add(self.job())

    def job(self) -> Job:
        """What another process needs to compile this."""
        return Job(
            self.program.name,
            self.key,
            self.emitted.text,
            tuple((p.name, p.kind, p.dtype) for p in self.emitted.parameters),
            self.symbol,
            tuple(sorted(self.program.fast_math)),
            self.noalias,
            native.versions(),
        )

    def translate(self) -> tuple[bytes, Any]:
        """Compile the generated source; gives the object code and the optimised LLVM module."""
        path = disk.write_source(self.key, self.emitted.text)
        counters.compiled += 1
        out: tuple[bytes, Any] = native.compile_object(
            path, self.emitted, self.symbol, self.program.fast_math, self.noalias
        )
        return out

    def prepare(self, leaves: list[Any], values: tuple, cubes: Dim3, ordinal: int = 0) -> CpuRunner:
        """Lay out a launch, by code whose assumptions hold for the sizes of its arrays."""
        return CpuRunner(with_room(lambda: self.code_for(leaves).loaded()), leaves, cubes)

    def code_for(self, leaves: list[Any]) -> CpuExecutable:
        """This, or what was made without the assumptions that do not hold; there are few."""
        if not self.assumes:
            return self
        sizes: dict[tuple[str, int], int] = {}
        for value, argument in zip(leaves, self.program.arguments, strict=True):
            if argument.mem is not None:
                name = argument.mem.name
                sizes |= {(name, d): n for d, n in enumerate(value.shape)} | {
                    (name, -1): value.size
                }
        broken = frozenset(a for a in self.assumes if not a.holds(sizes))
        if not broken and max(sizes.values(), default=0) < LONGEST:
            return self
        denied = None if max(sizes.values()) >= LONGEST else (self.denied or frozenset()) | broken
        with _loading:
            if denied not in self.others:
                if len(self.others) >= VARIANTS:
                    denied = None
                if denied not in self.others:
                    self.others[denied] = CpuExecutable(self.program, not self.noalias, denied)
            other = self.others[denied]
        return other.code_for(leaves)

    def inspect(self) -> Inspection:
        """The generated Python, its LLVM IR and assembly."""
        return Inspection(self.emitted.text, self._llvm, self._assembly)

    def _llvm(self) -> str:
        return str(self.translate()[1])

    def _assembly(self) -> str:
        from cubepy.backends.cpu.lowering import disassemble

        return disassemble(self._llvm().encode())


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
        l1_bytes=cache_bytes(1, 32 * 1024),
        l2_bytes=cache_bytes(2, 1024 * 1024),
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
        | ({"byte_pairs"} if "ssse3" in on and not on & {"avx512vnni", "avxvnni"} else set())
        | ({"tiles"} if TILES <= on and tiles_granted() else set()),
    )


def cache_bytes(level: int, default: int, folder: str = CACHES) -> int:
    """Bytes of a core's data cache of a level, by what Linux tells of it; elsewhere the default."""
    for n in range(8):
        texts = []
        try:
            for what in ("level", "type", "size"):
                with open(f"{folder}/index{n}/{what}") as file:
                    texts.append(file.read().strip())
        except OSError:  # there are no more
            break
        found, kind, size = texts
        if found == str(level) and kind != "Instruction" and size[:-1].isdigit():
            return int(size[:-1]) * BYTES.get(size[-1], 0) or default
    return default


@cache
def tiles_granted() -> bool:
    """Whether this process, with all its threads, may use the registers of an Intel CPU's matrix
    unit: they are large, and Linux keeps them for who asks. The first call asks.

    Source: the Linux kernel's documentation, arch/x86/xstate.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if not sys.platform.startswith("linux"):
        return sys.platform == "win32"  # which gives them to whoever uses them
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
