"""Simplifying shapes before a launch: fewer, longer axes mean longer runs of neighbours."""

from __future__ import annotations

import numpy as np

from cubepy.errors import ShapeError


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
    return np.lib.stride_tricks.as_strided(
        a, tuple(a.shape[d] for d in keep), tuple(a.strides[d] for d in keep), writeable=a.flags.writeable
    )


def _join(a: np.ndarray, d: int) -> np.ndarray:
    shape = (*a.shape[:d], a.shape[d] * a.shape[d + 1], *a.shape[d + 2 :])
    strides = (*a.strides[:d], a.strides[d + 1], *a.strides[d + 2 :])
    return np.lib.stride_tricks.as_strided(a, shape, strides, writeable=a.flags.writeable)
