"""Families of torch's operators, made of ops of tensors; importing this records them all."""

from cubepy.models.exported.targets import (
    control,
    creation,
    elementwise,
    indexing,
    losses,
    matrices,
    networks,
    numbers,
    order,
    products,
    recurrent,
    reductions,
    sampling,
    shapes,
    special,
)

__all__ = [
    "control",
    "creation",
    "elementwise",
    "indexing",
    "losses",
    "matrices",
    "networks",
    "numbers",
    "order",
    "products",
    "recurrent",
    "reductions",
    "sampling",
    "shapes",
    "special",
]
