"""What NVIDIA GPUs can do, and executables for them."""

from __future__ import annotations

import math
from functools import cache

from cubepy.backends.cuda.codegen.compile import Architecture, Code
from cubepy.backends.cuda.fragments import instructions
from cubepy.backends.cuda.native.driver import DRIVER
from cubepy.backends.cuda.native.module import Loadable
from cubepy.backends.cuda.run import CudaRunner
from cubepy.backends.gpu.backend import GpuBackend, GpuExecutable, Variant
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.inspection import Inspection


class CudaExecutable(GpuExecutable):
    """Machine code of a program for NVIDIA GPUs."""

    driver, codes, runner = DRIVER, Code, CudaRunner

    def built_for(self, architecture: str) -> Architecture:
        major, minor = (architecture or "8.0").split(".")
        return Architecture(int(major), int(minor))

    def made(self, aligned: bool, rows: frozenset[str]) -> CudaVariant:
        return CudaVariant(self, aligned, rows)

    def inspect(self) -> Inspection:
        """The generated Python, its LLVM IR, PTX and SASS."""
        code: Code = self.known()
        return Inspection(code.text.text, lambda: code.nvvm, lambda: code.sass, lambda: code.ptx)


class CudaVariant(Variant):
    """A cubin, and how it is launched."""

    def loads(self) -> Loadable:
        cluster, code = self.program.cluster, self.code
        self.cluster = cluster if cluster != (1, 1, 1) else None
        self.overlap = self.program.overlap
        return Loadable(code.binary, code.symbol, self.shared_bytes, math.prod(cluster))


class CudaBackend(GpuBackend):
    """Runs kernels on NVIDIA GPUs."""

    driver, executables = DRIVER, CudaExecutable

    def properties(self, ordinal: int = 0) -> DeviceProperties:
        return _properties(ordinal)


FEATURES = (
    ((7, 5), ("int8_dot",)),
    ((8, 0), ("mma", "copy_async", "bf16", "resident")),
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
        matrix_instructions=instructions(features(major, minor)),
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
        matrix_instructions=instructions(features(a.major, a.minor)),
    )
