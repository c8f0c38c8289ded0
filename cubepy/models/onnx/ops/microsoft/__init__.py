"""Operators of `com.microsoft`, which onnxruntime's tools write into files."""

from __future__ import annotations

from cubepy.models.onnx.ops.microsoft import fused, heads, quantized

__all__ = ["fused", "heads", "quantized"]
