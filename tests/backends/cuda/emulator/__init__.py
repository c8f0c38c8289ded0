"""Runs the text that the CUDA backend generates for kernels, unit by unit, in plain Python: no GPU
is needed.

Every unit is a generator that stops where units meet. Units take their turns in random order;
copies and products of matrix units that run beside the units' own work happen as late, or as early,
as they may: what waits too little, or reuses a stage too early, gives wrong results, and a phase
too many waits for ever. Tiles lie in shared memory as the hardware lays them out, so that a
kernel's places and distances are tested and not only its arithmetic.

`emulate(kernel, units, cubes, *args)` launches. Ops without a meaning here fail as unknown names. A
unit takes about a microsecond for an operation of a GPU's nanosecond: it is for small cases.
"""

from __future__ import annotations

from tests.backends.cuda.emulator.launch import emulate

__all__ = ["emulate"]
