"""Printing a program for an AMD GPU."""

from __future__ import annotations

from cubepy.backends.gpu.printing import GpuPrinter


class HipPrinter(GpuPrinter):
    """Prints one program as a function that every thread runs."""

    ops = "cubepy.backends.hip.ops"
    leaves_prints = True
