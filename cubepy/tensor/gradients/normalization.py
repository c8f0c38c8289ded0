"""Gradients of normalisations along rows and by channels."""

from __future__ import annotations

import math
from typing import Any

from cubepy.lang.dtypes import f32
from cubepy.tensor.array import apply
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import mode

SHORT = 16
"""Elements of a channel of an image that are no row."""


@vjp("softmax")
def _softmax(b: Backward, g: Any) -> Any:
    y = b.result
    along = g * y
    return along - y * along.sum(axis=b.attrs["axis"], keepdims=True)


@vjp("log_softmax")
def _log_softmax(b: Backward, g: Any) -> Any:
    return g - b.result.exp() * g.sum(axis=b.attrs["axis"], keepdims=True)


def _wide(x: Any) -> Any:
    """Narrow floats in f32: squares overflow in f16, and every step would be rounded."""
    return x.astype(f32) if x.dtype.is_float and x.dtype.bits < 32 else x


def _rows_back(rows: Any, g: Any, gw: Any, eps: float, centred: bool) -> tuple[Any, Any]:
    """With h = (x - mean) r and r = 1 / sqrt(mean((x - mean)^2) + eps) of each row, the mean 0
    where it is not centred: the gradient by x, r (gw - mean(gw) - h mean(gw h)); and g h.

    Args:
        rows: x as a matrix.
        g: the gradient by the result, as rows.
        gw: that by h.
        eps: added to the variance.
        centred: whether the mean is taken away.
    """
    seen = rows - rows.mean(axis=1, keepdims=True) if centred else rows
    scale = ((seen * seen).mean(axis=1, keepdims=True) + eps).rsqrt()
    h = seen * scale
    inner = gw - h * (gw * h).mean(axis=1, keepdims=True)
    if centred:
        inner = inner - gw.mean(axis=1, keepdims=True)
    return inner * scale, g * h


@vjp("layer_norm", "rms_norm", follows=True)
def _layer_norm(b: Backward, g: Any) -> Any:
    """By weight and bias the sums of g h and g over rows."""
    x, weight = b.inputs[:2]
    centred = len(b.inputs) > 2
    shape = b.attrs["normalized_shape"]
    n = math.prod(shape)
    rows = (math.prod(x.shape[: x.ndim - len(shape)]), n)
    g = _wide(g.reshape(rows))
    gw = g if weight is None else g * weight.reshape(1, n)
    by_x, by_rows = _rows_back(_wide(x.reshape(rows)), g, gw, b.attrs["eps"], centred)
    grads = [by_x.reshape(x.shape), by_rows.sum(axis=0).reshape(shape) if b.needs[1] else None]
    if centred:
        grads.append(g.sum(axis=0).reshape(shape) if b.needs[2] else None)
    return grads


def _along(x: Any, of_channels: Any) -> Any:
    """Numbers of channels beside (N, C, ...)."""
    return of_channels.reshape(-1, *(1,) * (x.ndim - 2))


def _by_channel(x: Any) -> Any:
    """Sums of (N, C, ...) for each channel."""
    return x.sum(axis=(0, *range(2, x.ndim)))


def _sums(x: Any, g: Any, mean: Any) -> tuple[Any, Any]:
    """Sums of g and of g (x - mean) for each channel of (N, C, ...): first those of each image,
    which rows give in one pass, then those of all.
    """
    images, channels = x.shape[:2]
    rows, n = images * channels, math.prod(x.shape[2:])
    if n < SHORT:
        return _by_channel(g), _by_channel(g * (x - _along(x, mean)))
    seen, g = _wide(x.reshape(rows, n)), _wide(g.reshape(rows, n))
    middle = mean.reshape(1, channels).expand(images, channels).reshape(rows, 1)
    parts = g.sum(axis=1), (g * (seen - middle)).sum(axis=1)
    first, second = [part.reshape(images, channels).sum(axis=0) for part in parts]
    return first, second


@vjp("group_norm", follows=True)
def _group_norm(b: Backward, g: Any) -> Any:
    """With r, the mean and h of a group as `_rows_back` has them: by x, g w r less r (mean(g w) +
    h mean(g w h)). Those means are of sums of g and g h by channel, which by weight and bias are
    the gradients, so every tensor is read once for them and once for the result.
    """
    x, weight, g = _wide(b.inputs[0]), b.inputs[1], _wide(g)
    (images, channels), groups = x.shape[:2], b.attrs["groups"]
    rows, own = images * groups, channels // groups
    n = x.size // rows if rows else 0
    whole = x.reshape(rows, n)
    mean = whole.mean(axis=1, keepdims=True)
    seen = whole - mean
    scale = ((seen * seen).mean(axis=1, keepdims=True) + b.attrs["eps"]).rsqrt()
    by_channel = (rows, own, n // own if own else 0)
    x, g, middle = x.reshape(by_channel), g.reshape(by_channel), mean.unsqueeze(2)
    sums, along = g.sum(axis=2), -((middle - x) * g).sum(axis=2) * scale  # x - middle would be kept
    factor, weighed = scale, (sums, along)
    if weight is not None:
        w = weight.reshape(1, groups, own).expand(images, groups, own).reshape(rows, own)
        factor, weighed = w * scale, (sums * w, along * w)
    of_groups = [part.sum(axis=1, keepdims=True) * scale * (1 / max(n, 1)) for part in weighed]
    even, tilt = of_groups[0], of_groups[1] * scale
    by_x = g * factor.unsqueeze(2) - (x - middle) * tilt.unsqueeze(2) - even.unsqueeze(2)
    return (
        by_x.reshape(b.inputs[0].shape),
        along.reshape(images, channels).sum(axis=0) if b.needs[1] else None,
        sums.reshape(images, channels).sum(axis=0) if b.needs[2] else None,
    )


@vjp("batch_norm")
def _batch_norm(b: Backward, g: Any, by_mean: Any, by_var: Any) -> Any:
    """A channel is what a row is to a layer norm: the gradient by x is g A + (x - mean) B + C with
    a number of each for a channel. Mean and variance have gradients, too: 1 / n, 2 (x - mean) / n.
    """
    x, weight, _ = b.inputs
    n = x.size // x.shape[1]
    mean, var = b.results[1:]
    if mean is None or var is None or (mode.enabled and mean.value.call is None):
        mean, var = apply("batch_norm", x, None, None, **b.attrs)[1:]
    by_x = by_weight = by_bias = None
    if g is not None:
        scale = (var + b.attrs["eps"]).rsqrt()
        by_bias, along = _sums(x, g, mean)
        by_weight = along * scale
        factor = scale if weight is None else scale * weight
        by_mean = _plus(by_mean, by_bias * -factor)
        by_var = _plus(by_var, along * factor * scale * scale * -0.5)
        by_x = g * _along(x, factor)
    if by_mean is not None:
        by_x = _plus(by_x, _along(x, by_mean * (1 / n)))
    if by_var is not None:
        by_x = _plus(by_x, (x - _along(x, mean)) * _along(x, by_var * (2 / n)))
    return by_x, by_weight, by_bias


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a + b


@vjp("channel_norm")
def _channel_norm(b: Backward, g: Any) -> Any:
    x, mean, var, weight, _ = b.inputs
    scale = (var + b.attrs["eps"]).rsqrt()
    factor = scale if weight is None else scale * weight
    by_x = by_mean = by_var = by_weight = by_bias = None
    if b.needs[0]:
        by_x = g * _along(x, factor)
    if any(b.needs[1:]):
        by_bias, along = _sums(x, g, mean)
        by_weight = along * scale
        by_mean = by_bias * -factor
        by_var = along * factor * scale * scale * -0.5
    return by_x, by_mean, by_var, by_weight, by_bias
