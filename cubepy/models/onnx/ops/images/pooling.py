"""Pools over windows, over everything, and over regions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.ops.images.windows import Windows, windows
from cubepy.models.onnx.ops.reductions import empty_value
from cubepy.models.onnx.ops.shapes import padded
from cubepy.models.onnx.records import Call, ints, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


def counts(call: Call, size: tuple[int, ...], w: Windows) -> list[int]:
    """How many windows there are along each axis."""
    found = []
    up = bool(call.get("ceil_mode", 0)) and call.get("auto_pad", "NOTSET") == "NOTSET"
    for n, a, b, e, s in zip(size, w.before, w.after, w.spans(), w.stride, strict=True):
        span = n + a + b - e
        count = (-(-span // s) if up else span // s) + 1
        if up and (count - 1) * s >= n + a:
            count -= 1  # the last window would begin behind the end
        found.append(count)
    return found


def filled(call: Call, size: tuple[int, ...], w: Windows, many: list[int]) -> list[tuple[int, int]]:
    """Pads with which every window is whole."""
    ends = zip(size, w.before, w.after, w.spans(), w.stride, many, strict=True)
    return [(a, max(b, (c - 1) * s + e - n - a)) for n, a, b, e, s, c in ends]


@operator("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
    """The largest of each window, and its index in the whole tensor."""
    rank, size = len(x.shape) - 2, x.shape[2:]
    w = windows(call, size, call["kernel_shape"])
    many = counts(call, size, w)
    pads = filled(call, size, w, many)
    wants = call.wants(1)
    usual = all(a == b and a <= k // 2 for (a, b), k in zip(pads, w.kernel, strict=True))
    how: dict[str, Any] = {"kernel": w.kernel, "stride": w.stride, "dilation": w.dilation}
    how |= {"ceil_mode": False, "indices": wants}
    y, padding = x, (0,) * rank
    if usual:
        padding = tuple(a for a, _ in pads)
    else:
        y = padded(x, [(0, 0), (0, 0), *pads], empty_value("ReduceMax", x.dtype.numpy))
    found = apply("max_pool", y, padding=padding, **how)
    if not wants:
        return _cut(found[0] if isinstance(found, list) else found, many)
    values, at = (_cut(f, many) for f in found)
    return values, _whole(
        call, at, x.shape, (0,) * rank if usual else [a for a, _ in pads], y.shape
    )


def _cut(x: Tensor, many: list[int]) -> Tensor:
    return x if list(x.shape[2:]) == many else x[(..., *(slice(0, n) for n in many))]


def _whole(call: Call, at: Tensor, shape: tuple[int, ...], before: Any, inner: Any) -> Tensor:
    """Indices in a plane with pads as indices in the whole tensor."""
    size, parts = shape[2:], []
    for n in reversed(inner[2:]):
        parts.append(at % n)
        at = apply("floordiv", at, parts[-1] * 0 + n)
    parts = [p - b for p, b in zip(reversed(parts), before, strict=True)]
    order = range(len(size))
    if call.get("storage_order", 0):
        order = reversed(order)  # type: ignore[assignment]
    result, step = None, 1
    for k in reversed(list(order)):
        result = parts[k] * step if result is None else result + parts[k] * step
        step *= size[k]
    planes = np.arange(math.prod(shape[:2])).reshape(*shape[:2], *(1,) * len(size)) * step
    assert result is not None
    return result + T(planes, device=result.device)


def window_sums(x: Tensor, w: Windows, pads: list[tuple[int, int]]) -> Tensor:
    """The sum of each window: a convolution with ones, a plane at a time."""
    n, c = x.shape[:2]
    y = padded(x, [(0, 0), (0, 0), *pads])
    flat = y.reshape(n * c, 1, *y.shape[2:])
    ones = T.ones((1, 1, *w.kernel), dtype=x.dtype, device=x.device)
    made = apply(
        "conv",
        flat,
        ones,
        None,
        stride=w.stride,
        padding=(0,) * len(w.kernel),
        dilation=w.dilation,
        groups=1,
        precision=None,
    )
    return made.reshape(n, c, *made.shape[2:])


def reached(call: Call, size: tuple[int, ...], w: Windows, many: list[int]) -> Any:
    """How many elements each window has, of a host array that broadcasts."""
    result: Any = np.ones((1,) * len(size))
    whole = bool(call.get("count_include_pad", 0))
    for k, n in enumerate(size):
        low, high = (-w.before[k], n + w.after[k]) if whole else (0, n)
        taps = np.arange(w.kernel[k]) * w.dilation[k] - w.before[k]
        at = np.arange(many[k])[:, None] * w.stride[k] + taps
        found = ((at >= low) & (at < high)).sum(axis=1)
        result = result * found.reshape(-1, *(1,) * (len(size) - k - 1))
    return np.maximum(result, 1)


@operator("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    """The mean of each window."""
    size = x.shape[2:]
    w = windows(call, size, call["kernel_shape"])
    many = counts(call, size, w)
    pads = filled(call, size, w, many)
    usual = (
        w.even
        and all(d == 1 for d in w.dilation)
        and all(a == b and a <= k // 2 for (a, b), k in zip(pads, w.kernel, strict=True))
    )
    if usual and all(
        (n + 2 * a - k) // s + 1 == m
        for n, (a, _), k, s, m in zip(size, pads, w.kernel, w.stride, many, strict=True)
    ):
        return apply(
            "avg_pool",
            x,
            kernel=w.kernel,
            stride=w.stride,
            padding=w.before,
            ceil_mode=False,
            count_include_pad=bool(call.get("count_include_pad", 0)),
            divisor=None,
        )
    total = _cut(window_sums(x, w, pads), many)
    return total / T(reached(call, size, w, many), dtype=x.dtype, device=x.device)


@operator("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
    """The p-norm of each window."""
    p, size = call.get("p", 2), x.shape[2:]
    w = windows(call, size, call["kernel_shape"])
    many = counts(call, size, w)
    powers = x.abs() ** float(p)
    return _cut(window_sums(powers, w, filled(call, size, w, many)), many) ** (1 / p)


def _all_axes(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, len(x.shape)))


operator("GlobalAveragePool")(lambda call, x: x.mean(axis=_all_axes(x), keepdims=True))
operator("GlobalMaxPool")(lambda call, x: x.max(axis=_all_axes(x), keepdims=True))


@operator("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Tensor:
    """The p-norm of each channel."""
    p = call.get("p", 2)
    return (x.abs() ** float(p)).sum(axis=_all_axes(x), keepdims=True) ** (1 / p)


@operator("MaxUnpool", reads=(2,))
def max_unpool(call: Call, x: Tensor, index: Tensor, size: Any = None) -> Tensor:
    """Values where the maxima of a pool were, zero elsewhere."""
    w = windows(call, x.shape[2:], call["kernel_shape"])
    along = zip(x.shape[2:], w.stride, w.kernel, w.before, w.after, strict=True)
    inferred = (*x.shape[:2], *((n - 1) * s + k - a - b for n, s, k, a, b in along))
    shape = inferred if size is None else ints(size)
    zeros = T.zeros((math.prod(shape),), dtype=x.dtype, device=x.device)
    at = index.reshape(-1)
    if inferred != tuple(shape):  # indices are those of the inferred shape
        parts, rest = [], at
        for n in reversed(inferred):
            parts.append(rest % n)
            rest = apply("floordiv", rest, parts[-1] * 0 + n)
        parts.reverse()
        at = parts[0]
        for part, n in zip(parts[1:], shape[1:], strict=True):
            at = at * n + part
    return zeros.scatter(0, at, x.reshape(-1)).reshape(*shape)


@operator("MaxRoiPool", reads=(1,))
def max_roi_pool(call: Call, x: Tensor, rois: Any) -> Tensor:
    """The largest of parts of regions of interest."""
    rows, columns = call["pooled_shape"]
    scale, found = call.get("spatial_scale", 1.0), []
    for roi in rois:
        left, top, right, bottom = (round(float(v) * scale) for v in roi[1:])
        high, wide = max(bottom - top + 1, 1), max(right - left + 1, 1)
        cells = []
        for i in range(rows):
            y = [min(max(top + math.floor(i * high / rows), 0), x.shape[2])]
            y.append(min(max(top + math.ceil((i + 1) * high / rows), 0), x.shape[2]))
            for j in range(columns):
                a = min(max(left + math.floor(j * wide / columns), 0), x.shape[3])
                b = min(max(left + math.ceil((j + 1) * wide / columns), 0), x.shape[3])
                part = x[int(roi[0]), :, y[0] : y[1], a:b]
                cells.append(
                    part.max(axis=(1, 2)) if y[1] > y[0] and b > a else part.sum(axis=(1, 2))
                )
        found.append(T.stack(cells, axis=1).reshape(x.shape[1], rows, columns))
    return (
        T.stack(found, axis=0) if found else T.zeros((0, x.shape[1], rows, columns), dtype=x.dtype)
    )
