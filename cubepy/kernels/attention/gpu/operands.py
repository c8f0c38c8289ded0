"""What the copy engine and asynchronous copies can read."""

from __future__ import annotations

from typing import Any


def copyable(array: Any, repeats: bool = False) -> bool:
    """Whether the copy engine can read an array: rows and strides are multiples of 16 bytes, and no
    axis `repeats`.
    """
    rows = [s for n, s in zip(array.shape[:-1], array.strides[:-1], strict=True) if n > 1]
    return (
        array.strides[-1] == array.itemsize
        and all(s % 16 == 0 and (s > 0 or repeats) for s in rows)
        and array.shape[-1] * array.itemsize % 16 == 0
        and array.address % 16 == 0
    )
