"""The python backend as the runtime sees it: it runs the user's own function, unit by unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.backends.python.matrix import INSTRUCTIONS
from cubepy.compiler.program import Program
from cubepy.compiler.signature import Spec
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Dim3, cubes_over
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.inspection import Inspection
from cubepy.runtime.interop.arrays import array_like


class PythonBackend:
    """Runs kernels as plain Python, with bounds and race checks."""

    name = "python"

    def count(self) -> int:
        """There is one interpreter."""
        return 1

    def properties(self, ordinal: int = 0) -> DeviceProperties:
        """The interpreter pretends to be a small CPU."""
        import platform

        return DeviceProperties(
            "python",
            f"Python {platform.python_version()}",
            1,
            max_units=4096,
            register_bytes=64,
            vector_registers=32,
            matrix_instructions=INSTRUCTIONS,
        )

    def units(self, axes: tuple[int, ...]) -> tuple[Dim3, Dim3]:
        """Small cubes, so that stepping through one is quick, and no units without work where few
        have any: there is no code to be made again.
        """
        units = (min(16, max(1, axes[0])), 1, 1)
        return cubes_over(axes, units), units

    def executable(
        self, kernel: Kernel, program: Program, specs: tuple[Spec, ...], in_place: bool
    ) -> PythonExecutable:
        """The kernel itself; the front end has checked it."""
        return PythonExecutable(kernel, program, self.properties())


class PythonExecutable:
    """A kernel that passed the front end."""

    def __init__(self, kernel: Kernel, program: Program, properties: DeviceProperties) -> None:
        self.kernel, self.program, self.properties = kernel, program, properties

    def prepare(
        self, leaves: list[Any], values: tuple, cubes: Dim3, ordinal: int = 0
    ) -> PythonRunner:
        """Nothing to lay out."""
        return PythonRunner(self, cubes)

    def inspect(self) -> Inspection:
        """The user's own source is what runs."""
        import inspect

        source = inspect.getsource(self.kernel.fn)
        return Inspection(source, lambda: "", lambda: "")


class PythonRunner:
    """Runs the function for every unit of every cube."""

    def __init__(self, exe: PythonExecutable, cubes: Dim3) -> None:
        self.exe, self.cubes = exe, cubes
        self.frozen: Any = None  # globals and the like, once it is bound

    def run(self, leaves: list[Any], values: tuple, stream: Any = None, frozen: Any = None) -> None:
        """Run with these arguments."""
        from cubepy.backends.python.run import run

        exe = self.exe
        arguments = {
            p.name: v if p.kind == "comptime" else _plain(v)
            for p, v in zip(exe.kernel.parameters, values, strict=True)
        }
        program = exe.program
        run(
            exe.kernel,
            arguments,
            self.cubes,
            program.units,
            program.mode,
            exe.properties,
            program.typed,
            frozen,
        )

    def bound(self, leaves: list[Any], values: tuple, stream: Any = None) -> Callable[[], None]:
        """A function that runs with these arguments."""
        if self.frozen is None and self.exe.program.guard is not None:
            from cubepy.backends.python.names import Frozen

            self.frozen = Frozen(self.exe.program.guard)
        return lambda: self.run(leaves, values, None, self.frozen)


def _plain(value: Any) -> Any:
    """An argument with the NumPy array behind it, where there is one."""
    if isinstance(value, np.ndarray):
        return value if value.ndim else value.reshape(1)
    array = array_like(value) if not isinstance(value, (int, float, tuple)) else None
    return value if array is None else array
