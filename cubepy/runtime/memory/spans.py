"""The bytes that arrays span, and whether two of them have some in common."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.device_array import DeviceArray

ARRAYS = (np.ndarray, DeviceArray)


def extent(array: Any) -> tuple[int, int]:
    """The bytes that an array spans, relative to its data pointer: first and one past the last."""
    if type(array) is DeviceArray:
        return array.layout.extent
    if array.flags.c_contiguous:
        return 0, array.nbytes
    if array.size == 0:
        return 0, 0
    low = high = 0
    for n, s in zip(array.shape, array.strides, strict=True):
        if s < 0:
            low += (n - 1) * s
        else:
            high += (n - 1) * s
    return low, high + array.itemsize


def folded(array: Any) -> bool:
    """Whether elements of an array have bytes in common, as those of a stretched axis.

    Example:
        >>> import numpy as np
        >>> x = np.zeros(3)
        >>> folded(np.broadcast_to(x, (2, 3))), folded(x[::-1])
        (True, False)
    """
    if type(array) is DeviceArray:
        if array.layout.contiguous:
            return False
    elif not isinstance(array, np.ndarray) or array.flags.c_contiguous:
        return False
    if 0 in array.shape:
        return False
    axes = sorted((abs(s), n) for n, s in zip(array.shape, array.strides, strict=True) if n > 1)
    reach = array.itemsize
    for stride, n in axes:
        if stride < reach:  # perhaps between each other, as 3 * i + 2 * j for few i
            return _some_are_equal(axes, array.itemsize)
        reach += stride * (n - 1)
    return False


def _some_are_equal(axes: list[tuple[int, int]], itemsize: int) -> bool:
    """Whether elements of some (stride, length) share bytes; of very many it is taken that they
    do.
    """
    count = math.prod(n for _, n in axes)
    if axes[0][0] < itemsize or count > 1 << 20:
        return True
    starts = np.zeros(1, np.int64)
    for stride, n in axes:
        starts = (starts[:, None] + stride * np.arange(n)).ravel()
    return bool((np.diff(np.sort(starts)) < itemsize).any())


def beginning(array: Any) -> int:
    """The address of an array's first element."""
    return array.address if type(array) is DeviceArray else address(array)  # type: ignore[no-any-return]


def same(a: Any, b: Any) -> bool:
    """Whether two arrays are the same memory in the same way."""
    return a is b or (
        a.size > 0
        and type(a) is type(b)
        and beginning(a) == beginning(b)
        and a.shape == b.shape
        and a.strides == b.strides
        and a.dtype == b.dtype
    )


def meet(a: Any, b: Any) -> bool:
    """Whether the spans of two arrays overlap."""
    if type(a) is not type(b) or a.size == 0 or b.size == 0:
        return False
    here, there = beginning(a), beginning(b)
    (low, high), (first, last) = extent(a), extent(b)
    return bool(here + low < there + last and there + first < here + high)


def interleaved(a: Any, b: Any) -> bool:
    """Whether arrays whose spans overlap lie between each other without a byte in common, as the
    left and the right half of a matrix: in steps of some length both stay within a part of their
    own.

    Example:
        >>> x = np.zeros((4, 6), np.float32)
        >>> interleaved(x[:, :2], x[:, 2:]), interleaved(x[:, :3], x[:, 2:])
        (True, False)
    """
    between = beginning(b) - beginning(a)
    axes = [[(abs(s), n, s < 0) for s, n in zip(x.strides, x.shape, strict=True)] for x in (a, b)]
    for step in {s for kind in axes for s, n, _ in kind if n > 1}:
        parts = []
        for array, kind in zip((a, b), axes, strict=True):
            inner = [(s, n, down) for s, n, down in kind if n > 1 and s % max(step, 1)]
            if step == 0 or any(s > step for s, _, _ in inner):
                break
            reach = array.itemsize + sum(s * (n - 1) for s, n, _ in inner)
            parts.append((-sum(s * (n - 1) for s, n, down in inner if down), reach))
        else:
            (low, mine), (first, other) = parts
            behind = (between + first - low) % step
            if mine <= behind and behind + other <= step:
                return True
    return False
