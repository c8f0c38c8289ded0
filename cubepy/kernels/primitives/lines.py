"""What kernels share that work on lines: where they begin, and their lanes combined."""

from __future__ import annotations

import cubepy as cb


@cb.func
def multiple(k, lanes: cb.Comptime[int]):
    """k, a multiple of a power of two, written so that every compiler knows it: lines there can be
    read whole.
    """
    return k & -lanes if lanes > 1 else k


@cb.func
def over_lanes(line, step, lanes: cb.Comptime[int]):
    """`step` over the lanes of a line, from the first on."""
    total = line[0]
    for j in cb.unroll(range(1, lanes)):
        total = step(total, line[j])
    return total
