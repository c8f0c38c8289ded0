"""Other sizes of images: each axis is a few taps with weights that shapes and scales decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, axes_of, ints, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply

MOST_TAPS = 16
"""Taps up to which an axis is read tap by tap; more are a product with a matrix."""


def positions(mode: str, n: int, m: int, scale: float, roi: tuple[float, float]) -> Any:
    """Where in an axis of n each of m new elements is."""
    at = np.arange(m, dtype=np.float64)
    if mode == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        exact = scale * n
        return n / 2 * (1 - m / exact) + (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if m > 1 else np.zeros(m)
    if mode in ("align_corners", "tf_half_pixel_for_nn"):
        if mode == "tf_half_pixel_for_nn":
            return (at + 0.5) / scale
        whole = scale * n
        return at * (n - 1) / (whole - 1) if whole > 1 else np.zeros(m)
    if mode == "tf_crop_and_resize":
        first, last = roi
        if m == 1:
            return np.array([0.5 * (first + last) * (n - 1)])
        return first * (n - 1) + at * (last - first) * (n - 1) / (m - 1)
    return at / scale  # asymmetric


def nearest(at: Any, n: int, mode: str) -> Any:
    """The element next to each position."""
    rules: dict[str, Callable[[Any], Any]] = {
        "round_prefer_floor": lambda p: np.ceil(p - 0.5),
        "round_prefer_ceil": lambda p: np.floor(p + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return np.clip(rules[mode](at).astype(np.int64), 0, n - 1)


def taps(at: Any, n: int, call: Call, scale: float) -> tuple[Any, Any]:
    """Elements (m, taps) and their weights for each position, linear or cubic."""
    cubic = call.get("mode", "nearest") == "cubic"
    reach = 2 if cubic else 1
    wide = max(1.0, 1 / scale) if call.get("antialias", 0) else 1.0
    half = math.ceil(reach * wide)
    first = np.floor(at).astype(np.int64) - half + 1
    index = first[:, None] + np.arange(2 * half)
    d = np.abs(at[:, None] - index) / wide
    if cubic:
        a = call.get("cubic_coeff_a", -0.75)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        away = ((d - 5) * d + 8) * a * d - 4 * a
        weight = np.where(d <= 1, near, np.where(d < 2, away, 0))
    else:
        weight = np.maximum(0, 1 - d)
    outside = (index < 0) | (index >= n)
    if call.get("exclude_outside", 0):
        weight = np.where(outside, 0, weight)
    if call.get("exclude_outside", 0) or wide > 1:
        weight = weight / weight.sum(axis=1, keepdims=True)
    index = np.clip(index, 0, n - 1)
    used = np.abs(weight).max(axis=0) > 0
    return index[:, used], weight[:, used]


def along(x: Tensor, axis: int, index: Any, weight: Any) -> Tensor:
    """Weighted elements along an axis."""
    if index.shape[1] > MOST_TAPS:
        matrix = np.zeros((len(index), x.shape[axis]))
        np.add.at(matrix, (np.arange(len(index))[:, None], index), weight)
        moved = x.movedim(axis, -1) @ T(matrix.T, dtype=x.dtype, device=x.device)
        return moved.movedim(-1, axis)
    shape = [1] * len(x.shape)
    shape[axis] = len(index)
    result = None
    for k in range(index.shape[1]):
        part = apply("take", x, T(np.ascontiguousarray(index[:, k]), device=x.device), axis=axis)
        factor = T(np.ascontiguousarray(weight[:, k]), dtype=x.dtype, device=x.device)
        part = part * factor.reshape(*shape)
        result = part if result is None else result + part
    assert result is not None
    return result


def _scales(call: Call, shape: tuple[int, ...], scales: Any, sizes: Any) -> tuple[Any, Any, Any]:
    """The axes that change, their scales and their new lengths."""
    axes = axes_of(call.get("axes", range(len(shape))), len(shape))
    old = [shape[a] for a in axes]
    if sizes is not None and sizes.size:
        new = list(ints(sizes))
        found = [m / n if n else 1.0 for m, n in zip(new, old, strict=True)]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            one = min(found) if policy == "not_larger" else max(found)
            found = [one] * len(found)
            new = [math.floor(n * one + 0.5) for n in old]
        return axes, found, new
    if scales is None or not scales.size:
        raise call.refuse("neither scales nor sizes are given")
    found = [float(s) for s in scales.reshape(-1)]
    return axes, found, [math.floor(n * s + 1e-9) for n, s in zip(old, found, strict=True)]


@operator("Resize", 11, reads=(1, 2, 3))
def resize(call: Call, x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None) -> Tensor:
    """Another size, by the nearest elements or by linear or cubic interpolation."""
    axes, factors, new = _scales(call, x.shape, scales, sizes)
    mode = call.get("coordinate_transformation_mode", "half_pixel")
    return _resized(call, x, (axes, factors, new), mode, roi)


def _resized(call: Call, x: Tensor, to: tuple[Any, Any, Any], mode: str, roi: Any) -> Tensor:
    axes, factors, new = to
    dtype = x.dtype
    kind = call.get("mode", "nearest")
    simple = kind == "nearest"
    x = x if simple or dtype.is_float else x.astype("f32")
    lost: list[tuple[int, Any]] = []
    old = x.shape
    if 0 in new:
        lengths = {**dict(enumerate(old)), **dict(zip(axes, new, strict=True))}
        return T.zeros(tuple(lengths.values()), dtype=dtype, device=x.device)
    for k, (axis, scale, m) in enumerate(zip(axes, factors, new, strict=True)):
        n = old[axis]
        ends = (0.0, 1.0)
        if roi is not None and roi.size:
            ends = float(roi.reshape(-1)[k]), float(roi.reshape(-1)[k + len(axes)])
        if m == n and scale == 1 and ends == (0.0, 1.0):
            continue
        at = positions(mode, n, m, scale, ends)
        if mode == "tf_crop_and_resize":
            beyond = (at < 0) | (at > n - 1)
            lost += [(axis, beyond)] if beyond.any() else []
        if simple:
            index = nearest(at, n, call.get("nearest_mode", "round_prefer_floor"))
            x = repeated(x, axis, index)
        else:
            if kind == "linear" and mode != "tf_crop_and_resize" and not call.get("antialias", 0):
                at = np.clip(at, 0, n - 1)
            x = along(x, axis, *taps(at, n, call, scale))
    for axis, beyond in lost:
        shape = [1] * len(x.shape)
        shape[axis] = len(beyond)
        value = T.full_like(x, call.get("extrapolation_value", 0.0))
        x = T.where(T(beyond, device=x.device).reshape(*shape), value, x)
    if x.dtype is dtype:
        return x
    limits = np.iinfo(dtype.numpy)
    return x.round().maximum(int(limits.min)).minimum(int(limits.max)).astype(dtype)


def repeated(x: Tensor, axis: int, index: Any) -> Tensor:
    """Elements along an axis by index; whole repeats and strides are views."""
    n, m = x.shape[axis], len(index)
    if n and m % n == 0 and np.array_equal(index, np.repeat(np.arange(n), m // n)):
        return x.repeat_interleave(m // n, axis)
    return apply("take", x, T(index, device=x.device), axis=axis)


@operator("Resize", 10, reads=(1,))
@operator("Upsample", 7, reads=(1,))
def upsample(call: Call, x: Tensor, scales: Any = None) -> Tensor:
    """Another size, as before opset 11."""
    scales = np.array(call.get("scales", ()), np.float32) if scales is None else scales
    axes, factors, new = _scales(call, x.shape, scales, None)
    old = dict(call.node.attributes)
    call.node.attributes.setdefault("nearest_mode", "floor")
    if old.get("mode") == "bilinear":
        call.node.attributes["mode"] = "linear"
    return _resized(call, x, (axes, factors, new), "asymmetric", None)
