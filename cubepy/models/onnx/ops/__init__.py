"""What computes the operators, a file a family; importing the package records them all."""

from __future__ import annotations

from cubepy.models.onnx.ops import (
    activations,
    casts,
    control,
    convolution,
    creation,
    elementwise,
    indexing,
    normalization,
    pooling,
    products,
    quantization,
    recurrent,
    reductions,
    resize,
    sampling,
    shapes,
)

__all__ = [
    "activations",
    "casts",
    "control",
    "convolution",
    "creation",
    "elementwise",
    "indexing",
    "normalization",
    "pooling",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "resize",
    "sampling",
    "shapes",
]
