"""Where windows lie."""

from __future__ import annotations

from typing import Any

import cubepy as cb


@cb.struct
class Windows:
    """Windows along all axes: how many positions they have, how far it is from one window to the
    next, how many positions lie in front of the first, and how far apart positions are.
    """

    kernel: Any
    stride: Any
    pad: Any
    dilation: Any


@cb.func
def window(i, n, m, k, s, p, parts: cb.Comptime[bool]):
    """The first position and the length of window i of m over n positions; with `parts`, the i-th
    of m equal parts.
    """
    if parts:
        first = i * n // m
        return first, ((i + 1) * n + m - 1) // m - first
    return i * s - p, k
