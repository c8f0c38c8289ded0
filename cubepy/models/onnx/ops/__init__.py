"""What computes the operators, a file a family; importing the package records them all."""

from __future__ import annotations

from cubepy.models.onnx.ops import (
    activations,
    casts,
    control,
    creation,
    elementwise,
    images,
    indexing,
    losses,
    microsoft,
    normalization,
    products,
    quantization,
    reductions,
    rewritten,
    sequence,
    shapes,
    tabular,
    texts,
)

__all__ = [
    "activations",
    "casts",
    "control",
    "creation",
    "elementwise",
    "images",
    "indexing",
    "losses",
    "microsoft",
    "normalization",
    "products",
    "quantization",
    "reductions",
    "rewritten",
    "sequence",
    "shapes",
    "tabular",
    "texts",
]
