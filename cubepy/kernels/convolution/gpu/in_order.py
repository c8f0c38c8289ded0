"""Arrays in the order of their axes."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.movement.transpose import transpose


def in_order(a: Any) -> Any:
    """The array, or a contiguous copy through shared memory."""
    return a if a.flags.c_contiguous else transpose(a, tuple(range(a.ndim)))
