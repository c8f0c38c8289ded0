"""Runs machine code for AMD GPUs, a wave at a time, without an AMD GPU: the text that LLVM prints
of it (CDNA 2 to 4, RDNA 3 and 4).

A register of a wave is one NumPy array over its lanes, and an instruction a function of the wave,
made once for a line of text. What hardware does not tell is told here: every byte of every access
is looked up among the allocations; registers and shared memory start as garbage; the waves of a
cube, and the cubes, take turns in random order; a wave that ends while others wait at a barrier,
two waves that touch a byte of shared memory between two barriers, and an atomic that is not aligned
are faults; approximate instructions are off by up to what the documents allow. Waits for memory,
caches and time are not modelled, and cubes run one after another.

An instruction that is not known ends the launch with its text. Own code, after AMD's instruction
set documents and LLVM's "User Guide for AMDGPU Backend".
"""

from __future__ import annotations

from tests.backends.hip.emulator.gpu import Gpu
from tests.backends.hip.emulator.memory import Fault

__all__ = ["Fault", "Gpu"]
