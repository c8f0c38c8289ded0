"""Images read between pixels, windows as columns, pools undone, resizing with a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.exported.records import target
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, apply, as_tensor

MODES = ("bilinear", "nearest", "bicubic")
PADDING = ("zeros", "border", "reflection")


@target("grid_sampler grid_sampler_2d grid_sampler_3d")
def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    return F.grid_sample(x, grid, MODES[mode], PADDING[padding], align_corners)


@target("affine_grid_generator")
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    return F.affine_grid(theta, tuple(size), align_corners)


@target("im2col")
def im2col(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    return F.unfold(x, *(tuple(v) for v in (kernel, dilation, padding, stride)))


@target("col2im")
def col2im(x: Tensor, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    return F.fold(x, *(tuple(v) for v in (size, kernel, dilation, padding, stride)))


@target("max_unpool2d max_unpool3d")
def max_unpool(x: Tensor, indices: Tensor, size: Sequence[int], *rest: Any) -> Tensor:
    """Zeros, but for the elements of a pool where they were."""
    many = len(size)
    lead = x.shape[: x.ndim - many]
    held = int(np.prod(x.shape[x.ndim - many :]))
    flat, index = x.reshape(*lead, held), indices.reshape(*lead, held)
    empty = T.zeros((*lead, int(np.prod(size))), dtype=x.dtype)
    return empty.scatter(-1, index, flat).reshape(*lead, *size)


@target("channel_shuffle native_channel_shuffle")
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    n, c, *size = x.shape
    parts = x.reshape(n, groups, c // groups, *size)
    return parts.transpose(1, 2).reshape(x.shape)


def _triangle(x: Any) -> Any:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: Any, a: float = -0.5) -> Any:
    """Keys' kernel, 1981."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    away = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x < 1, near, np.where(x < 2, away, 0))


def filtered_weights(n: int, count: int, scale: float, kernel: Any, support: float) -> np.ndarray:
    """Weights (count, n) by which an axis becomes shorter: the kernel, as wide as a step.

    Example:
        >>> filtered_weights(4, 2, 2.0, _triangle, 1.0)
        array([[0.42857143, 0.42857143, 0.14285714, 0.        ],
               [0.        , 0.14285714, 0.42857143, 0.42857143]])
    """
    wide = max(scale, 1.0)
    weights = np.zeros((count, n))
    for k in range(count):
        center = scale * (k + 0.5)
        low = max(int(center - support * wide + 0.5), 0)
        high = min(int(center + support * wide + 0.5), n)
        taps = kernel((np.arange(low, high) - center + 0.5) / wide)
        weights[k, low:high] = taps / taps.sum()
    return weights


def _smoothed(kernel: Any, support: float) -> Callable[..., Tensor]:
    def run(x: Tensor, size: Any, align_corners: bool, *rest: Any) -> Tensor:
        listed = len(rest) == 1 and isinstance(rest[0], (list, tuple))
        factors = rest[0] if listed else [f for f in rest if f is not None]
        for axis, n in enumerate(x.shape[2:], 2):
            factor = factors[axis - 2] if factors else 0.0
            count = int(n * factor) if size is None else size[axis - 2]
            if align_corners:
                scale = (n - 1) / (count - 1) if count > 1 else 0.0
            else:
                scale = 1 / factor if factor else n / count
            made = filtered_weights(n, count, scale, kernel, support)
            weights = as_tensor(made).to(x.device).astype(x.dtype)
            x = (x.movedim(axis, -1) @ weights.mT).movedim(-1, axis)
        return x

    return run


target("_upsample_bilinear2d_aa")(_smoothed(_triangle, 1.0))
target("_upsample_bicubic2d_aa")(_smoothed(_cubic, 2.0))


# Bags of embeddings


@target("embedding_bag.padding_idx")
def padded_embedding_bag(weight: Tensor, *args: Any) -> list[Any]:
    """The same; a row that does not count may be named from the end."""
    padding = args[-1]
    rows = weight.shape[0]
    return embedding_bag(weight, *args[:-1], None if padding is None else padding % rows)


@target("embedding_bag _embedding_bag _embedding_bag_forward_only")
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> list[Any]:
    """Sums, means or maxima of rows, bag by bag; bags begin at offsets."""
    bags = offsets.shape[0] - (1 if include_last_offset else 0)
    starts = offsets[:bags].astype("i64")
    rows = apply("take", weight, indices.astype("i64"), axis=0)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    count = indices.shape[0]
    bag = T.searchsorted(starts, T.arange(count, dtype="i64"), side="right") - 1
    kept = T.full((count,), True)
    if padding_idx is not None and padding_idx >= 0:
        kept = indices != padding_idx
    to = T.where(kept, bag, bags).astype("i64")
    many = T.zeros((bags + 1,), dtype="i64").index_add(0, to, T.ones((count,), dtype="i64"))[:bags]
    width = weight.shape[1]
    if mode == 2:
        start = T.full((bags + 1, width), float("-inf"), dtype=weight.dtype)
        found = apply("put", start, to, rows, axis=0, update="max")[:bags]
        found = T.where((many > 0).unsqueeze(1), found, 0.0)
    else:
        found = T.zeros((bags + 1, width), dtype=weight.dtype).index_add(0, to, rows)[:bags]
        if mode == 1:
            found = found / many.maximum(1).astype(weight.dtype).unsqueeze(1)
    return [found, bag, many, None]
