"""What NVIDIA GPUs can do, and executables for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from cubepy.backends.cuda.codegen.compile import Architecture, Code
from cubepy.backends.cuda.native.driver import DRIVER
from cubepy.backends.cuda.native.module import Loadable
from cubepy.backends.cuda.run import CudaRunner
from cubepy.backends.gpu.code import aligned_rows
from cubepy.backends.gpu.gpu import NativeGpu
from cubepy.backends.gpu.printing import WIDEST
from cubepy.compiler.ir import Program
from cubepy.compiler.signature import Spec
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Dim3, cubes_over
from cubepy.runtime.ahead.waiting import WAIT
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.inspection import Inspection

UNITS: dict[int, Dim3] = {1: (256, 1, 1), 2: (32, 8, 1), 3: (32, 4, 2)}
"""Units of a cube of `cb.over`, by the number of axes."""


class CudaBackend:
    """Runs kernels on NVIDIA GPUs."""

    name = "cuda"

    def __init__(self) -> None:
        self.gpu = NativeGpu(DRIVER)

    def count(self) -> int:
        """GPUs that the driver reports; 0 without a driver."""
        return DRIVER.count()

    def missing(self) -> str:
        """Why there is no GPU; empty when there is one."""
        return DRIVER.missing()

    def properties(self, ordinal: int = 0) -> DeviceProperties:
        """What a GPU can do."""
        return _properties(ordinal)

    def units(self, axes: tuple[int, ...]) -> tuple[Dim3, Dim3]:
        """Cubes of 256 units, however few have work: their number is part of the code, a size must
        not be.
        """
        units = UNITS[len(axes)]
        return cubes_over(axes, units), units

    def executable(
        self, kernel: Kernel, program: Program, specs: tuple[Spec, ...], in_place: bool
    ) -> CudaExecutable:
        """Machine code for a program, from the cache if it is there."""
        return CudaExecutable(program, in_place)


class CudaExecutable:
    """Machine code of a program, in a variant for what is known of the arguments' alignment."""

    def __init__(self, program: Program, in_place: bool) -> None:
        self.program, self.in_place = program, in_place
        major, minor = (program.properties.architecture or "8.0").split(".")
        self.architecture = Architecture(int(major), int(minor))
        self.variants: dict[tuple[bool, frozenset[str]], Variant] = {}

    def alignment(self, leaves: Sequence[Any]) -> tuple[bool, frozenset[str]]:
        """Whether all arrays begin at multiples of 16 bytes, and which have rows that do."""
        aligned = not any(getattr(operand, "address", 0) % WIDEST for operand in leaves)
        return aligned, aligned_rows(self.program, leaves, aligned)

    def variant(self, leaves: Sequence[Any]) -> Variant:
        """The code for arguments that are aligned as these are."""
        key = self.alignment(leaves)
        found = self.variants.get(key)
        if found is None:
            with WAIT.compiling(self.program.name):
                found = self.variants[key] = Variant(self, *key)
        return found

    def prepare(
        self, leaves: list[Any], values: tuple, cubes: Dim3, ordinal: int = 0
    ) -> CudaRunner:
        """Lay out a launch."""
        return CudaRunner(self.variant(leaves), leaves, cubes, ordinal)

    def inspect(self) -> Inspection:
        """The generated Python, its LLVM IR, PTX and SASS."""
        known = next(iter(self.variants.values()), None)
        code = (
            known.code
            if known is not None
            else Code(self.program, self.architecture, self.in_place, True)
        )
        return Inspection(code.text.text, lambda: code.nvvm, lambda: code.sass, lambda: code.ptx)


class Variant:
    """Machine code that is loaded on each GPU at first use there.

    Attributes:
        whole: the executable that it is a variant of.
        loose: bits that no array's address may have set.
    """

    def __init__(self, whole: CudaExecutable, aligned: bool, rows: frozenset[str]) -> None:
        self.whole, self.program = whole, whole.program
        self.code = Code(whole.program, whole.architecture, whole.in_place, aligned, rows)
        self.loose = WIDEST - 1 if aligned else 0
        self.units, self.sites = self.program.units, self.code.text.sites
        self.emitted = self.code.text
        self.shared_bytes = self.code.text.shared_bytes
        cluster = self.program.cluster
        self.cluster = cluster if cluster != (1, 1, 1) else None
        self.overlap = self.program.overlap
        self.loadable = Loadable(
            self.code.cubin, self.code.symbol, self.shared_bytes, math.prod(cluster)
        )


FEATURES = (
    ((7, 5), ("int8_dot",)),
    ((8, 0), ("mma", "copy_async", "bf16")),
    ((9, 0), ("barrier", "tma", "cluster", "overlap", "wgmma")),
)
"""From which compute capability on a GPU has what; wgmma is Hopper's alone."""


def features(major: int, minor: int) -> frozenset[str]:
    """Named abilities of a compute capability."""
    found = {n for at, names in FEATURES if (major, minor) >= at for n in names}
    return frozenset(found if major == 9 else found - {"wgmma"})


@cache
def _properties(ordinal: int) -> DeviceProperties:
    gpu = DRIVER.context(ordinal)
    major, minor = gpu.attribute("major"), gpu.attribute("minor")
    return DeviceProperties(
        backend="cuda",
        name=gpu.name,
        cores=gpu.attribute("cores"),
        plane_size=32,
        max_units=gpu.attribute("max_units"),
        max_shared_memory=gpu.attribute("shared_opt_in"),
        register_bytes=16,
        vector_registers=255,
        l1_bytes=gpu.attribute("shared_of_a_core"),
        l2_bytes=gpu.attribute("l2_bytes"),
        features=features(major, minor),
        architecture=f"{major}.{minor}",
    )


TYPICAL = {
    (7, 0): ("V100", 80, 96, 128, 6),
    (7, 5): ("T4", 40, 64, 64, 4),
    (8, 0): ("A100", 108, 163, 164, 40),
    (8, 6): ("A10", 72, 99, 100, 6),
    (8, 9): ("L40S", 142, 99, 100, 96),
    (9, 0): ("H100 or H200", 132, 227, 228, 50),
    (10, 0): ("B200", 148, 227, 228, 126),
    (12, 0): ("RTX PRO 6000", 188, 99, 100, 128),
}
"""GPUs by compute capability: name, cores, KiB of shared memory for a cube and of a core, MiB of
second-level cache. Cores and shared memory decide between routines.
"""


def offline(architecture: str) -> DeviceProperties:
    """Properties of a typical GPU of an architecture, to compile for it where there is none."""
    a = Architecture.of(architecture)
    older = [at for at in TYPICAL if at <= (a.major, a.minor)]
    name, cores, shared, whole, l2 = TYPICAL[max(older)]
    return DeviceProperties(
        backend="cuda",
        name=f"{name} ({a})",
        cores=cores,
        plane_size=32,
        max_units=1024,
        max_shared_memory=shared << 10,
        register_bytes=16,
        vector_registers=255,
        l1_bytes=whole << 10,
        l2_bytes=l2 << 20,
        features=features(a.major, a.minor),
        architecture=f"{a.major}.{a.minor}",
    )
