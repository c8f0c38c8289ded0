"""The CPU backend: generated Python, compiled by numba, cubes on threads, units vectorised.

The journey of a program: fission.py splits it at barriers, emit.py prints it, compile.py makes
machine code (or loads it from the cache), run.py lays out launches, threads/ runs them.
"""

from __future__ import annotations

from cubepy.backends.cpu.backend import CpuBackend


def create() -> CpuBackend:
    """The backend object."""
    return CpuBackend()
