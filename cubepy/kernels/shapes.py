"""Simplifying shapes before a launch: fewer, longer axes mean longer runs of neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.runtime.device_array import DeviceArray
from cubepy.runtime.layout import reshaped


def broadcast_shape(*arrays: np.ndarray) -> tuple[int, ...]:
    """The shape that arrays broadcast to.

    Raises:
        ShapeError: they do not go together.
    """
    try:
        return np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        shapes = " and ".join(str(a.shape) for a in arrays)
        raise ShapeError(f"the shapes {shapes} do not broadcast together") from None


def strided(a: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """The memory of an array in another shape, with other strides in bytes; what they reach is not checked."""
    if isinstance(a, DeviceArray):
        return a.strided(shape, strides)
    return np.lib.stride_tricks.as_strided(a, shape, strides, writeable=a.flags.writeable)


def view_as(a: Any, shape: tuple[int, ...]) -> Any:
    """The array in another shape, as a view.

    Raises:
        AttributeError: its strides allow no view.
    """
    return a.reshape_view(shape) if isinstance(a, DeviceArray) else reshaped(a, shape)


def merged(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The same arrays (of one shape) with axes merged wherever all of them allow it, length-1 axes dropped.

    At least one axis remains.
    """
    shape = arrays[0].shape
    keep = [d for d, n in enumerate(shape) if n != 1]
    arrays = [_take_axes(a, keep) for a in arrays]
    d = arrays[0].ndim - 2
    while d >= 0:
        n = arrays[0].shape[d + 1]
        if all(a.strides[d] == a.strides[d + 1] * n for a in arrays):
            arrays = [_join(a, d) for a in arrays]
        d -= 1
    return [a if a.ndim else a.reshape(1) for a in arrays]


def _take_axes(a: np.ndarray, keep: list[int]) -> np.ndarray:
    return strided(a, tuple(a.shape[d] for d in keep), tuple(a.strides[d] for d in keep))  # type: ignore[no-any-return]


def _join(a: np.ndarray, d: int) -> np.ndarray:
    shape = (*a.shape[:d], a.shape[d] * a.shape[d + 1], *a.shape[d + 2 :])
    strides = (*a.strides[:d], a.strides[d + 1], *a.strides[d + 2 :])
    return strided(a, shape, strides)  # type: ignore[no-any-return]
