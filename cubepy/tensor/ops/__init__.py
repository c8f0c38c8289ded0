"""The ops of tensors, by family; `OPS` has them all by name."""

from __future__ import annotations

from cubepy.tensor.ops import elementwise, indexing, movement, normalization, products, reductions
from cubepy.tensor.ops.op import OPS, Op, Spec, define, infer

__all__ = [
    "OPS",
    "Op",
    "Spec",
    "define",
    "elementwise",
    "indexing",
    "infer",
    "movement",
    "normalization",
    "products",
    "reductions",
]
