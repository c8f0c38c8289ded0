"""Images read between their pixels, as a formula in ops: for what has no kernel, and for gradients
of gradients.
"""

from __future__ import annotations

import itertools
import math

from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.namespace import where, zeros_like

AWAY = 4.0
"""How many pixels outside nothing of an image is seen, by any mode."""


def _wide(x: Tensor) -> Tensor:
    """Narrow floats in f32."""
    return x.astype("f32") if x.dtype.is_float and x.dtype.bits < 32 else x


def grid_sampled(x: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    """x (N, C, *size) at a grid (N, *out, axes) of positions from -1 to 1; NaN is -1.

    Args:
        x, grid: see above.
        mode: "nearest", "linear" or "cubic".
        padding: "zeros", "border" or "reflection".
        align: -1 and 1 are the middles of the outermost pixels, not their edges.

    Example:
        >>> from cubepy.tensor.array import as_tensor
        >>> x, grid = as_tensor([[[[1.0, 3.0]]]]), as_tensor([[[[0.0, 0.0]]]])
        >>> grid_sampled(x, grid, "linear", "zeros", False)
        tensor([[[[2.]]]])
    """
    known = where(grid == grid, _wide(grid), -1.0)
    return sampled(x, positions(known, x.shape[2:], mode, padding, align), mode, padding, align)


def positions(
    grid: Tensor, size: tuple[int, ...], mode: str, padding: str, align: bool
) -> list[Tensor]:
    """Pixels of each axis for a grid, whose last axis has the last axis's positions first.

    Example:
        >>> from cubepy.tensor.array import as_tensor
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
        >>> from cubepy.tensor.array import as_tensor
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
        found = where(inside.unsqueeze(1), found, zeros_like(found))
    return found


def reflected(position: Tensor, n: int, align: bool) -> Tensor:
    """Positions outside folded back, at the middle of the border's pixels or at their edges.

    Example:
        >>> from cubepy.tensor.array import as_tensor
        >>> reflected(as_tensor([-1.0, 3.0]), 3, True)
        tensor([1., 1.])
    """
    low, high = (0.0, float(n - 1)) if align else (-0.5, n - 0.5)
    span = high - low
    if span == 0:
        return zeros_like(position)
    away = (position - low).abs()
    folds = (away / span).floor()
    rest = away - folds * span
    odd = (folds - (folds / 2).floor() * 2) > 0.5
    return where(odd, high - rest, low + rest)


def weights_cubic(t: Tensor, a: float = -0.75) -> list[Tensor]:
    """Weights of the four pixels around a position (Keys, 1981).

    Example:
        >>> from cubepy.tensor.array import as_tensor
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
        >>> from cubepy.tensor.array import as_tensor
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
        part = _wide(value) * weight.unsqueeze(1).astype(_wide(x).dtype)
        result = part if result is None else result + part
    assert result is not None
    return result.astype(x.dtype)
