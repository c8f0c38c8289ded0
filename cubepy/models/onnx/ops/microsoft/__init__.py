"""Operators of `com.microsoft`, which onnxruntime's tools write into files."""

from __future__ import annotations

from cubepy.models.onnx.ops.microsoft import (
    experts,
    fused,
    groups,
    heads,
    linear_codes,
    quantized,
    standard,
)

__all__ = ["experts", "fused", "groups", "heads", "linear_codes", "quantized", "standard"]
