"""What a backend must offer. The floors above know nothing else of it.

The CPU backend prints a `Program` as Python for numba; a GPU backend prints the same program for numba.cuda.
The python backend runs the user's own function instead, after the same front end has checked it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from cubepy.compiler.ir import Program
from cubepy.compiler.signature import Spec
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Dim3
from cubepy.runtime.device import DeviceProperties


class Executable(Protocol):
    """A specialised kernel that can run."""

    program: Program

    def prepare(self, leaves: list[Any], values: tuple, cubes: Dim3) -> Runner:
        """Lay out a launch: everything that stays the same when only data pointers and scalars change."""
        ...

    def inspect(self) -> Any:
        """The generated code, as an `Inspection`."""
        ...


class Runner(Protocol):
    """A launch that is laid out."""

    def run(self, leaves: list[Any], values: tuple) -> None:
        """Run it with these leaves (arrays and numbers, in the order of `Program.arguments`)."""
        ...

    def bound(self, leaves: list[Any], values: tuple) -> Callable[..., None]:
        """A function without arguments that runs it with these leaves, as fast as the backend can."""
        ...


class Backend(Protocol):
    """A way to run kernels."""

    name: str

    def count(self) -> int:
        """How many devices there are."""
        ...

    def properties(self, ordinal: int) -> DeviceProperties:
        """What a device can do."""
        ...

    def executable(self, kernel: Kernel, program: Program, specs: tuple[Spec, ...], in_place: bool) -> Executable:
        """Code for a program. `in_place`: an output is also an input, so pointers may be equal."""
        ...

    def units(self, elements: int) -> tuple[int, int]:
        """Cubes and units for `cb.over` with so many units of work."""
        ...
