"""Functions of the kernel library on tensors that need gradients or are recorded: each call is an
op, or is refused.

`table` finds what a function is by its name; the families beside it say it for theirs.
"""

from __future__ import annotations

from cubepy.tensor.calls import (
    again,
    attention,
    convolution,
    elementwise,
    normalization,
    order,
    pooling,
    products,
    recurrent,
    shapes,
)
from cubepy.tensor.calls.table import CALLS, call

__all__ = [
    "CALLS",
    "again",
    "attention",
    "call",
    "convolution",
    "elementwise",
    "normalization",
    "order",
    "pooling",
    "products",
    "recurrent",
    "shapes",
]
