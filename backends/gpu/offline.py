"""Programs of kernels for a GPU that is not here: for tests, and for reading machine code."""

from __future__ import annotations

from typing import Any

from cubepy.compiler.ir import Program
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
