"""Softmax and normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy import kernels as K
from tests.fuzz.check import Want, depth
from tests.fuzz.draws import F32, FLOATS, Call, Draw, draws, sums


def softmax(x: np.ndarray, axis: int, logarithm: bool = False) -> np.ndarray:
    away = x - x.max(axis, keepdims=True) if x.size else x
    if logarithm:
        return away - np.log(np.exp(away).sum(axis, keepdims=True))
    weights = np.exp(away)
    return weights / weights.sum(axis, keepdims=True)


@draws("softmax", "log_softmax")
def _(d: Draw, name: str) -> Call:
    dtype = d.one(FLOATS)
    x = d.array(d.shape(1), dtype)
    axis = d.axis(x.ndim)

    def want() -> Want:
        value = softmax(x.astype(np.float64), axis, name == "log_softmax")
        wide = np.where(np.isfinite(x), x, 0).astype(np.float64)
        far = (
            np.abs(wide).max(axis, keepdims=True) if x.size else 0.0
        )  # x - max rounds, and exp doubles that
        scale = np.abs(value) + far if name == "log_softmax" else value * (1 + far)
        return Want(value, dtype, (depth(x.shape[axis]) + 4) * sums(dtype) * scale)

    return Call(getattr(K, name), (x, axis), want, in_place=0)


def normalised(
    x: np.ndarray,
    axes: tuple[int, ...],
    eps: float,
    w: Any,
    b: Any,
    dtype: np.dtype,
    centred: bool = True,
) -> Want:
    """x less its mean over axes, by its deviation, times w plus b; `w` and `b` broadcast."""
    n = int(np.prod([x.shape[k] for k in axes]))
    mean = x.mean(axes, keepdims=True) if centred else 0.0
    away = x - mean
    factor = 1 / np.sqrt((away**2).mean(axes, keepdims=True) + eps)
    w, b = (1.0 if w is None else w), (0.0 if b is None else b)
    value = away * factor * w + b
    # the variance of numbers far from 0, all alike, is made of their rounding
    far = np.abs(x).max(axes, keepdims=True) if x.size else 0.0
    scale = (np.abs(away) + (far if centred else 0.0)) * factor * np.abs(w) + np.abs(b)
    off = (depth(n) * sums(dtype) * far * factor) ** 2 if centred else 0.0
    return Want(value, dtype, (depth(n) + 4) * sums(dtype) * scale + off * np.abs(value - b))


def parameters(d: Draw, shape: tuple[int, ...], dtype: np.dtype, count: int) -> list[Any]:
    """Weights and biases, of the input's dtype or f32, or None."""
    kind = dtype if d.maybe(0.8) else F32
    return [None if d.maybe(0.25) else d.array(shape, kind, "normal") for _ in range(count)]


def wide(v: Any) -> Any:
    return None if v is None else v.astype(np.float64)


@draws("layer_norm", "rms_norm")
def _(d: Draw, name: str) -> Call:
    dtype = d.one(FLOATS)
    x = d.array(d.shape(1, low=1), dtype, "" if d.maybe() else "normal")
    shape = x.shape[x.ndim - d.one(range(1, min(x.ndim, 2) + 1)) :]
    w, b = parameters(d, shape, dtype, 2)
    eps = d.one((1e-5, 1e-3, 0.1))
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    if name == "rms_norm":
        b = None
    want = lambda: normalised(
        x.astype(np.float64), axes, eps, wide(w), wide(b), dtype, name == "layer_norm"
    )
    args = (x, shape, w, b, eps) if name == "layer_norm" else (x, shape, w, eps)
    return Call(getattr(K, name), args, want, in_place=0)


@draws("group_norm", "batch_norm")
def _(d: Draw, name: str) -> Call:
    dtype, eps = d.one(FLOATS), d.one((1e-5, 1e-3, 0.1))
    groups = d.one((1, 2, 3, 4, 8))
    channels = groups * d.between(1, 12)
    rest = d.shape(1, 2, 1, 400)
    x = d.array((d.between(1, 5), channels, *rest), dtype, "" if d.maybe() else "normal")
    w, b = parameters(d, (channels,), dtype, 2)
    per = (1, channels, *(1,) * len(rest))
    if name == "group_norm":

        def grouped() -> Want:
            shape = (x.shape[0], groups, -1)
            spread = lambda v: None if v is None else np.broadcast_to(v.astype(np.float64).reshape(per), x.shape).reshape(shape)  # fmt: skip
            out = normalised(
                x.astype(np.float64).reshape(shape), (2,), eps, spread(w), spread(b), dtype
            )
            return Want(out.value.reshape(x.shape), dtype, out.error.reshape(x.shape))

        return Call(K.group_norm, (x, groups, w, b, eps), grouped, in_place=0)
    training = d.maybe(0.4)
    mean = d.array((channels,), F32, "normal", plain=True)
    variance = d.array((channels,), F32, "positive", plain=True)

    def want() -> Want:
        wx, axes = x.astype(np.float64), (0, *range(2, x.ndim))
        sw, sb = (None if v is None else v.astype(np.float64).reshape(per) for v in (w, b))
        if training:
            # scale and shift are one number each for a channel: x * scale + shift cancels where the
            # mean is far
            out = normalised(wx, axes, eps, sw, sb, dtype)
            return Want(out.value, dtype, 2 * out.error)
        factor = (1.0 if sw is None else sw) / np.sqrt(
            variance.astype(np.float64).reshape(per) + eps
        )
        m = mean.astype(np.float64).reshape(per)
        value = (wx - m) * factor + (0.0 if sb is None else sb)
        scale = (np.abs(wx) + np.abs(m)) * np.abs(factor) + (0.0 if sb is None else np.abs(sb))
        return Want(value, dtype, 8 * sums(dtype) * scale)

    args = (x, mean, variance, w, b, training, 0.1, eps)
    return Call(K.batch_norm, args, want, in_place=0, changed=(mean, variance) if training else ())
