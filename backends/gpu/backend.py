"""What backends for GPUs do alike: devices of a driver, executables with variants for what is known
of the arguments' alignment, code that is loaded at first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from cubepy.backends.gpu.code import GpuCode, aligned_rows
from cubepy.backends.gpu.gpu import NativeGpu
from cubepy.backends.gpu.native.driver import Driver
from cubepy.backends.gpu.native.module import Loadable
from cubepy.backends.gpu.printing import WIDEST
from cubepy.backends.gpu.run import GpuRunner
from cubepy.compiler.program import Program
from cubepy.compiler.signature import Spec
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Dim3, cubes_over
from cubepy.runtime.ahead.waiting import WAIT
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.inspection import OWN, Inspection

UNITS: dict[int, Dim3] = {1: (256, 1, 1), 2: (32, 8, 1), 3: (32, 4, 2)}
"""Units of a cube of `cb.over`, by the number of axes."""


class GpuBackend(ABC):
    """Runs kernels on the GPUs of a driver."""

    driver: Driver
    executables: type[GpuExecutable]

    def __init__(self) -> None:
        self.name = self.driver.name
        self.gpu: Any = NativeGpu(self.driver)

    def count(self) -> int:
        """GPUs that the driver reports; 0 without a driver."""
        return self.driver.count()

    def missing(self) -> str:
        """Why there is no GPU; empty when there is one."""
        return self.driver.missing()

    def front_end(self) -> str:
        """What lowers programs; and why nothing else does, where there is a choice."""
        return OWN

    @abstractmethod
    def properties(self, ordinal: int = 0) -> DeviceProperties:
        """What a GPU can do."""

    def units(self, axes: tuple[int, ...]) -> tuple[Dim3, Dim3]:
        """Cubes of 256 units, however few have work: their number is part of the code, a size must
        not be.
        """
        units = UNITS[len(axes)]
        return cubes_over(axes, units), units

    def executable(
        self, kernel: Kernel, program: Program, specs: tuple[Spec, ...], in_place: bool
    ) -> GpuExecutable:
        """Machine code for a program, from the cache if it is there."""
        return self.executables(program, in_place)


class GpuExecutable(ABC):
    """Machine code of a program, in a variant for what is known of the arguments' alignment."""

    driver: Driver
    codes: type[GpuCode]
    runner: type[GpuRunner] = GpuRunner

    def __init__(self, program: Program, in_place: bool) -> None:
        self.program, self.in_place = program, in_place
        self.architecture = self.built_for(program.properties.architecture)
        self.variants: dict[tuple[bool, frozenset[str]], Any] = {}

    @abstractmethod
    def built_for(self, architecture: str) -> Any:
        """The architecture of this name.

        Raises:
            BackendCompileError: there is no code for it.
        """

    def code(self, aligned: bool, rows: frozenset[str] = frozenset()) -> GpuCode:
        """The code for arrays that are aligned so."""
        return self.codes(self.program, self.architecture, self.in_place, aligned, rows)

    @abstractmethod
    def inspect(self) -> Inspection:
        """The generated code."""

    def alignment(self, leaves: Sequence[Any]) -> tuple[bool, frozenset[str]]:
        """Whether all arrays begin at multiples of 16 bytes, and which have rows that do."""
        aligned = not any(getattr(operand, "address", 0) % WIDEST for operand in leaves)
        return aligned, aligned_rows(self.program, leaves, aligned)

    def variant(self, leaves: Sequence[Any]) -> Any:
        """The code for arguments that are aligned as these are."""
        key = self.alignment(leaves)
        found = self.variants.get(key)
        if found is None:
            with WAIT.compiling(self.program.name):
                found = self.variants[key] = self.made(*key)
        return found

    def prepare(self, leaves: list[Any], values: tuple, cubes: Dim3, ordinal: int = 0) -> Any:
        """Lay out a launch."""
        return self.runner(self.variant(leaves), leaves, cubes, ordinal)

    def symbolic(self, leaves: list[Any], cubes: Dim3, ordinal: int = 0) -> Any:
        """Lay out a launch of which lengths are symbols, for the table of a plan."""
        return self.runner.symbolic(self.variant(leaves), leaves, cubes, ordinal)

    def made(self, aligned: bool, rows: frozenset[str]) -> Variant:
        """What runs the code for arrays that are aligned so."""
        return Variant(self, aligned, rows)

    def known(self) -> Any:
        """The code of some variant."""
        variant = next(iter(self.variants.values()), None)
        return self.code(True) if variant is None else variant.code


class Variant:
    """Machine code that is loaded on each GPU at first use there.

    Attributes:
        whole: the executable that it is a variant of.
        loose: bits that no array's address may have set.
    """

    def __init__(self, whole: GpuExecutable, aligned: bool, rows: frozenset[str]) -> None:
        self.whole, self.program = whole, whole.program
        self.code = whole.code(aligned, rows)
        self.loose = WIDEST - 1 if aligned else 0
        self.units, self.emitted = self.program.units, self.code.text
        self.sites, self.shared_bytes = self.emitted.sites, self.emitted.shared_bytes
        self.loadable = self.loads()

    def loads(self) -> Loadable:
        """The code, to be loaded."""
        return Loadable(self.whole.driver, self.code.binary, self.code.symbol, self.shared_bytes)
