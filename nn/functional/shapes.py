"""Other orders of the same elements."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.control.composed import composed


@composed
def pixel_shuffle(input: Any, upscale_factor: int) -> Tensor:
    """(..., C * r * r, H, W) -> (..., C, H * r, W * r) (Shi et al., 2016).

    Raises:
        ShapeError: channels that are no multiple of r * r.

    Example:
        >>> pixel_shuffle([[[1.0]], [[2.0]], [[3.0]], [[4.0]]], 2)
        tensor([[[1., 2.],
                 [3., 4.]]])
    """
    x, r = as_tensor(input), arguments.size("upscale_factor", upscale_factor, 1)
    if x.ndim < 3 or x.shape[-3] % (r * r):
        raise ShapeError(f"pixel_shuffle by {r}: {x.shape} has no multiple of {r * r} channels")
    *lead, c, h, w = x.shape
    n = len(lead)
    parts = x.reshape(*lead, c // (r * r), r, r, h, w)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return parts.permute(order).reshape(*lead, c // (r * r), h * r, w * r)


@composed
def pixel_unshuffle(input: Any, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) -> (..., C * r * r, H, W): the reverse.

    Raises:
        ShapeError: a height or width that is no multiple of r.

    Example:
        >>> pixel_unshuffle([[[1.0, 2.0], [3.0, 4.0]]], 2).shape
        (4, 1, 1)
    """
    x, r = as_tensor(input), arguments.size("downscale_factor", downscale_factor, 1)
    if x.ndim < 3 or x.shape[-1] % r or x.shape[-2] % r:
        raise ShapeError(f"pixel_unshuffle by {r}: {x.shape} is no image of multiples of {r}")
    *lead, c, h, w = x.shape
    n = len(lead)
    parts = x.reshape(*lead, c, h // r, r, w // r, r)
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return parts.permute(order).reshape(*lead, c * r * r, h // r, w // r)


def channel_shuffle(input: Any, groups: int) -> Tensor:
    """Channels of `groups` groups in turns: (N, groups * k, ...) -> the same (Zhang et al., 2018).

    Raises:
        ShapeError: channels that the groups do not divide.

    Example:
        >>> channel_shuffle([[[1.0], [2.0], [3.0], [4.0]]], 2).flatten()
        tensor([1., 3., 2., 4.])
    """
    x, n = as_tensor(input), arguments.size("groups", groups, 1)
    if x.ndim < 3 or x.shape[1] % n:
        raise ShapeError(f"channel_shuffle: {n} groups do not divide the channels of {x.shape}")
    parts = x.reshape(x.shape[0], n, x.shape[1] // n, *x.shape[2:])
    return parts.transpose(1, 2).reshape(x.shape)
