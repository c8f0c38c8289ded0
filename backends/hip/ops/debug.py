"""Printing from an AMD GPU is refused: there is no code for it yet."""

from __future__ import annotations

from typing import Any

from numba.core import types

from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import literal
from cubepy.errors import BackendCompileError


@literal_op
def print_values(form: Any, *values: Any) -> Any:
    """`print_values(format, *values)`: an error."""
    if literal(form) is None:
        return None

    def emit(*_: Any) -> None:
        raise BackendCompileError(
            "kernels for AMD GPUs cannot print", hint="run the kernel on the CPU to print from it"
        )

    return types.void(form, *(types.unliteral(v) for v in values)), emit
