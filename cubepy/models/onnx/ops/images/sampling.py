"""Reading images between their pixels: grids, regions of interest."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, ints, operator
from cubepy.nn import functional as F
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply
from cubepy.tensor.control.sampled import positions, sampled


@operator("GridSample")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    """An image at positions from -1 to 1, of which the last axis is the first coordinate."""
    mode = call.get("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    align = bool(call.get("align_corners", 0))
    padding = call.get("padding_mode", "zeros")
    if mode != "cubic" and x.ndim in (4, 5) and x.dtype.is_float and grid.dtype.is_float:
        return apply("grid_sample", x, grid, mode=mode, padding=padding, align=align)  # type: ignore[no-any-return]
    at = positions(grid, x.shape[2:], mode, padding, align)
    return sampled(x, at, mode, padding, align)


@operator("AffineGrid", reads=(1,))
def affine_grid(call: Call, theta: Tensor, size: Any) -> Tensor:
    """Positions that an affine map gives, for `GridSample`."""
    return F.affine_grid(theta, tuple(ints(size)), bool(call.get("align_corners", 0)))


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
