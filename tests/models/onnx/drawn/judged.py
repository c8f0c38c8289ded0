"""How results of drawn nodes are compared."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

LEAST = -1e30
"""What is below hides a score, as -inf does."""


def apart(ours: Any, theirs: Any, far: float, codes: int) -> str:
    """How results differ by more than may be, relative to the largest or 1; empty where they do
    not.
    """
    if ours.shape != theirs.shape:
        return f"shape {list(ours.shape)}, expected {list(theirs.shape)}"
    if ours.dtype != theirs.dtype:
        return f"{ours.dtype}, expected {theirs.dtype}"
    if ours.dtype == object:
        wrong = [pair for pair in zip(ours.flat, theirs.flat, strict=True) if pair[0] != pair[1]]
        return f"{wrong[0][0]!r}, expected {wrong[0][1]!r}" if wrong else ""
    a, b = (np.where(t < LEAST, -np.inf, t) for t in (ours.astype("f8"), theirs.astype("f8")))
    here = np.isfinite(b)
    if (np.isfinite(a) != here).any():
        return "NaN or infinities elsewhere"
    found = np.abs(a[here] - b[here]).max(initial=0)
    if theirs.dtype.kind in "iu":
        return f"{found:.0f} codes apart" if found > codes else ""
    found /= max(1.0, np.abs(b[here]).max(initial=0))
    return f"{found:.1e} apart" if found > far else ""


def check_sum(data: bytes, feeds: dict[str, Any]) -> int:
    """Of a file and what it is fed."""
    found = zlib.crc32(data)
    for name in sorted(feeds):
        array = feeds[name].astype(str) if feeds[name].dtype == object else feeds[name]
        found = zlib.crc32(np.ascontiguousarray(array).tobytes(), found)
    return found


def array_of(found: Any) -> Any:
    """A result as an array: texts are one already."""
    return found if isinstance(found, np.ndarray) else found.numpy()
