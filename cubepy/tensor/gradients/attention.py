"""Gradients of attention: a kernel's from the log-sum-exp of the scores; their own gradients, and
those by a mask, from the formula in ops of tensors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.lang.dtypes import bool_, f32
from cubepy.tensor.array import Tensor, apply, constant, tensor
from cubepy.tensor.gradients.functional import by_values, through_formula
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import enable_grad
from cubepy.tensor.namespace import where

LEAST = -1e30
"""A score that is not seen: its exponential is 0 beside any that is."""


def formula(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """softmax(scale q k.T + mask) v and the log-sum-exp of the scores, which are written down;
    narrow floats in f32. A query that may look at nothing gives zeros.
    """
    dtype = q.dtype
    if dtype.bits < 32:
        q, k, v = q.astype(f32), k.astype(f32), v.astype(f32)
    k, v = _for_heads(k, q.shape[1]), _for_heads(v, q.shape[1])
    factor = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    scores = q @ k.transpose(-1, -2) * factor
    seen = None
    if mask is not None and mask.dtype is bool_:
        seen = mask
    elif mask is not None:
        scores = scores + mask
        seen = mask > -math.inf
    if is_causal:
        below = tensor(np.tri(q.shape[2], k.shape[2], dtype=bool)).to(q.device)
        seen = below if seen is None else seen & below
    if seen is not None:
        scores = where(seen, scores, constant(LEAST, scores.dtype))
    weights, sums = scores.softmax(-1), scores.logsumexp(-1)
    if seen is not None:
        weights = where(seen, weights, constant(0, weights.dtype))
        sums = where(sums > LEAST / 2, sums, constant(-math.inf, sums.dtype))
    return (weights @ v).astype(dtype), sums


def _for_heads(x: Tensor, heads: int) -> Tensor:
    """(B, G, S, D) for each of the heads that share it."""
    b, g, s, d = x.shape
    if g == heads:
        return x
    return x.unsqueeze(2).expand(b, g, heads // g, s, d).reshape(b, heads, s, d)


@vjp("attention", "attention_forward")
def _attention(b: Backward, g: Any, by_sums: Any = None) -> Any:
    q, k, v, mask = b.inputs
    if b.needs[3] or by_sums is not None:
        return _by_formula(b, [g, by_sums])
    if len(b.results) > 1 and all(r is not None for r in b.results):
        result, lse = b.results
    else:
        result, lse = apply("attention_forward", q, k, v, mask, **b.attrs)
    return (
        *apply("attention_gradients", g, q, k, v, result.detach(), lse.detach(), mask, **b.attrs),
        None,
    )


def _by_formula(b: Backward, grads: list[Any]) -> Any:
    q, k, v, mask = b.inputs
    wanted = mask if b.needs[3] else None

    def attention(q: Tensor, k: Tensor, v: Tensor, m: Any) -> Any:
        return formula(q, k, v, mask if m is None else m, **b.attrs)

    return through_formula(attention, [q, k, v, wanted], grads)


@vjp("attention_gradients")
def _attention_gradients(b: Backward, *grads: Any) -> Any:
    """The result and the sums are functions of the other inputs, as which they are seen."""
    mask = b.inputs[6]

    def gradients(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        with enable_grad():
            result = formula(q, k, v, mask, **b.attrs)[0]
        return by_values(result, [q.value, k.value, v.value], g, create_graph=True)

    return (*through_formula(gradients, b.inputs[:4], grads), None, None, None)
