"""What AMD GPUs can do, and executables for them."""

from __future__ import annotations

from functools import cache

from cubepy.backends.gpu.backend import GpuBackend, GpuExecutable
from cubepy.backends.gpu.printing import WIDEST
from cubepy.backends.hip.codegen.architecture import KNOWN, Architecture
from cubepy.backends.hip.codegen.compile import Code
from cubepy.backends.hip.codegen.front_end import front_end, why_not
from cubepy.backends.hip.codegen.matrix import instructions
from cubepy.backends.hip.native.driver import DRIVER
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.inspection import Inspection

TYPICAL = {
    "gfx90a": (104, 16, 8),
    "gfx942": (304, 32, 4),
    "gfx950": (256, 32, 4),
    "gfx1100": (48, 32, 6),
    "gfx1201": (32, 32, 8),
}
"""GPUs by processor, as AMD's data sheets have them: cores, KiB of first-level cache, MiB of
second-level cache. Cores decide between routines.
"""
REGISTERS = 256


FEATURES = frozenset({"int8_dot", "resident"})
MATRIX_UNITS = {9: "mfma", 11: "wmma", 12: "wmma"}
"""What the matrix units of a generation are called."""


class HipExecutable(GpuExecutable):
    """Machine code of a program for AMD GPUs."""

    driver, codes = DRIVER, Code

    def built_for(self, architecture: str) -> Architecture:
        return Architecture.of(architecture)

    def inspect(self) -> Inspection:
        """The generated Python, its LLVM IR and machine code as text."""
        code: Code = self.known()
        return Inspection(
            code.text.text, lambda: code.llvm, lambda: code.assembly, front_end=code.front_end
        )


class HipBackend(GpuBackend):
    """Runs kernels on AMD GPUs."""

    driver, executables = DRIVER, HipExecutable

    def front_end(self) -> str:
        return f"{front_end()} ({why_not()})" if why_not() else front_end()

    def properties(self, ordinal: int = 0) -> DeviceProperties:
        """What a GPU can do; one whose processor has no code is listed, too, with its name."""
        return _properties(ordinal)


@cache
def _properties(ordinal: int) -> DeviceProperties:
    gpu, processor = DRIVER.context(ordinal), DRIVER.processor(ordinal).partition(":")[0]
    _, l1, _ = TYPICAL.get(processor, (0, 16, 0))
    sizes = (gpu.attribute(n) for n in ("cores", "max_units", "shared_opt_in", "l2_bytes"))
    return _described(Architecture(processor), gpu.name, l1, *sizes)


def offline(architecture: str) -> DeviceProperties:
    """Properties of a typical GPU of a processor, to compile for it where there is none.

    Raises:
        BackendCompileError: no code is made for this processor.
    """
    a = Architecture.of(architecture)
    cores, l1, l2 = TYPICAL[a.name]
    return _described(a, KNOWN[a.name], l1, cores, 1024, a.shared_bytes, l2 << 20)


def _described(
    a: Architecture, name: str, l1: int, cores: int, units: int, shared: int, l2: int
) -> DeviceProperties:
    known = a.name in KNOWN
    return DeviceProperties(
        backend="hip",
        name=f"{name} ({a})",
        cores=cores,
        plane_size=a.plane,
        max_units=units,
        max_shared_memory=shared,
        register_bytes=WIDEST,
        vector_registers=REGISTERS,
        l1_bytes=l1 << 10,
        l2_bytes=l2,
        features=FEATURES | {MATRIX_UNITS[a.major]} if known else FEATURES,
        architecture=a.name,
        matrix_instructions=instructions(a) if known else (),
    )
