"""The ops of tensors, by family; `OPS` has them all by name."""

from __future__ import annotations

from cubepy.tensor.ops import (
    creation,
    elementwise,
    indexing,
    movement,
    normalization,
    order,
    products,
    reductions,
    statistics,
)
from cubepy.tensor.ops.op import OPS, Op, Spec, define, infer

__all__ = [
    "OPS",
    "Op",
    "Spec",
    "creation",
    "define",
    "elementwise",
    "indexing",
    "infer",
    "movement",
    "normalization",
    "order",
    "products",
    "reductions",
    "statistics",
]
