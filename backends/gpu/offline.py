"""Programs of kernels for a GPU that is not here: for tests, and for reading machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.backends.gpu.code import GpuCode, aligned_rows
from cubepy.compiler.program import Program
from cubepy.compiler.signature import Target
from cubepy.compiler.specialise import specialise
from cubepy.lang.dtypes import i32, i64
from cubepy.lang.grid import dim3
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.launch.arguments import flatten


def program_for(
    properties: DeviceProperties,
    kernel: Any,
    units: Any,
    args: tuple[Any, ...],
    named: dict[str, Any],
    mode: str,
    wide: bool,
) -> tuple[Program, list[Any]]:
    """A kernel's program for these arguments, and what a launch would pass.

    Args:
        properties: of the GPU.
        kernel: the kernel.
        units: of a cube.
        args, named: the kernel's arguments; host arrays stand for device arrays, and only their
            kind matters.
        mode: "checked", "validate" or "unchecked".
        wide: index with 64 bits.
    """
    given = dict(zip([p.name for p in kernel.parameters], args, strict=False), **named)
    specs: list[Any] = []
    operands: list[Any] = []
    for p in kernel.parameters:
        spec, mine = flatten(p, given.get(p.name, p.default), kernel)
        specs.append(spec)
        operands += mine
    target = Target(
        properties.backend,
        dim3(units, "the cube dim", 1),
        mode,
        i64 if wide else i32,
        properties.plane_size,
        properties.max_shared_memory,
        properties,
        mode == "validate",
    )
    return specialise(kernel, tuple(specs), target), operands


def compiler(
    properties: Callable[[str], DeviceProperties], architecture: Callable[[str], Any], code: Any
) -> Callable[..., Any]:
    """A function that compiles kernels for architectures by their names.

    Args:
        properties: of a typical GPU of an architecture.
        architecture: by its name.
        code: the backend's class of code.
    """

    def compile_for(
        name: str,
        kernel: Any,
        units: Any,
        *args: Any,
        mode: str = "checked",
        wide: bool = False,
        aligned: bool = True,
        **kwargs: Any,
    ) -> GpuCode:
        """Compile a kernel for an architecture; host arrays stand for device arrays, and only their
        kind matters.

        Args:
            name: such as "sm_90a" or "gfx942".
            kernel: the kernel.
            units: units of a cube.
            args, kwargs: the kernel's arguments.
            mode: "checked", "validate" or "unchecked".
            wide: index with 64 bits.
            aligned: assume that arrays, and the rows of those whose strides allow it, start at
                multiples of 16 bytes.

        Raises:
            BackendCompileError: the code cannot be compiled, its compiler is not installed, or
                there is none for this architecture.
        """
        program, leaves = program_for(properties(name), kernel, units, args, kwargs, mode, wide)
        rows = aligned_rows(program, leaves, aligned)
        made: GpuCode = code(program, architecture(name), False, aligned, rows)
        return made

    return compile_for
