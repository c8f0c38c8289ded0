"""The HIP backend: generated Python, lowered to LLVM IR, compiled for AMD GPUs by LLVM.

The journey of a program: emit.py prints it, target.py and lowering.py lower it,
machine.py has LLVM compile it, code_object.py makes what HIP loads, compile.py keeps that on disk;
what loads it, lays launches out and puts them on streams is that of every GPU (backends.gpu). It is
compiled and emulated for its processors, and was never run on AMD hardware.
"""

from __future__ import annotations

from cubepy.backends.hip.backend import HipBackend


def create() -> HipBackend:
    """The backend object."""
    return HipBackend()
