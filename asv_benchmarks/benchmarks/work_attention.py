"""Attention and its gradients: batch x heads x length x width."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers import Graph, Run, jax_module, jitted, node, torch_module
from benchmarks.work import Work, draw
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


def _jax(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """The heads come second here, third in JAX."""
    attention = jax_module().nn.dot_product_attention
    return attention(*(x.swapaxes(1, 2) for x in (q, k, v)), is_causal=causal).swapaxes(1, 2)


def _onnx(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> Graph:
    """The heads come third here, as a layer has them."""
    flat = [
        np.ascontiguousarray(x.swapaxes(1, 2)).reshape(len(x), x.shape[2], -1) for x in (q, k, v)
    ]
    how = {"domain": "com.microsoft", "num_heads": q.shape[1], "unidirectional": int(causal)}
    return node("MultiHeadAttention", constant=False, **how)(*flat)


def _gradient_data(b: int, h: int, n: int, d: int) -> tuple[np.ndarray, ...]:
    return (*_data(b, h, n, d), draw(b, h, n, d, seed=3))


def _gradients(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, grad: np.ndarray, causal: bool = False
) -> Run:
    result, sums = K.attention_forward(q, k, v, causal)
    return lambda: K.attention_gradients(grad, q, k, v, result, sums, causal)[1]


def _torch_gradients(q: Any, k: Any, v: Any, grad: Any, causal: bool = False) -> Run:
    torch = torch_module()
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        result = _torch(*inputs, causal)()
    return lambda: torch.autograd.grad(result, inputs, grad, retain_graph=True)[1]


def _exact_gradient(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, grad: np.ndarray, causal: bool = False
) -> np.ndarray:
    """That by the keys."""
    factor = 1 / np.sqrt(q.shape[-1])
    scores = q @ k.swapaxes(-1, -2) * factor
    if causal:
        scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    slopes = grad @ v.swapaxes(-1, -2)
    slopes = weights * (slopes - (weights * slopes).sum(-1, keepdims=True)) * factor
    return slopes.swapaxes(-1, -2) @ q


WORKS = {
    "attention": Work(
        ("1x8x1024x64", "1x12x128x64", "8x12x128x64"), _data, lambda *x: lambda: K.attention(*x), None, _torch, _onnx,
        _exact, flops=_flops, jax=jitted(_jax),
    ),
    "attention_causal": Work(
        ("1x8x1024x64", "1x16x2048x64"), _data, lambda *x: lambda: K.attention(*x, is_causal=True), None,
        lambda *x: _torch(*x, causal=True), lambda *x: _onnx(*x, causal=True), lambda *x: _exact(*x, causal=True),
        lambda *n: _flops(*n) / 2, jax=jitted(lambda *x: _jax(*x, causal=True)),
    ),
    "attention_gradients": Work(
        ("1x8x1024x64", "8x12x128x64"), _gradient_data, _gradients, None, _torch_gradients, exact=_exact_gradient,
        flops=lambda *n: _flops(*n) * 2.5,
    ),
    "attention_gradients_causal": Work(
        ("1x8x1024x64", "1x16x2048x64"), _gradient_data, lambda *x: _gradients(*x, causal=True), None,
        lambda *x: _torch_gradients(*x, causal=True), exact=lambda *x: _exact_gradient(*x, causal=True),
        flops=lambda *n: _flops(*n) * 1.25,
    ),
}  # fmt: skip
