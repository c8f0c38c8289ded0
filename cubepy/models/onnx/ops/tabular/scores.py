"""Scores of classes and targets: what is done to them last, and labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np

from cubepy.models.onnx.records import ALL, Call, operator

ML = "ai.onnx.ml"
LEAST = 1e-7
"""What is nearer to zero is zero for SOFTMAX_ZERO."""


def of_tables(name: str, since: int = 1) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Record what computes an operator of `ai.onnx.ml` on the host; numbers that are none, or too
    large, are results.
    """

    def keep(run: Callable[..., Any]) -> Callable[..., Any]:
        operator(name, since, domain=ML, reads=(ALL,), splits=True)(np.errstate(all="ignore")(run))
        return run

    return keep


def rows_of(x: Any) -> Any:
    """A table (N, F) of floats; a vector is one row."""
    x = x.reshape(1, -1) if x.ndim < 2 else x.reshape(len(x), math.prod(x.shape[1:]))
    return x if x.dtype.kind == "f" and x.dtype.itemsize >= 4 else x.astype(np.float32)


def logistic(x: Any) -> Any:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def softmax(x: Any, zeros_stay: bool = False) -> Any:
    """Softmax of rows; on demand scores of zero stay zero, and the others share."""
    powers = np.exp(x - np.maximum.reduce(x, axis=-1, keepdims=True))
    if not zeros_stay:  # the largest power is 1, so no sum is 0
        return powers / np.add.reduce(powers, axis=-1, keepdims=True)
    powers = np.where(np.abs(x) > LEAST, powers, 0)
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def probit(x: Any) -> Any:
    """The number below which a normal variable is with this probability."""
    normal = NormalDist()
    ends = {0.0: -np.inf, 1.0: np.inf}
    each = [
        ends[v] if v in ends else normal.inv_cdf(v) if 0 < v < 1 else np.nan
        for v in x.reshape(-1).tolist()
    ]
    return np.array(each, x.dtype).reshape(x.shape)


def transformed(call: Call, scores: Any) -> Any:
    """Scores (N, C) after the node's `post_transform`."""
    kind = call.get("post_transform", "NONE")
    if isinstance(kind, int):  # of TreeEnsemble
        kind = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[kind]
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return logistic(scores)
    if kind in ("SOFTMAX", "SOFTMAX_ZERO"):
        return softmax(scores, kind == "SOFTMAX_ZERO")
    if kind == "PROBIT":
        return probit(scores)
    raise call.refuse(f"a post_transform of {kind!r}")


def labels_of(call: Call, *names: str) -> Any:
    """The labels of the classes, int64s or texts."""
    for name in names:
        given = call.get(name)
        if given:
            texts = isinstance(given[0], (str, bytes))
            return np.array(given, object if texts else np.int64)
    raise call.refuse(f"no labels ({', '.join(names)})")


def label_at(labels: Any, index: Any) -> Any:
    """Labels by number."""
    return labels[index]


def both(call: Call, score: Any, chance: bool) -> tuple[Any, Any]:
    """Of scores (N,) for one of two classes which one it is, and the scores of both.

    Args:
        call: the node.
        score: above 0 it is the second class.
        chance: whether scores without a transform are chances: what is left is the first one's.
    """
    index = (score > 0).astype(np.int64)
    if chance and call.get("post_transform", "NONE") == "NONE":
        return index, np.stack([1 - score, score], axis=1)
    return index, transformed(call, np.stack([-score, score], axis=1))
