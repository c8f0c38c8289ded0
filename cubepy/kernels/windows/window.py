"""Where a window lies."""

from __future__ import annotations

import cubepy as cb


@cb.func
def window(i, n, m, k, s, p, parts: cb.Comptime[bool]):
    """The first position and the length of window i of m over n positions; with `parts`, the i-th
    of m equal parts.
    """
    if parts:
        first = i * n // m
        return first, ((i + 1) * n + m - 1) // m - first
    return i * s - p, k
