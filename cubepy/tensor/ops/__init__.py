"""The ops of tensors, by family; `OPS` has them all by name."""

from __future__ import annotations

from cubepy.tensor.ops import (
    attention,
    convolution,
    creation,
    elementwise,
    indexing,
    movement,
    normalization,
    order,
    pooling,
    products,
    random,
    reductions,
    updates,
)
from cubepy.tensor.ops.op import OPS, Op, Spec, define, infer, writes_of, written_in_place

__all__ = [
    "OPS",
    "Op",
    "Spec",
    "attention",
    "convolution",
    "creation",
    "define",
    "elementwise",
    "indexing",
    "infer",
    "movement",
    "normalization",
    "order",
    "pooling",
    "products",
    "random",
    "reductions",
    "updates",
    "writes_of",
    "written_in_place",
]
