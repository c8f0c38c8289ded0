"""Indices that the host can see are looked at before anything is read or written by them; those on
a GPU, which would have to be waited for, in validate mode or with CUBEPY_DEBUG only: else such a
position reads zero and is not written.

On the host a launch looks, the one that does the work or one before it, and raises a flag if an
index is outside. The host looks at the flag, and calls that are repeated look at theirs between
launches (`recording.judged`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.config import config
from cubepy.errors import DTypeError, OutOfBoundsError
from cubepy.kernels.movement.copy import contiguous
from cubepy.runtime import recording
from cubepy.runtime.device import gpu_of
from cubepy.runtime.memory.device_array import DeviceArray

PART = 1 << 14  # indices that a cube looks at


@cb.func
def outside(index, b, first, stop, bounds, lanes: cb.Comptime[int]):
    """Whether one of index[b, first:stop], which are not none, is not within the bounds, the
    lowest that may be and the one behind the highest.
    """
    low, high = bounds
    smallest, largest = index[b, first], index[b, first]
    whole = first + (stop - first) // (2 * lanes) * (2 * lanes)
    if whole > first:
        least, most = index.load((b, first), lanes), index.load((b, first + lanes), lanes)
        less, more = least, most
        for k in range(first, whole, 2 * lanes):
            one, two = index.load((b, k), lanes), index.load((b, k + lanes), lanes)
            least, most = cb.min(least, one), cb.max(most, one)
            less, more = cb.min(less, two), cb.max(more, two)
        least, most = cb.min(least, less), cb.max(most, more)
        for j in cb.unroll(range(lanes)):
            smallest, largest = cb.min(smallest, least[j]), cb.max(largest, most[j])
    for k in range(whole, stop):
        smallest, largest = cb.min(smallest, index[b, k]), cb.max(largest, index[b, k])
    end = cb.cast(largest, cb.i64)  # what is unsigned may become negative
    return cb.cast(smallest, cb.i64) < low or end >= high or end < low


@cb.kernel
def look(index: cb.Array, flag: cb.Array, chunk, bounds, lanes: cb.Comptime[int]):
    """flag[0] = 1 if an index of a chunk is outside."""
    first = cb.CUBE_POS * chunk
    if outside(index, 0, first, cb.min(first + chunk, index.shape[1]), bounds, lanes):
        flag[0] = 1


class Look:
    """What a kernel needs to look at indices for an axis of length n; `from_end`: negative ones
    count from the end.

    Attributes:
        arguments: the flag, the bounds, and the lanes of a line of indices.
    """

    def __init__(self, index: np.ndarray, n: int, what: str, from_end: bool = False) -> None:
        self.index, self.n, self.what = index, n, what
        self.low = -n if from_end and index.dtype.kind == "i" else 0
        self.flag = np.zeros(1, np.int64)
        self.arguments = self.flag, (self.low, n), max(1, 64 // index.itemsize)

    def done(self) -> None:
        """The kernel was launched.

        Raises:
            OutOfBoundsError: it raised the flag.
        """
        if self.flag[0]:
            self.refuse()
        recording.judged(self.flag)

    def refuse(self) -> None:
        """Raise an error if an index is outside."""
        low, high = int(self.index.min()), int(self.index.max())
        if low < self.low or high >= self.n:
            bad = high if high >= self.n else low
            raise OutOfBoundsError(
                f"{self.what}: the index {bad} is outside an axis of length {self.n}",
                hint="negative indices do not count from the end here"
                if self.low == 0 > bad >= -self.n
                else "",
            )


def integers(index: Any, what: str) -> Any:
    """Refuse indices that are no integers.

    Raises:
        DTypeError: as it says.
    """
    if index.dtype.kind not in "iu":
        raise DTypeError(f"{what} needs integer indices, not {index.dtype}")
    return index


def validating() -> bool:
    """Whether indices are looked at wherever they are, even if that takes a wait."""
    return config.mode == "validate" or bool(config.debug & 1)


def check_indices(index: Any, n: int, what: str, from_end: bool = False) -> None:
    """Refuse indices that are no integers or, where the host can see them, outside of an axis of
    length n.

    On a GPU they are copied to the host when validating, but for a graph that is being captured.

    Raises:
        DTypeError, OutOfBoundsError: as it says.
    """
    integers(index, what)
    if isinstance(index, DeviceArray) and index.size and validating():
        recording.spoil()  # the next call looks, too
        gpu = gpu_of(index.device)
        if gpu is None or gpu.thread_stream(index.device.ordinal).capture is None:
            Look(index.numpy(), n, what, from_end).refuse()
    elif isinstance(index, np.ndarray) and index.size:
        task = Look(index, n, what, from_end)
        if index.dtype.isnative:
            flat = contiguous(index).reshape(1, -1)
            flag, *rest = task.arguments
            look[-(-flat.size // PART), 1](flat, flag, PART, *rest, mode="unchecked", device="cpu")
            task.done()
        else:
            recording.spoil()
            task.refuse()
