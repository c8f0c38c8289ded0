"""Reading images between their pixels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.errors import LaunchError, ShapeError
from cubepy.nn import arguments
from cubepy.tensor import Tensor, apply, as_tensor
from cubepy.tensor.control.composed import composed

PADDING = ("zeros", "border", "reflection")
AWAY = 4.0
"""How many pixels outside nothing of an image is seen, by any mode."""


@composed
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
    axes = x.ndim - 2
    if axes not in (2, 3) or g.ndim != x.ndim or g.shape[-1] != axes or g.shape[0] != x.shape[0]:
        raise ShapeError(f"grid_sample: an image of shape {x.shape} has no grid of {g.shape}")
    if 0 in x.shape[2:]:
        raise ShapeError(f"grid_sample: an image of shape {x.shape} has no pixels")
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and axes == 3):
        raise LaunchError(f"mode is 'bilinear', 'nearest', or of images 'bicubic', not {mode!r}")
    if padding_mode not in PADDING:
        raise LaunchError(f"padding_mode is one of {', '.join(PADDING)}, not {padding_mode!r}")
    align = arguments.flag("align_corners", bool(align_corners))
    g = T.where(g == g, arguments.widened(g), -1.0)
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return sampled(
        x, positions(g, x.shape[2:], kind, padding_mode, align), kind, padding_mode, align
    )


def positions(
    grid: Tensor, size: tuple[int, ...], mode: str, padding: str, align: bool
) -> list[Tensor]:
    """Pixels of each axis for a grid, whose last axis has the last axis's positions first.

    Example:
        >>> positions(as_tensor([[[-1.0, 1.0]]]), (2, 4), "linear", "zeros", True)
        [tensor([[1.]]), tensor([[0.]])]
    """
    found = []
    for k, n in enumerate(size):
        g = grid[..., len(size) - 1 - k]
        position = (g + 1) * ((n - 1) / 2) if align else ((g + 1) * n - 1) / 2
        if padding == "zeros":
            position = position.maximum(-AWAY).minimum(n - 1 + AWAY)
        elif padding == "border" and mode != "cubic":
            position = position.maximum(0).minimum(n - 1)
        elif padding == "reflection" and mode != "cubic":
            position = reflected(position, n, align).maximum(0).minimum(n - 1)
        found.append(position)
    return found


def read_at(x: Tensor, at: list[Tensor], padding: str, align: bool) -> Tensor:
    """x (N, C, *size) at whole positions (N, *out), one tensor for each axis; (N, C, *out).

    Example:
        >>> read_at(as_tensor([[[1.0, 3.0]]]), [as_tensor([[1.0, 2.0]])], "zeros", True)
        tensor([[[3., 0.]]])
    """
    size = x.shape[2:]
    inside, flat = None, None
    for position, n in zip(at, size, strict=True):
        if padding == "reflection":
            position = reflected(position, n, align)
        within = (position >= 0) & (position <= n - 1)
        inside = within if inside is None else inside & within
        whole = position.maximum(0).minimum(n - 1).astype("i64")
        flat = whole if flat is None else flat * n + whole
    assert flat is not None and inside is not None
    n, c = x.shape[:2]
    out = flat.shape[1:]
    index = flat.reshape(n, 1, math.prod(out)).expand(n, c, math.prod(out)).contiguous()
    found = x.reshape(n, c, math.prod(size)).gather(2, index).reshape(n, c, *out)
    if padding == "zeros":
        found = T.where(inside.unsqueeze(1), found, T.zeros_like(found))
    return found


def reflected(position: Tensor, n: int, align: bool) -> Tensor:
    """Positions outside folded back, at the middle of the border's pixels or at their edges.

    Example:
        >>> reflected(as_tensor([-1.0, 3.0]), 3, True)
        tensor([1., 1.])
    """
    low, high = (0.0, float(n - 1)) if align else (-0.5, n - 0.5)
    span = high - low
    if span == 0:
        return T.zeros_like(position)
    away = (position - low).abs()
    folds = (away / span).floor()
    rest = away - folds * span
    odd = (folds - (folds / 2).floor() * 2) > 0.5
    return T.where(odd, high - rest, low + rest)


def weights_cubic(t: Tensor, a: float = -0.75) -> list[Tensor]:
    """Weights of the four pixels around a position (Keys, 1981).

    Example:
        >>> [w.item() for w in weights_cubic(as_tensor(0.0))]
        [0.0, 1.0, 0.0, 0.0]
    """

    def near(d: Tensor) -> Tensor:
        return ((d * (a + 2)) - (a + 3)) * d * d + 1

    def away(d: Tensor) -> Tensor:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    return [away(t + 1), near(t), near(1 - t), away(2 - t)]


def sampled(x: Tensor, at: list[Tensor], mode: str, padding: str, align: bool = True) -> Tensor:
    """x (N, C, *size) at positions (N, *out) in pixels, one tensor for each axis.

    Args:
        x, at: see above.
        mode: "nearest", "linear" or "cubic".
        padding, align: see `grid_sample`.

    Example:
        >>> sampled(as_tensor([[[1.0, 3.0]]]), [as_tensor([[0.25]])], "linear", "zeros")
        tensor([[[1.5]]])
    """
    if mode == "nearest":
        return read_at(x, [apply("round", p) for p in at], padding, align)
    first, weights = [], []
    for position in at:
        base = position.floor()
        t = position - base
        first.append(base if mode == "linear" else base - 1)
        weights.append([1 - t, t] if mode == "linear" else weights_cubic(t))
    result = None
    for taps in itertools.product(range(len(weights[0])), repeat=len(at)):
        weight = None
        for k, tap in enumerate(taps):
            weight = weights[k][tap] if weight is None else weight * weights[k][tap]
        assert weight is not None
        value = read_at(x, [b + tap for b, tap in zip(first, taps, strict=True)], padding, align)
        part = arguments.widened(value) * weight.unsqueeze(1).astype(arguments.widened(x).dtype)
        result = part if result is None else result + part
    assert result is not None
    return result.astype(x.dtype)


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
