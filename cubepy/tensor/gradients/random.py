"""Gradients of what is random: the same state drops the same elements, so no mask is kept."""

from __future__ import annotations

from typing import Any

from cubepy.tensor.array import apply
from cubepy.tensor.gradients.rules import Backward, vjp


@vjp("dropout")
def _dropout(b: Backward, g: Any) -> Any:
    return apply("dropout", g, b.inputs[1], p=b.attrs["p"]), None
