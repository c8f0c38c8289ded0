"""Families of torch's operators, made of ops of tensors; importing this records them all."""

from cubepy.models.exported.targets import (
    creation,
    elementwise,
    indexing,
    networks,
    numbers,
    products,
    recurrent,
    reductions,
    shapes,
)

__all__ = [
    "creation",
    "elementwise",
    "indexing",
    "networks",
    "numbers",
    "products",
    "recurrent",
    "reductions",
    "shapes",
]
