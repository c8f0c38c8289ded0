"""Printing a program for an AMD GPU."""

from __future__ import annotations

from cubepy.backends.gpu.printing import GpuPrinter, GpuText
from cubepy.compiler.ir import Program


class HipPrinter(GpuPrinter):
    """Prints one program as a function that every thread runs."""

    ops = "cubepy.backends.hip.ops"


def emit(program: Program, reserved: frozenset[str], rows: frozenset[str] = frozenset()) -> GpuText:
    """Print a program for a GPU; `reserved` are names that the text must not hide."""
    return HipPrinter(program, reserved, rows).emit()
