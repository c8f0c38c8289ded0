"""Losses, and steps of optimizers."""

from __future__ import annotations

from typing import Any

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


def nll(call: Call, x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Minus the log-probability of each target, weighted, and reduced."""
    ignored, reduction = call.get("ignore_index"), call.get("reduction", "mean")
    at = target.astype("i64")
    counts = None
    if ignored is not None:
        counts = at != ignored
        at = T.where(counts, at, T.zeros_like(at))
    loss = -x.gather(1, at.unsqueeze(1)).squeeze(1)
    by = None
    if weight is not None:
        by = apply("take", weight, at.reshape(-1), axis=0).reshape(*at.shape)
    if counts is not None:
        by = T.where(counts, T.ones_like(loss) if by is None else by, T.zeros_like(loss))
    loss = loss if by is None else loss * by
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if by is None else loss.sum() / by.sum()


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The loss of log-probabilities (N, C, ...) at targets (N, ...)."""
    return nll(call, x, target, weight)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None
) -> Any:
    """The loss of scores (N, C, ...) at targets (N, ...), and log-probabilities."""
    logs = apply("log_softmax", x, axis=1)
    return nll(call, logs, target, weight), logs


TRAINING = "ai.onnx.preview.training"


def _groups(values: tuple[Tensor, ...], kinds: int) -> list[tuple[Tensor, ...]]:
    """(parameter, gradient, states) of each parameter."""
    n = len(values) // kinds
    return [tuple(values[k * n + i] for k in range(kinds)) for i in range(n)]


def _joined(found: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(v for kind in zip(*found, strict=True) for v in kind)


@operator("Adagrad", domain=TRAINING)
def adagrad(call: Call, rate: Tensor, step: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Steps by gradients over the root of all squares (Duchi et al., 2011)."""
    rate = rate / (step.astype(rate.dtype) * call.get("decay_factor", 0.0) + 1)
    found: list[tuple[Tensor, ...]] = []
    for x, g, h in _groups(values, 3):
        g = x * call.get("norm_coefficient", 0.0) + g
        h = h + g * g
        found.append((x - rate * g / (h.sqrt() + call.get("epsilon", 1e-6)), h))
    return _joined(found)


@operator("Adam", domain=TRAINING)
def adam(call: Call, rate: Tensor, step: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Steps by running means over the root of those of squares (Kingma and Ba, 2014)."""
    a, b = call.get("alpha", 0.9), call.get("beta", 0.999)
    count = step.astype(rate.dtype)
    ratio = (1 - T.full_like(count, b) ** count).sqrt() / (1 - T.full_like(count, a) ** count)
    rate = T.where(count > 0, rate * ratio, rate)
    found: list[tuple[Tensor, ...]] = []
    for x, g, v, h in _groups(values, 4):
        g = x * call.get("norm_coefficient", 0.0) + g
        v, h = v * a + g * (1 - a), h * b + g * g * (1 - b)
        new = x - rate * v / (h.sqrt() + call.get("epsilon", 1e-6))
        found.append((new * (1 - call.get("norm_coefficient_post", 0.0)), v, h))
    return _joined(found)


@operator("Momentum", domain=TRAINING)
def momentum(call: Call, rate: Tensor, step: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
    """Steps by a running sum of gradients, Nesterov's on demand."""
    alpha, beta = call["alpha"], call["beta"]
    found: list[tuple[Tensor, ...]] = []
    for x, g, v in _groups(values, 3):
        g = x * call["norm_coefficient"] + g
        first = T.where(step > 0, T.full_like(rate, beta), T.ones_like(rate))
        v = v * alpha + g * first
        way = g + v * alpha if call["mode"] == "nesterov" else v
        found.append((x - rate * way, v))
    return _joined(found)
