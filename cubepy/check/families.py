"""Cases of the library: one or a few small calls of every family of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn
from cubepy.check.case import Case, Put
from cubepy.tensor import Tensor, as_tensor

F, H = np.float32, np.float16


def draw(*shape: int, dtype: Any = F, seed: int = 0) -> np.ndarray:
    """Random numbers, the same every time."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def whole(*shape: int, most: int = 1000) -> np.ndarray:
    """Random integers."""
    return np.random.default_rng(1).integers(0, most, shape).astype(np.int32)


X, IMAGE, QUERY = draw(3, 70), draw(1, 4, 9, 8), draw(1, 2, 5, 8)
A, B = draw(10, 24), draw(24, 12)
ROUND = 1e-5
"""What sums in another order may be off by."""
ROUND_HALF = 4e-3


def _linear(scheme: str, rows: int, put: Put) -> Any:
    layer = nn.Linear(64, 48, bias=False)
    layer.weight.assign_(cb.tensor(draw(48, 64)))
    model = cb.quant.quantize(nn.Sequential(layer).eval(), scheme, measure_speed=False).model
    x = as_tensor(put(draw(rows, 64)))
    with cb.no_grad():
        return model.to(x.device)(x)


def _gradients(put: Put) -> Any:
    """Of a layer, a norm and a loss."""
    x, w = (as_tensor(put(v)) for v in (draw(4, 12), draw(12, 6)))
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    y = nn.functional.layer_norm((x @ w).gelu(), (6,))
    (y * y).sum().backward()
    return x.grad, w.grad


def _attention_gradients(put: Put) -> Any:
    given = (as_tensor(put(draw(1, 2, 5, 8, seed=s))) for s in range(3))
    q, k, v = (t.detach().requires_grad_() for t in given)
    nn.functional.scaled_dot_product_attention(q, k, v).sum().backward()
    return q.grad, k.grad, v.grad


@cb.jit
def _program(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).relu().softmax(-1)


def _again(put: Put) -> Any:
    """A program, run until it is a plan of launches."""
    x, w = as_tensor(put(A)), as_tensor(put(B))
    with cb.no_grad():
        for _ in range(4):
            found = _program(x, w)
    return found


CASES = (
    Case("elementwise", lambda put: K.gelu(put(X)), ROUND),
    Case("copies of views", lambda put: K.copy(put(draw(20, 33)).T)),
    Case("concat and pad", lambda put: K.pad(K.concat([put(X), put(X)], 1), (1, 2, 0, 1))),
    Case("sum", lambda put: K.sum(put(X), 1), ROUND),
    Case("max", lambda put: K.max(put(X), 0)),
    Case("argmax", lambda put: K.argmax(put(X), 1)),
    Case("variance", lambda put: K.var(put(X), 1), ROUND),
    Case("cumsum", lambda put: K.cumsum(put(whole(2, 300)), 1)),
    Case("sort", lambda put: K.sort(put(X))),
    Case("argsort", lambda put: K.argsort(put(whole(2, 90)))),
    Case("topk", lambda put: tuple(K.topk(put(draw(2, 100)), 4))),
    Case("gather", lambda put: K.gather(put(X), 1, put(whole(3, 20, most=70)))),
    Case(
        "scatter",
        lambda put: K.scatter(put(X), 1, put(whole(3, 20, most=70)), put(draw(3, 20)), "add"),
        ROUND,
    ),
    Case("softmax", lambda put: K.softmax(put(X)), ROUND),
    Case("layer_norm", lambda put: K.layer_norm(put(X), 70, put(draw(70))), ROUND),
    Case("rms_norm", lambda put: K.rms_norm(put(X), 70, put(draw(70))), ROUND),
    Case("group_norm", lambda put: K.group_norm(put(IMAGE), 2), ROUND),
    Case("max_pool2d", lambda put: K.max_pool2d(put(IMAGE), 3, 2, 1)),
    Case("avg_pool2d", lambda put: K.avg_pool2d(put(IMAGE), 2), ROUND),
    Case("interpolate", lambda put: K.interpolate(put(IMAGE), (13, 5), mode="bilinear"), ROUND),
    Case("random numbers", lambda put: K.bernoulli(put(X * 0 + F(0.5)), generator=K.Generator(1))),
    Case("conv2d", lambda put: K.conv2d(put(IMAGE), put(draw(6, 4, 3, 3)), None, 1, 1), ROUND),
    Case(
        "depthwise conv2d",
        lambda put: K.conv2d(put(IMAGE), put(draw(4, 1, 3, 3)), None, 1, 1, groups=4),
        ROUND,
    ),
    Case(
        "conv_transpose2d",
        lambda put: K.conv_transpose2d(put(IMAGE), put(draw(4, 3, 3, 3)), None, 2, 1),
        ROUND,
    ),
    Case("matmul", lambda put: K.matmul(put(A), put(B)), ROUND),
    Case("matmul of f16", lambda put: K.matmul(put(A.astype(H)), put(B.astype(H))), ROUND_HALF),
    Case("matmul of one row", lambda put: K.matmul(put(A[:1]), put(draw(96, 24)).T), ROUND),
    Case("attention", lambda put: K.attention(*(put(QUERY) for _ in range(3))), ROUND),
    Case("gradients of attention", _attention_gradients, ROUND),
    Case("int8 linear", lambda put: _linear("int8", 4, put), ROUND_HALF),
    Case("int8 linear of one row", lambda put: _linear("int8", 1, put), ROUND_HALF),
    Case("int4 linear", lambda put: _linear("int4", 4, put), ROUND_HALF),
    Case("gradients", _gradients, ROUND),
    Case("a program", _again, ROUND),
)
"""The library."""
