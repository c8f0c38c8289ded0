"""Memory whose addresses stay taken when nobody uses it any more, while its pages go back to the
system: what a recording takes, whose buffers are known by their addresses.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.errors import OutOfMemoryError
from cubepy.runtime.memory.address import address

AVAILABLE = hasattr(mmap, "MAP_ANONYMOUS") and hasattr(mmap, "MADV_DONTNEED")
"""Whether the system can give pages back and keep their addresses."""
PAGE, STAGGER = 4096, 512
HUGE = 1 << 22  # bytes from which on larger pages are asked for


class Piece:
    """Bytes of memory that begin at a line of the cache.

    Args:
        size: how many.
        number: which piece it is: pieces begin at different distances from a page.
        released: is told when no array uses them any more.

    Attributes:
        lasting: the bytes, as an array that does not keep the pages.

    Raises:
        OutOfMemoryError: the system has none.
    """

    __slots__ = ("__array_interface__", "__weakref__", "lasting", "mapped", "released")

    def __init__(self, size: int, number: int, released: Callable[[int], None]) -> None:
        start = STAGGER * (1 + number % (PAGE // STAGGER - 1))
        try:
            self.mapped = mmap.mmap(-1, start + size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError):
            raise OutOfMemoryError(
                f"the machine has no {size} bytes to give",
                hint="release arrays, or work in smaller batches",
            ) from None
        if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            self.mapped.madvise(mmap.MADV_HUGEPAGE)
        self.lasting = np.frombuffer(self.mapped, np.uint8, size, start)
        self.released = released
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (address(self.lasting), False),
        }

    def __del__(self) -> None:
        if hasattr(self, "__array_interface__"):
            self.mapped.madvise(mmap.MADV_DONTNEED)
            self.released(self.lasting.size)


def of_piece(piece: Piece, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of a piece, which its pages stay for."""
    return np.ndarray(shape, dtype, np.asarray(piece))


def without_pages(array: Any) -> Any:
    """An array of a piece as another one of the same memory that does not keep the pages; any other
    value as it is.
    """
    if type(array) is not np.ndarray:
        return array
    base: Any = array.base
    while base is not None and type(base) is not Piece:
        base = getattr(base, "base", None)  # of arrays, and of what `as_strided` puts between them
    if base is None:
        return array
    offset = address(array) - address(base.lasting)
    return np.ndarray(array.shape, array.dtype, base.lasting, offset, array.strides)
