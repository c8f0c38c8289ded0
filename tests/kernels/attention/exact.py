"""Attention in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def exact(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """The result and the log-sum-exp; zeros for a query that sees nothing."""
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], axis=1).astype(np.float64) for a in (k, v))
    s = q.astype(np.float64) @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == np.bool_ else s + mask
    if causal:
        s = np.where(np.tril(np.ones(s.shape[2:], np.bool_)), s, -np.inf)
    top = s.max(-1, keepdims=True)
    w = np.exp(s - np.where(np.isinf(top), 0, top))
    total = w.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return w @ v / np.where(total == 0, 1, total), (top + np.log(total))[..., 0]
