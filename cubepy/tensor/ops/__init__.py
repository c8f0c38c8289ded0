"""The ops of tensors, by family; `OPS` has them all by name."""

from __future__ import annotations

from cubepy.tensor.ops import (
    convolution,
    creation,
    elementwise,
    indexing,
    interpolation,
    movement,
    normalization,
    order,
    pooling,
    products,
    reductions,
    statistics,
    updates,
)
from cubepy.tensor.ops.op import OPS, Op, Spec, define, infer

__all__ = [
    "OPS",
    "Op",
    "Spec",
    "convolution",
    "creation",
    "define",
    "elementwise",
    "indexing",
    "infer",
    "interpolation",
    "movement",
    "normalization",
    "order",
    "pooling",
    "products",
    "reductions",
    "statistics",
    "updates",
]
