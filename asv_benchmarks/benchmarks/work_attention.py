"""Attention: batch x heads x length x width."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.work import Run, Work, draw, torch_module
from cubepy import kernels as K


def _data(b: int, h: int, n: int, d: int) -> tuple[np.ndarray, ...]:
    return tuple(draw(b, h, n, d, seed=s) for s in range(3))


def _flops(b: int, h: int, n: int, d: int) -> float:
    return 4.0 * b * h * n * n * d


def _exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True) @ v


def _torch(q: Any, k: Any, v: Any, causal: bool = False) -> Run:
    attention = torch_module().nn.functional.scaled_dot_product_attention
    return lambda: attention(q, k, v, is_causal=causal)


WORKS = {
    "attention": Work(
        ("1x8x1024x64", "1x12x128x64", "8x12x128x64"), _data, lambda *x: lambda: K.attention(*x), None, _torch,
        exact=_exact, flops=_flops,
    ),
    "attention_causal": Work(
        ("1x8x1024x64", "1x16x2048x64"), _data, lambda *x: lambda: K.attention(*x, is_causal=True), None,
        lambda *x: _torch(*x, causal=True), exact=lambda *x: _exact(*x, causal=True),
        flops=lambda *n: _flops(*n) / 2,
    ),
}  # fmt: skip
