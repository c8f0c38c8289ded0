"""How many elements a line holds: what fills a register, and where lines may begin."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.runtime import memory

LINE_BYTES = 16
"""The widest access of one unit."""


def line_of(*arrays: Any) -> int:
    """Lanes of a line along the last axis: 16 bytes of the widest element where every line of every
    array starts at a multiple of its size, else 1 (neighbouring units then read neighbouring
    elements, which is as good as it gets).
    """
    widest = max(a.itemsize for a in arrays)
    lanes = max(1, LINE_BYTES // max(widest, 2))
    for a in arrays:
        size = lanes * a.itemsize
        starts = [a.strides[d] for d in range(a.ndim - 1) if a.shape[d] > 1]
        if a.strides and a.shape[-1] > 1 and a.strides[-1] != a.itemsize:
            return 1
        if address(a) % size or any(s % size for s in starts):
            return 1
    return lanes


def lanes_within(array: Any, most: int) -> int:
    """Lanes of a line along the last axis, up to `most`, that divide its length and always begin at
    a multiple of their size: 1 where neighbours are not neighbours in memory.
    """
    if array.shape[-1] > 1 and array.strides[-1] != array.itemsize:
        return 1
    starts = [s for n, s in zip(array.shape[:-1], array.strides[:-1], strict=True) if n > 1]
    size = LINE_BYTES
    for begin in (address(array), array.shape[-1] * array.itemsize, *starts):
        while begin % size:
            size //= 2
    return min(most, size // array.itemsize)


def address(array: Any) -> int:
    """Where the first element is."""
    if isinstance(array, np.ndarray):
        return int(array.__array_interface__["data"][0])
    return array.address


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


LINE = 128  # bytes of what a long function takes at once
STREAMING_BYTES = 32 << 20  # bytes of a result that no cache holds


def lanes_on(properties: cb.DeviceProperties, *arrays: Any) -> int:
    """Lanes that fill a register of a device with the widest element."""
    width = max(4, *(a.itemsize for a in arrays)) if len(arrays) > 1 else max(4, arrays[0].itemsize)
    return max(1, properties.register_bytes // width)


def beside(lanes: int, dest: Any, properties: cb.DeviceProperties) -> int:
    """How many registers side by side a function takes that calls others: more is under way in its
    long chains of instructions. With AVX2 it is four, where rows are not short.
    """
    if dest.shape[-1] < 8 * lanes:
        return 2
    return builtins.max(2, LINE // properties.register_bytes)


def to_line(out: Any, lanes: int = memory.ALIGNMENT) -> int | None:
    """How many elements of an array on the host come before one where a line of so many, or of the
    cache, may be stored whole; None where it is nowhere.
    """
    if not isinstance(out, np.ndarray):
        return None
    head, rest = divmod(
        -address(out) % builtins.min(lanes * out.itemsize, memory.ALIGNMENT), out.itemsize
    )
    return None if rest else head


def aligned(out: Any, lanes: int) -> bool:
    """Whether an array on the host begins where a line of so many elements, or of the cache, may be
    stored whole.
    """
    return to_line(out, lanes) == 0
