"""Compiling kernels for a GPU where there is none: for tests, and for reading machine code."""

from __future__ import annotations

from typing import Any

from cubepy.backends.cuda.backend import offline as properties_of
from cubepy.backends.cuda.codegen.compile import Architecture, Code
from cubepy.backends.gpu.code import aligned_rows
from cubepy.compiler.signature import Target
from cubepy.compiler.specialise import specialise
from cubepy.lang.dtypes import i32, i64
from cubepy.lang.grid import dim3
from cubepy.runtime.launch.arguments import flatten


def compile_for(
    architecture: str,
    kernel: Any,
    units: Any,
    *args: Any,
    mode: str = "checked",
    wide: bool = False,
    aligned: bool = True,
    **kwargs: Any,
) -> Code:
    """Compile a kernel for an architecture; host arrays stand for device arrays, and only their
    kind matters.

    Args: architecture: such as "sm_90a". kernel: the kernel. units: units of a cube. args, kwargs:
        the kernel's arguments. mode: "checked", "validate" or "unchecked". wide: index with 64
        bits. aligned: assume that arrays, and the rows of those whose strides allow it, start at
        multiples of 16 bytes.

    Raises:
        BackendCompileError: the code cannot be compiled, or numba-cuda is not installed.
    """
    properties = properties_of(architecture)
    given = dict(zip([p.name for p in kernel.parameters], args, strict=False), **kwargs)
    specs: list[Any] = []
    leaves: list[Any] = []
    for p in kernel.parameters:
        spec, mine = flatten(p, given.get(p.name, p.default), kernel)
        specs.append(spec)
        leaves += mine
    target = Target(
        "cuda",
        dim3(units, "the cube dim", 1),
        mode,
        i64 if wide else i32,
        32,
        properties.max_shared_memory,
        properties,
        mode == "validate",
    )
    program = specialise(kernel, tuple(specs), target)
    return Code(
        program,
        Architecture.of(architecture),
        False,
        aligned,
        aligned_rows(program, leaves, aligned),
    )
