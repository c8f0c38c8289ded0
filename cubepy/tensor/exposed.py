"""Memory of tensors that somebody outside may write.

The elements of a tensor never change, but its memory may be an array of the user's, or be given out
(`x.numpy()`), and be written there. What is made of elements once and kept, such as weights laid
out for products, holds as long as nobody else has the memory: nobody had it when that was made (so
say the reference counts), and nobody got it since (`expose` is told).
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.hazards import Tracked
from cubepy.tensor.storage import Dense

ARRAYS = (np.ndarray, DeviceArray)
version = [0]
"""Counts how often memory that `Untouched` speaks of was given out."""


class Untouched:
    """That nobody outside had some memory when this was made.

    Attributes:
        holds: whether nobody got it since.
    """

    __slots__ = ("__weakref__", "holds")

    def __init__(self) -> None:
        self.holds = True


_known: WeakValueDictionary[int, Untouched] = WeakValueDictionary()
"""By the identity of the array that all views of the memory are based on."""
noted: Any = _known.data  # type: ignore[attr-defined]
"""What is true if memory of any tensor is spoken of."""


def expose(array: Any) -> None:
    """Say that an array is given out. A step of a decoder says it of every cache, so that the
    emptiness of the table is asked of what it wraps.
    """
    if noted and type(array) in ARRAYS:
        found = _known.get(id(_root(array)))
        if found is not None:
            found.holds = False
            version[0] += 1


def own(array: Any) -> bool:
    """Whether an array is in memory of a GPU that is ours, not another library's."""
    return type(array) is DeviceArray and isinstance(array.owner, Tracked)


def _root(array: Any) -> Any:
    if type(array) is DeviceArray:
        return array.owner
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def untouched(storage: Dense, holders: int = 0) -> Untouched | None:
    """That nobody but a storage has its memory; None where somebody has, or may have.

    Args:
        storage: whose memory.
        holders: how many variables of the caller's have the array.
    """
    key = id(_root(storage.array))
    found = _known.get(key)
    if found is None or not found.holds:
        found = _known[key] = Untouched()  # before the count, so that nobody gets it in between
        if not _alone(storage, holders):
            found.holds = False
    return found if found.holds else None


def _alone(storage: Dense, holders: int) -> bool:
    """Whether nothing but a storage refers to its memory, or nobody can write that."""
    if not exact():
        return False
    alone = sys.getrefcount(storage.array) <= 2 + holders
    if type(storage.array) is DeviceArray:
        return alone and own(storage.array) and sys.getrefcount(storage.array.owner) <= 2
    return bases_alone(storage.array, alone)


def exact() -> bool:
    """Whether reference counts say who has an object; without Python's global lock they do not."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def bases_alone(array: np.ndarray, alone: bool) -> bool:
    """Whether nothing but an array refers to what it is a view of, or nobody can write that.

    Args:
        array: of which `alone` says whether nothing else refers to it.
    """
    fixed = not array.flags.writeable
    while isinstance(array.base, np.ndarray):
        alone = alone and sys.getrefcount(array.base) <= 2
        array = array.base
        fixed = fixed and not array.flags.writeable
    base = array.base
    if base is None:
        return alone
    if isinstance(base, memoryview) and base.readonly:  # of a file, or of bytes
        base = base.obj
    if isinstance(base, (bytes, mmap.mmap)):
        return fixed
    ours = type(base).__module__.startswith("cubepy.")
    return alone and ours and sys.getrefcount(array.base) <= 3


def expose_values(inputs: Sequence[Any], which: Iterable[int]) -> None:
    """Say that memory of some tensors among the inputs of an op is written."""
    for n in which:
        given = inputs[n] if n < len(inputs) else None
        if given is not None and type(given.value.storage) is Dense:
            expose(given.value.storage.array)
