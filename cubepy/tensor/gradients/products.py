"""Gradients of products: products with the other factor turned over."""

from __future__ import annotations

import math
from typing import Any

from cubepy.tensor.array import apply
from cubepy.tensor.gradients.rules import Backward, through, vjp


@vjp("matmul")
def _matmul(b: Backward, g: Any) -> Any:
    """a @ b by a: g @ b.T; by b: a.T @ g. Vectors are matrices of one row or column meanwhile."""
    x, y = b.inputs
    left, right = x, y
    if x.ndim == 1:
        left, g = x.reshape(1, x.shape[0]), g.unsqueeze(-1 if y.ndim == 1 else -2)
    if y.ndim == 1:
        right, g = y.reshape(y.shape[0], 1), g.unsqueeze(-1)
    by_x = g @ right.transpose(-1, -2) if b.needs[0] else None
    by_y = None
    if b.needs[1]:
        if right.ndim == 2 and left.ndim > 2:  # the batches are summed in one product
            by_y = _rows(left).transpose(0, 1) @ _rows(g)
        else:
            by_y = left.transpose(-1, -2) @ g
    if by_x is not None and x.ndim == 1:
        by_x = _rows_summed(by_x, -2)
    if by_y is not None and y.ndim == 1:
        by_y = _rows_summed(by_y, -1)
    return by_x, by_y


def _rows(t: Any) -> Any:
    """The batches of a tensor's matrices as one matrix."""
    return t.reshape(math.prod(t.shape[:-1]), t.shape[-1])


def _rows_summed(grad: Any, axis: int) -> Any:
    """The gradient by a vector: of its one row or column, summed over batches."""
    one = grad.sum(axis=axis)
    return one.sum(axis=tuple(range(one.ndim - 1))) if one.ndim > 1 else one


_ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "gelu": ("gelu", {"approximate": "none"}),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}),
}


def _back(g: Any, weight: Any) -> Any:
    """g @ weight, for weights of any storage."""
    packed = weight.storage.kind != "dense"
    return apply("packed_product", g, weight) if packed else g @ weight


@vjp("packed_product")
def _packed_product(b: Backward, g: Any) -> Any:
    """A linear layer."""
    by_a = apply("linear", g, b.inputs[1], None, None, activation=None)
    return by_a, None


@vjp("linear", follows=True)
def _linear(b: Backward, g: Any) -> Any:
    """The activation's gradient goes by what it was given, which is computed again."""
    x, weight, bias, _ = b.inputs
    by_residual = g if b.needs[3] else None
    name = b.attrs["activation"]
    if name is not None:
        before = apply("linear", x, weight, bias, None, activation=None)
        op, attrs = _ACTIVATIONS.get(name, (name, {}))
        g = through(op, before, g, **attrs)
    rows = _rows(g)
    by_x = _back(g, weight) if b.needs[0] else None
    by_weight = rows.transpose(0, 1) @ _rows(x) if b.needs[1] else None
    by_bias = rows.sum(axis=0) if b.needs[2] else None
    return by_x, by_weight, by_bias, by_residual
