"""Reading images between their pixels: grids, regions of interest."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, ints, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


def read_at(x: Tensor, at: list[Tensor], padding: str, align: bool) -> Tensor:
    """x (N, C, *size) at whole positions (N, *out), one tensor for each axis; (N, C, *out)."""
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
    index = flat.reshape(n, 1, -1).expand(n, c, int(np.prod(out))).contiguous()
    found = x.reshape(n, c, -1).gather(2, index).reshape(n, c, *out)
    if padding == "zeros":
        found = T.where(inside.unsqueeze(1), found, T.zeros_like(found))
    return found


def reflected(position: Tensor, n: int, align: bool) -> Tensor:
    """Positions outside folded back, at the middle of the border's pixels or at their edges."""
    low, high = (0.0, float(n - 1)) if align else (-0.5, n - 0.5)
    span = high - low
    if span == 0:
        return position * 0
    away = (position - low).abs()
    folds = (away / span).floor()
    rest = away - folds * span
    odd = (folds - (folds / 2).floor() * 2) > 0.5
    return T.where(odd, high - rest, low + rest)


def weights_cubic(t: Tensor, a: float = -0.75) -> list[Tensor]:
    """Weights of the four pixels around a position (Keys, 1981)."""

    def near(d: Tensor) -> Tensor:
        return ((d * (a + 2)) - (a + 3)) * d * d + 1

    def away(d: Tensor) -> Tensor:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    return [away(t + 1), near(t), near(1 - t), away(2 - t)]


def sampled(x: Tensor, at: list[Tensor], mode: str, padding: str, align: bool = True) -> Tensor:
    """x (N, C, *size) at positions (N, *out) in pixels, one tensor for each axis."""
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
        part = value * weight.unsqueeze(1).astype(x.dtype)
        result = part if result is None else result + part
    assert result is not None
    return result


@operator("GridSample")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    """An image at positions from -1 to 1, of which the last axis is the first coordinate."""
    mode = call.get("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    align = bool(call.get("align_corners", 0))
    padding = call.get("padding_mode", "zeros")
    rank, at = len(x.shape) - 2, []
    for k, n in enumerate(x.shape[2:]):
        g = grid[..., rank - 1 - k]
        position = (g + 1) * ((n - 1) / 2) if align else ((g + 1) * n - 1) / 2
        if padding == "border" and mode != "cubic":
            position = position.maximum(0).minimum(n - 1)
        elif padding == "reflection" and mode != "cubic":
            position = reflected(position, n, align).maximum(0).minimum(n - 1)
        at.append(position)
    return sampled(x, at, mode, padding, align)


@operator("AffineGrid", reads=(1,))
def affine_grid(call: Call, theta: Tensor, size: Any) -> Tensor:
    """Positions that an affine map gives, for `GridSample`."""
    _, _, *lengths = ints(size)
    align, rank = call.get("align_corners", 0), len(lengths)
    axes = []
    for n in lengths:
        steps = np.linspace(-1, 1, n) if align else (np.arange(n) * 2 + 1) / n - 1
        axes.append(steps)
    full = np.meshgrid(*axes, indexing="ij")
    ones = np.stack([*full[::-1], np.ones(lengths)], -1).reshape(-1, rank + 1)
    base = T(ones, dtype=theta.dtype, device=theta.device)
    made = base.unsqueeze(0) @ theta.permute(0, 2, 1)
    return made.reshape(theta.shape[0], *lengths, rank)


@operator("RoiAlign", reads=(1, 2))
def roi_align(call: Call, x: Tensor, rois: Any, batch: Any) -> Tensor:
    """Means or maxima of points in the parts of regions of interest (He et al., 2017)."""
    rows, columns = call.get("output_height", 1), call.get("output_width", 1)
    half = call.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    if call.version < 16:
        half = False
    scale, found = call.get("spatial_scale", 1.0), []
    for roi, b in zip(rois.astype(np.float64), batch, strict=True):
        left, top, right, bottom = roi * scale - (0.5 if half else 0.0)
        high, wide = bottom - top, right - left
        if not half:
            high, wide = max(high, 1.0), max(wide, 1.0)
        ratio = call.get("sampling_ratio", 0)
        high_taps = max(1, ratio if ratio > 0 else int(np.ceil(high / rows)))
        wide_taps = max(1, ratio if ratio > 0 else int(np.ceil(wide / columns)))
        y = top + high / rows * (np.arange(rows * high_taps) + 0.5) / high_taps
        z = left + wide / columns * (np.arange(columns * wide_taps) + 0.5) / wide_taps
        found.append(
            _region(call, x[int(b) : int(b) + 1], y, z, (rows, high_taps, columns, wide_taps))
        )
    if not found:
        return T.zeros((0, x.shape[1], rows, columns), dtype=x.dtype)
    return T.concat(found, axis=0)


def _region(call: Call, x: Tensor, y: Any, z: Any, parts: tuple[int, ...]) -> Tensor:
    taps = []
    for at, n in ((y, x.shape[2]), (z, x.shape[3])):
        inside = (at >= -1) & (at <= n)
        at = np.maximum(at, 0)
        low = np.minimum(np.floor(at).astype(np.int64), n - 1)
        high = np.minimum(low + 1, n - 1)
        t = np.where(low >= n - 1, 0.0, at - low)
        taps.append([(low, (1 - t) * inside), (high, t * inside)])
    found = []
    for (i, u), (j, v) in itertools.product(*taps):
        rows = apply("take", x, T(i, device=x.device), axis=2)
        pixels = apply("take", rows, T(j, device=x.device), axis=3)
        weight = T(u[:, None] * v[None, :], dtype=x.dtype, device=x.device)
        found.append(pixels * weight)
    rows_, high_taps, columns, wide_taps = parts
    maximum = call.get("mode", "avg") == "max"
    if maximum:
        value = found[0]
        for other in found[1:]:
            value = value.maximum(other)
    else:
        value = found[0] + found[1] + found[2] + found[3]
    cells = value.reshape(1, x.shape[1], rows_, high_taps, columns, wide_taps)
    return cells.max(axis=(3, 5)) if maximum else cells.mean(axis=(3, 5))
