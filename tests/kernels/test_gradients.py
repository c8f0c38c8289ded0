"""Every gradient kernel agrees with central differences of its forward function along a random
direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cubepy import kernels as K

RNG = np.random.default_rng(11)
X, W = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 4, 9, 7), (6, 2, 3, 2)))
Q, KEY, V = (
    RNG.standard_normal((1, h, n, d)).astype(np.float32)
    for h, n, d in ((4, 5, 6), (2, 9, 6), (2, 9, 3))
)
HOW = (2, 1, 1, 2)  # stride, padding, dilation, groups


def attention_gradient(which: int) -> Callable[[Any, Any], Any]:
    def gradient(x: Any, g: Any) -> Any:
        given = [x if k == which else a for k, a in enumerate((Q, KEY, V))]
        return K.attention_gradients(g, *given, *K.attention_forward(*given))[which]

    return gradient


def max_pool_gradient(x: Any, g: Any) -> Any:
    return K.max_pool2d_input(x.shape, g, K.max_pool2d(x, 3, 2, 1, return_indices=True)[1], 3, 2, 1)


CASES: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "conv_input": (X, lambda x: K.conv2d(x, W, None, *HOW), lambda x, g: K.conv_input(x.shape, W, g, *HOW)),
    "conv_weight": (W, lambda w: K.conv2d(X, w, None, *HOW), lambda w, g: K.conv_weight(X, w.shape, g, *HOW)),
    "avg_pool": (X, lambda x: K.avg_pool2d(x, 3, 2, 1), lambda x, g: K.avg_pool2d_input(x.shape, g, 3, 2, 1)),
    "adaptive": (X, lambda x: K.adaptive_avg_pool2d(x, 4), lambda x, g: K.adaptive_avg_pool2d_input(x.shape, g)),
    "max_pool": (X, lambda x: K.max_pool2d(x, 3, 2, 1), max_pool_gradient),
    "bicubic": (
        X, lambda x: K.interpolate(x, (5, 11), mode="bicubic"), lambda x, g: K.interpolate_input(x.shape, g, "bicubic")
    ),
    "query": (Q, lambda x: K.attention(x, KEY, V, enable_gqa=True), attention_gradient(0)),
    "key": (KEY, lambda x: K.attention(Q, x, V, enable_gqa=True), attention_gradient(1)),
    "value": (V, lambda x: K.attention(Q, KEY, x, enable_gqa=True), attention_gradient(2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_is_the_slope_of_its_function(name: str) -> None:
    x, forward, backward = CASES[name]
    rng = np.random.default_rng(12)
    g = rng.standard_normal(np.shape(forward(x))).astype(np.float32)
    along = rng.standard_normal(x.shape).astype(np.float32)
    step = np.float32(2**-10)  # results are f32: shorter steps lose more to rounding than they win
    up, down = (np.asarray(forward(x + s * along), np.float64) for s in (step, -step))
    slope = np.vdot(g, up - down) / (2 * float(step))
    terms = np.abs(np.asarray(backward(x, g), np.float64) * along).sum()
    np.testing.assert_allclose(np.vdot(backward(x, g), along), slope, rtol=0, atol=2e-3 * terms)
