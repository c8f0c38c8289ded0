"""What runs instead of nodes of a file; importing the package records all rules."""

from __future__ import annotations

from cubepy.models.onnx.rules import codes, layers, norms, pieces, quantized

__all__ = ["codes", "layers", "norms", "pieces", "quantized"]
