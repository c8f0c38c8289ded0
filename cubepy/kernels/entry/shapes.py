"""Simplifying shapes before a launch: fewer, longer axes mean longer runs of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.runtime import memory
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.layout import reshaped


def broadcast_shape(*arrays: np.ndarray) -> tuple[int, ...]:
    """The shape that arrays broadcast to.

    Raises:
        ShapeError: they do not go together.
    """
    shape = arrays[0].shape
    if all(a.shape == shape for a in arrays):
        return shape  # type: ignore[no-any-return]
    try:
        return joined_shape(*(a.shape for a in arrays))
    except ValueError:
        shapes = " and ".join(str(a.shape) for a in arrays)
        raise ShapeError(f"the shapes {shapes} do not broadcast together") from None


def joined_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """NumPy's `broadcast_shapes`, also of symbols.

    Raises:
        ValueError: they do not go together.

    Example:
        >>> joined_shape((4, 1), (3,))
        (4, 3)
    """
    rank = max(map(len, shapes))
    made = []
    for axis in range(-rank, 0):
        length = 1
        for shape in shapes:
            n = shape[axis] if -axis <= len(shape) else 1
            if length == 1:
                length = n
            elif n != 1 and n != length:
                raise ValueError(f"lengths of {length} and {n} do not broadcast together")
        made.append(length)
    return tuple(made)


def strided(a: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """The memory of an array in another shape, with other strides in bytes; what they reach is not
    checked.
    """
    if isinstance(a, DeviceArray):
        return a.strided(shape, strides)
    if a.flags.c_contiguous:  # a seventh of the time
        try:
            return np.ndarray(shape, a.dtype, a, 0, strides)
        except ValueError:  # beyond what it is a part of
            pass
    return np.lib.stride_tricks.as_strided(a, shape, strides, writeable=a.flags.writeable)


def view_as(a: Any, shape: tuple[int, ...]) -> Any:
    """The array in another shape, as a view.

    Raises:
        AttributeError: its strides allow no view.
    """
    return a.reshape_view(shape) if isinstance(a, DeviceArray) else reshaped(a, shape)


def lies_channels_last(x: Any) -> bool:
    """Whether an image, signal or volume (N, C, *size) has its channels last in memory, as a whole
    or some channels of one that does.
    """
    if x.ndim < 3 or x.flags.c_contiguous or x.strides[1] != x.itemsize:
        return False
    axes = [d for d in (0, *range(2, x.ndim), 1) if x.shape[d] > 1]
    return x.shape[1] > 1 and all(
        x.strides[d] >= x.strides[e] * x.shape[e] for d, e in pairwise(axes)
    )


def empty_as(arrays: Sequence[Any], shape: tuple[int, ...], dtype: Any) -> Any:
    """Memory for what is computed, element by element, of arrays that broadcast to a shape: as all
    of that shape lie, if they have one order and no gaps; with channels last if all of them have
    them so, but for what they share along axis 1.

    Args:
        arrays: the inputs.
        shape: of the result.
        dtype: of the result.
    """
    order = _shared_order([a for a in arrays if a.shape == shape])
    if order is not None:
        made = memory.empty(tuple(shape[d] for d in order), dtype)
        return made.transpose(tuple(order.index(d) for d in range(len(shape))))
    rest, large = (*shape[:1], *shape[2:]), [a for a in arrays if a.ndim == len(shape) > 2]
    whole = [a for a in large if a.shape[1] > 1 and (*a.shape[:1], *a.shape[2:]) == rest]
    if not whole or not all(map(lies_channels_last, whole)):
        return memory.empty(shape, dtype)
    made = memory.empty((shape[0], *shape[2:], shape[1]), dtype)
    return made.transpose(0, len(shape) - 1, *range(1, len(shape) - 1))


def _shared_order(arrays: list[Any]) -> list[int] | None:
    """The axes of arrays of one shape as they lie in memory, the last of them neighbours; None
    where they lie in several orders, with gaps, or as new arrays do.
    """
    if not arrays or any(a.flags.c_contiguous for a in arrays):
        return None
    first = arrays[0]
    axes = [d for d, n in enumerate(first.shape) if n > 1]
    order = sorted(axes, key=lambda d: -first.strides[d])
    for a in arrays:
        size = a.itemsize
        for d in reversed(order):
            if a.strides[d] != size:
                return None
            size *= a.shape[d]
    return [d for d, n in enumerate(first.shape) if n <= 1] + order


def as_new(out: Any, order: tuple[int, ...] | None = None, alone: bool = False) -> Any:
    """An array to write with its axes in an order (None: as they are), a batch axis before them if
    `alone`; None if it does not lie in memory as a new array of that shape would.
    """
    seen = out[None] if alone else out
    seen = seen if order is None else seen.transpose(order)
    return seen if seen.flags.c_contiguous else None


def merged(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The same arrays (of one shape) with axes merged wherever all of them allow it, length-1 axes
    dropped.

    At least one axis remains.
    """
    shape = arrays[0].shape
    if len(shape) == 1:
        return arrays
    ends = [d for d, n in enumerate(shape) if n != 1]
    sizes = [shape[d] for d in ends]
    strides = [[a.strides[d] for d in ends] for a in arrays]
    for d in range(len(sizes) - 2, -1, -1):
        n = sizes[d + 1]
        if all(s[d] == s[d + 1] * n for s in strides):
            sizes[d : d + 2] = [sizes[d] * n]
            for s in strides:
                del s[d]
    if not sizes:
        return [a.reshape(1) for a in arrays]
    return [_viewed(a, tuple(sizes), tuple(s)) for a, s in zip(arrays, strides, strict=True)]


def _viewed(a: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    if a.shape == shape:
        return a
    if len(shape) == 1 and a.flags.c_contiguous:
        return a.reshape(-1)  # several times as quick
    return strided(a, shape, strides)


def window_count(op: str, n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    """How many windows of k positions, d apart, begin every s positions of an axis of n that is
    padded by p on both sides; with `ceil_mode` they may hang over the end.

    Raises:
        ShapeError: none fits, or padding is more than half of a window; `op` is told by its name.

    Example:
        >>> window_count("max_pool1d", 7, 3, 2, 0, 1, False), window_count("", 8, 3, 2, 0, 1, True)
        (3, 4)
    """
    if p > k // 2:
        raise ShapeError(f"{op}: padding={p} is more than half of kernel_size={k}")
    span = n + 2 * p - d * (k - 1) - 1
    m = (-(-span // s) if ceil_mode else span // s) + 1
    if ceil_mode and (m - 1) * s >= n + p:
        m -= 1  # the last window would begin behind the end
    if m < 1 or n < 1:
        gaps = f" with dilation={d}" if d > 1 else ""
        raise ShapeError(
            f"{op}: kernel_size={k}{gaps} does not fit into an axis of {n} with padding={p}"
        )
    return m
