"""ONNX models: any graph of known operators as a module whose forward is a program."""

from __future__ import annotations

from cubepy.models.onnx.look import Look, look
from cubepy.models.onnx.model import OnnxModel, load

__all__ = ["Look", "OnnxModel", "load", "look"]
