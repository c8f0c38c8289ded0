"""Gradients of normalisations along rows."""

from __future__ import annotations

import math
from typing import Any

from cubepy.tensor.gradients.rules import Backward, vjp


@vjp("softmax")
def _softmax(b: Backward, g: Any) -> Any:
    y = b.result
    along = g * y
    return along - y * along.sum(axis=b.attrs["axis"], keepdims=True)


@vjp("log_softmax")
def _log_softmax(b: Backward, g: Any) -> Any:
    return g - b.result.exp() * g.sum(axis=b.attrs["axis"], keepdims=True)


@vjp("layer_norm")
def _layer_norm(b: Backward, g: Any) -> Any:
    """With r = 1 / sqrt(var + eps) and h = (x - mean) r: by x, r (gw - mean(gw) - h mean(gw h)); by
    weight and bias the sums of g h and g over rows.
    """
    x, weight, _ = b.inputs
    shape = b.attrs["normalized_shape"]
    n, lead = math.prod(shape), x.shape[: x.ndim - len(shape)]
    rows = x.reshape(-1, n)
    g = g.reshape(-1, n)
    centred = rows - rows.mean(axis=1, keepdims=True)
    scale = ((centred * centred).mean(axis=1, keepdims=True) + b.attrs["eps"]).rsqrt()
    h = centred * scale
    by_x = by_weight = by_bias = None
    if b.needs[0]:
        gw = g if weight is None else g * weight.reshape(1, n)
        inner = gw - gw.mean(axis=1, keepdims=True) - h * (gw * h).mean(axis=1, keepdims=True)
        by_x = (inner * scale).reshape(*lead, *shape)
    if b.needs[1]:
        by_weight = (g * h).sum(axis=0).reshape(shape)
    if b.needs[2]:
        by_bias = g.sum(axis=0).reshape(shape)
    return by_x, by_weight, by_bias
