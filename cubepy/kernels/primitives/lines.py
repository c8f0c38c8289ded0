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


@cb.func
def load_elements_inside(source, batch, row, start, lanes: cb.Comptime[int]):
    """A line of a row of matrices (batch, rows, columns) element by element, zeros beyond them.

    Every element is read from inside, so that no unit waits for one before it asks for the next: a
    line with a count of valid lanes is read behind branches, where its elements meet.
    """
    at, last = cb.min(row, source.shape[1] - 1), source.shape[2] - 1
    found = tuple(source[batch, at, cb.min(start + e, last)] for e in cb.unroll(range(lanes)))
    left = cb.select(row < source.shape[1], source.shape[2] - start, 0)
    return cb.keep_first(cb.line(*found), left, 0)
