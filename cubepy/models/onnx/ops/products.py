"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.records import Call, operator
from cubepy.nn import functional as F
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


@operator("MatMul", host=lambda call, a, b: np.matmul(a, b))
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """As `numpy.matmul`."""
    made = a @ b
    return made if made.dtype is a.dtype else made.astype(a.dtype)


@operator("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """alpha A B + beta C."""
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    a = a.T if call.get("transA", 0) else a
    if a.dtype.is_float and alpha == 1 and beta == 1 and (c is None or len(c.shape) == 1):
        weight = b if call.get("transB", 0) else b.T
        if c is None or c.shape == (weight.shape[0],):
            return F.linear(a, weight, c)
    made = a @ (b.T if call.get("transB", 0) else b)
    made = (made if alpha == 1 else made * alpha).astype(a.dtype)
    if c is None or beta == 0:
        return made
    return (made + (c if beta == 1 else c * beta)).astype(a.dtype)


@operator("Einsum")
def einsum(call: Call, *xs: Tensor) -> Tensor:
    """Einstein's sum."""
    return T.einsum(call["equation"].replace(" ", ""), *xs)


@operator("Det", reads=(0,))
def determinant(call: Call, x: Any) -> Any:
    """Determinants of square matrices."""
    return np.asarray(np.linalg.det(x)).astype(x.dtype)


@operator("Linear", domain="cubepy")
def linear(call: Call, x: Tensor, order: Tensor | None = None) -> Tensor:
    """A layer that rewriting made of a product with a constant matrix, whose columns may lie in an
    order of their own; `wide` ones compute in f32 whatever x is.
    """
    layer, dtype = call["module"], x.dtype
    if order is not None:
        x = apply("take", x, order, axis=-1)
    if call.get("wide", False):
        x = x.astype("f32")
    made = layer(x.unsqueeze(0)).squeeze(0) if len(x.shape) == 1 else layer(x)
    return made.astype(dtype)  # type: ignore[no-any-return]
