"""Operators along a sequence: attention, recurrent layers, signals."""

from __future__ import annotations

from cubepy.models.onnx.ops.sequence import attention, linear_attention, recurrent, signal

__all__ = ["attention", "linear_attention", "recurrent", "signal"]
