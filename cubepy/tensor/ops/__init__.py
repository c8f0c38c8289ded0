"""The ops of tensors, by family; `OPS` has them all by name."""

from __future__ import annotations

from cubepy.tensor.ops import (
    convolution,
    elementwise,
    indexing,
    interpolation,
    movement,
    normalization,
    pooling,
    products,
    reductions,
)
from cubepy.tensor.ops.op import OPS, Op, Spec, define, infer

__all__ = [
    "OPS",
    "Op",
    "Spec",
    "convolution",
    "define",
    "elementwise",
    "indexing",
    "infer",
    "interpolation",
    "movement",
    "normalization",
    "pooling",
    "products",
    "reductions",
]
