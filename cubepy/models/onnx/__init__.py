"""ONNX models: any graph of known operators as a module whose forward is a program."""

from __future__ import annotations

from cubepy.models.onnx.look import look
from cubepy.models.onnx.model import OnnxModel, load

__all__ = ["OnnxModel", "load", "look"]
