"""Gradients of ops by integers: what was read several times gets the sum."""

from __future__ import annotations

from typing import Any

from cubepy.tensor.array import apply
from cubepy.tensor.gradients.rules import Backward, vjp


@vjp("embedding")
def _embedding(b: Backward, g: Any) -> Any:
    indices, weight = b.inputs
    return None, apply("embedding_gradient", g, indices, rows=weight.shape[0])


@vjp("embedding_gradient")
def _embedding_gradient(b: Backward, g: Any) -> Any:
    return apply("embedding", b.inputs[1], g), None
