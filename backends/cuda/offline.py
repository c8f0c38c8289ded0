"""Compiling kernels for a GPU where there is none: for tests, and for reading machine code."""

from __future__ import annotations

from typing import Any

from cubepy.backends.cuda.backend import offline as properties_of
from cubepy.backends.cuda.codegen.compile import Architecture, Code
from cubepy.backends.gpu.code import aligned_rows
from cubepy.backends.gpu.offline import program_for


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
    program, leaves = program_for(
        properties_of(architecture), kernel, units, args, kwargs, mode, wide
    )
    return Code(
        program,
        Architecture.of(architecture),
        False,
        aligned,
        aligned_rows(program, leaves, aligned),
    )
