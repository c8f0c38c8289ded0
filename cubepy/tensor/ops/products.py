"""Sums of products: matrix products, linear layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import DTypeError, KernelTypeError, ShapeError
from cubepy.lang.dtypes import i8, i32, promote
from cubepy.tensor.ops.library import aligned_rows, function, kernels
from cubepy.tensor.ops.op import Spec, broadcast, define


def _run_matmul(dtype: np.dtype, a: Any, b: Any, aligned: tuple[int, ...] = ()) -> Any:
    if aligned:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = aligned_rows((*lead, a.shape[-2], b.shape[-1]), dtype)
        return kernels().matmul(a, b, out=out)
    return kernels().matmul(a, b)


@define("product", {"matmul": _run_matmul})
def _matmul(a: Spec, b: Spec, aligned: tuple[int, ...] = ()) -> Spec:
    """`aligned`: of matrices, with rows that begin aligned (`fusion.products.aligned`)."""
    if not a.shape or not b.shape:
        raise ShapeError(f"matmul needs rank 1 or more, not shapes {a.shape} and {b.shape}")
    x = (1, *a.shape) if len(a.shape) == 1 else a.shape
    y = (*b.shape, 1) if len(b.shape) == 1 else b.shape
    if x[-1] != y[-2]:
        raise ShapeError(
            f"matmul of {a.shape} and {b.shape}: the inner lengths are {x[-1]} and {y[-2]}",
            hint="the last axis of a must be as long as the second last of b",
        )
    batch = broadcast(Spec(x[:-2], a.dtype), Spec(y[:-2], b.dtype))
    rows = () if len(a.shape) == 1 else (x[-2],)
    columns = () if len(b.shape) == 1 else (y[-1],)
    return Spec((*batch, *rows, *columns), promote(a.dtype, b.dtype))


@define(
    "product",
    {"matmul_codes": lambda dtype, a, b: kernels().matmul(a, b, dtype=dtype)},
    constant=True,
)
def _matmul_codes(a: Spec, b: Spec) -> Spec:
    """Codes of 8 bits (..., M, K) with signed ones (K, N): sums in i32."""
    if a.dtype.bits != 8 or not a.dtype.is_int or b.dtype is not i8 or len(b.shape) != 2:
        raise DTypeError(
            f"codes of 8 bits with signed ones (K, N) are needed, not {a.dtype.name}{a.shape} and "
            f"{b.dtype.name}{b.shape}"
        )
    if len(a.shape) < 2 or a.shape[-1] != b.shape[0]:
        raise ShapeError(f"codes {a.shape} and {b.shape} are no product")
    return Spec((*a.shape[:-1], b.shape[1]), i32)


def _run_linear(
    dtype: np.dtype,
    x: np.ndarray,
    weight: np.ndarray,
    bias: Any,
    residual: Any,
    activation: str | None,
    aligned: tuple[int, ...] = (),
) -> Any:
    K = kernels()
    if dtype.itemsize < 8 and dtype.kind not in "iu":
        out = aligned_rows((*x.shape[:-1], weight.shape[0]), dtype) if aligned else None
        return K.matmul(x, weight.T, bias=bias, activation=activation, residual=residual, out=out)
    y = K.matmul(x, weight.T)
    if bias is not None:
        y = K.map(function("f:add"), y, bias, dtype=dtype)
    if activation is not None:
        y = K.map(K.functions.ACTIVATIONS[activation], y, dtype=dtype)
    if residual is not None:
        y = K.map(function("f:add"), y, residual, dtype=dtype)
    return y


@define("product", {"linear": _run_linear})
def _linear(
    x: Spec,
    weight: Spec,
    bias: Spec | None,
    residual: Spec | None,
    activation: str | None,
    aligned: tuple[int, ...] = (),
) -> Spec:
    if len(weight.shape) != 2 or not x.shape or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear of an input {x.shape} and a weight {weight.shape}: "
            "expected an input (..., in) and a weight (out, in)",
            hint="weights have the layout of torch.nn.Linear: (out_features, in_features)",
        )
    if bias is not None and bias.shape != (weight.shape[0],):
        raise ShapeError(f"linear: expected a bias of shape {(weight.shape[0],)}, got {bias.shape}")
    shape = (*x.shape[:-1], weight.shape[0])
    if residual is not None and residual.shape != shape:
        raise ShapeError(f"linear: expected a residual of shape {shape}, got {residual.shape}")
    return Spec(shape, promote(x.dtype, weight.dtype))


def _not_packed(*_: Any, **__: Any) -> Any:
    raise KernelTypeError("a packed product is one with a packed weight; others are matmul's")


@define("opaque", {"packed_product": _not_packed})
def _packed_product(a: Spec, weight: Spec) -> Spec:
    """(..., N) times a packed weight (N, K): gradients by what a linear layer reads."""
    if len(weight.shape) != 2 or not a.shape or a.shape[-1] != weight.shape[0]:
        raise ShapeError(f"a packed product of {a.shape} and a weight {weight.shape}")
    return Spec((*a.shape[:-1], weight.shape[1]), promote(a.dtype, weight.dtype))
