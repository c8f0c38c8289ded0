"""Models of tables (`ai.onnx.ml`), on the host: trees, linear ones, support vectors, features."""

from __future__ import annotations

from cubepy.models.onnx.ops.tabular import features, linear, trees, vectors

__all__ = ["features", "linear", "trees", "vectors"]
