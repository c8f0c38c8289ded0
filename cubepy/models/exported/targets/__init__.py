"""Families of torch's operators, made of ops of tensors; importing this records them all."""

from cubepy.models.exported import complex_fourier, complexes
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
    "complex_fourier",
    "complexes",
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
