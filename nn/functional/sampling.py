"""Reading images between their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.errors import LaunchError, ShapeError
from cubepy.nn import arguments
from cubepy.tensor import Tensor, apply, as_tensor
from cubepy.tensor.control.composed import composed
from cubepy.tensor.control.sampled import grid_sampled
from cubepy.tensor.ops.pooling import check_grid

PADDING = ("zeros", "border", "reflection")
KINDS = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
_by_formula = composed(grid_sampled)


def grid_sample(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """An image at the positions of a grid (Jaderberg et al., 2015).

    Args:
        input: (N, C, H, W), or (N, C, D, H, W).
        grid: (N, H', W', 2), or (N, D', H', W', 3): positions from -1 to 1, x first; NaN is -1.
        mode: "bilinear" (of volumes, too), "nearest" or "bicubic" (of images; a = -3/4).
        padding_mode: what is outside: "zeros", the nearest pixel of the "border", or the image's
            "reflection".
        align_corners: whether -1 and 1 are the middles of the outermost pixels, not their edges.

    Returns:
        (N, C, H', W'), or (N, C, D', H', W').

    Raises:
        ShapeError: an image or a grid of other axes.
        LaunchError: another mode.

    Example:
        >>> grid_sample([[[[1.0, 3.0]]]], [[[[0.0, 0.0], [-0.5, 0.0]]]])
        tensor([[[[2., 1.]]]])
    """
    x, g = as_tensor(input), as_tensor(grid)
    kind, align = KINDS.get(mode) if type(mode) is str else None, align_corners
    if kind is None or (kind == "cubic" and x.ndim == 5):
        raise LaunchError(f"mode is 'bilinear', 'nearest', or of images 'bicubic', not {mode!r}")
    if type(padding_mode) is not str or padding_mode not in PADDING:
        raise LaunchError(f"padding_mode is one of {', '.join(PADDING)}, not {padding_mode!r}")
    if type(align) is not bool:
        align = arguments.flag("align_corners", bool(align))
    narrow = x.dtype.storage_only or g.dtype.storage_only
    if kind != "cubic" and x.dtype.is_float and g.dtype.is_float and not narrow:
        return apply("grid_sample", x, g, mode=kind, padding=padding_mode, align=align)  # type: ignore[no-any-return]
    check_grid(x, g, x.shape[2:])
    return _by_formula(x, g, kind, padding_mode, align)  # type: ignore[no-any-return]


def affine_grid(theta: Any, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The positions that affine maps give, for `grid_sample`.

    Args:
        theta: (N, 2, 3), or (N, 3, 4) of volumes.
        size: of the result of `grid_sample`: (N, C, H, W), or (N, C, D, H, W).
        align_corners: whether -1 and 1 are the middles of the outermost pixels, not their edges.

    Returns:
        (N, H, W, 2), or (N, D, H, W, 3).

    Raises:
        ShapeError: maps or sizes of other axes.

    Example:
        >>> affine_grid([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.5]]], (1, 1, 1, 2))
        tensor([[[[-0.5,  0.5],
                  [ 0.5,  0.5]]]])
    """
    maps, lengths = as_tensor(theta), [arguments.size("size", n, 1) for n in size[2:]]
    rank = len(lengths)
    if rank not in (2, 3) or maps.ndim != 3 or maps.shape != (size[0], rank, rank + 1):
        raise ShapeError(f"affine_grid of {tuple(size)}: no maps of the shape {maps.shape}")
    align = arguments.flag("align_corners", bool(align_corners))
    axes = []
    for n in lengths:
        steps = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        axes.append(steps if align else (np.arange(n) * 2 + 1) / n - 1)
    full = np.meshgrid(*axes, indexing="ij")
    ones = np.stack([*full[::-1], np.ones(lengths)], -1).reshape(-1, rank + 1)
    base = as_tensor(ones.astype(np.float64)).to(maps.device).astype(maps.dtype)
    return (base.unsqueeze(0) @ maps.mT).reshape(maps.shape[0], *lengths, rank)
