"""Operators of images, signals and volumes with channels first."""

from __future__ import annotations

from cubepy.models.onnx.ops.images import convolution, pooling, resize, sampling

__all__ = ["convolution", "pooling", "resize", "sampling"]
