"""What AMD GPUs can do, and executables for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.backends.gpu.code import aligned_rows
from cubepy.backends.gpu.printing import WIDEST
from cubepy.backends.hip.codegen.architecture import KNOWN, Architecture
from cubepy.backends.hip.codegen.compile import Code
from cubepy.compiler.ir import Program
from cubepy.runtime.ahead.waiting import WAIT
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
        features=frozenset({"int8_dot"}),
        architecture=a.name,
    )


class HipExecutable:
    """Machine code of a program, in a variant for what is known of the arguments' alignment."""

    def __init__(self, program: Program, in_place: bool) -> None:
        self.program, self.in_place = program, in_place
        self.architecture = Architecture.of(program.properties.architecture)
        self.variants: dict[tuple[bool, frozenset[str]], Code] = {}

    def variant(self, operands: Sequence[Any]) -> Code:
        """The code for arguments that are aligned as these are."""
        aligned = not any(getattr(x, "address", 0) % WIDEST for x in operands)
        key = aligned, aligned_rows(self.program, operands, aligned)
        found = self.variants.get(key)
        if found is None:
            with WAIT.compiling(self.program.name):
                found = Code(self.program, self.architecture, self.in_place, *key)
            self.variants[key] = found
        return found

    def inspect(self) -> Inspection:
        """The generated Python, its LLVM IR and machine code as text."""
        code = next(iter(self.variants.values()), None) or Code(
            self.program, self.architecture, self.in_place, True
        )
        return Inspection(code.text.text, lambda: code.llvm, lambda: code.assembly)
