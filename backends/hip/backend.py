"""What AMD GPUs can do, and executables for them."""

from __future__ import annotations

from functools import cache

from cubepy.backends.gpu.backend import GpuBackend, GpuExecutable, Variant
from cubepy.backends.gpu.printing import WIDEST
from cubepy.backends.hip.codegen.architecture import KNOWN, Architecture
from cubepy.backends.hip.codegen.compile import Code
from cubepy.backends.hip.native.driver import DRIVER
from cubepy.compiler.ir import Program
from cubepy.compiler.signature import Spec
from cubepy.lang.declare import Kernel
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.inspection import Inspection

TYPICAL = {
    "gfx90a": (104, 16, 8),
    "gfx942": (304, 32, 4),
    "gfx950": (256, 32, 4),
    "gfx1100": (96, 32, 6),
    "gfx1201": (64, 32, 8),
}
"""GPUs by processor, as AMD's data sheets have them: cores, KiB of first-level cache, MiB of
second-level cache. Cores decide between routines.
"""
REGISTERS = 256


FEATURES = frozenset({"int8_dot"})


class HipBackend(GpuBackend):
    """Runs kernels on AMD GPUs."""

    name = "hip"

    def __init__(self) -> None:
        super().__init__(DRIVER)

    def properties(self, ordinal: int = 0) -> DeviceProperties:
        """What a GPU can do; one whose processor has no code is listed, too, with its name."""
        return _properties(ordinal)

    def executable(
        self, kernel: Kernel, program: Program, specs: tuple[Spec, ...], in_place: bool
    ) -> HipExecutable:
        return HipExecutable(program, in_place)


class HipExecutable(GpuExecutable):
    """Machine code of a program for AMD GPUs."""

    def __init__(self, program: Program, in_place: bool) -> None:
        super().__init__(program, in_place)
        self.architecture = Architecture.of(program.properties.architecture)

    def code(self, aligned: bool, rows: frozenset[str] = frozenset()) -> Code:
        return Code(self.program, self.architecture, self.in_place, aligned, rows)

    def made(self, aligned: bool, rows: frozenset[str]) -> Variant:
        return Variant(self, DRIVER, aligned, rows)

    def inspect(self) -> Inspection:
        """The generated Python, its LLVM IR and machine code as text."""
        code: Code = self.known()
        return Inspection(code.text.text, lambda: code.llvm, lambda: code.assembly)


@cache
def _properties(ordinal: int) -> DeviceProperties:
    gpu, processor = DRIVER.context(ordinal), DRIVER.processor(ordinal).partition(":")[0]
    l1 = TYPICAL[processor][1] if processor in TYPICAL else 16
    return DeviceProperties(
        backend="hip",
        name=f"{gpu.name} ({processor})",
        cores=gpu.attribute("cores"),
        plane_size=Architecture(processor).plane,
        max_units=gpu.attribute("max_units"),
        max_shared_memory=gpu.attribute("shared_for_a_cube"),
        register_bytes=WIDEST,
        vector_registers=REGISTERS,
        l1_bytes=l1 << 10,
        l2_bytes=gpu.attribute("l2_bytes"),
        features=FEATURES,
        architecture=processor,
    )


def offline(architecture: str) -> DeviceProperties:
    """Properties of a typical GPU of a processor, to compile for it where there is none.

    Raises:
        BackendCompileError: no code is made for this processor.
    """
    a = Architecture.of(architecture)
    cores, l1, l2 = TYPICAL[a.name]
    return DeviceProperties(
        backend="hip",
        name=f"{KNOWN[a.name]} ({a})",
        cores=cores,
        plane_size=a.plane,
        max_units=1024,
        max_shared_memory=a.shared_bytes,
        register_bytes=WIDEST,
        vector_registers=REGISTERS,
        l1_bytes=l1 << 10,
        l2_bytes=l2 << 20,
        features=FEATURES,
        architecture=a.name,
    )
