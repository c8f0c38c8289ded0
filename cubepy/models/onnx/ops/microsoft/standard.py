"""Operators of com.microsoft that ONNX has by now, and others that are an op or two of tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cubepy.models.onnx.ops import creation, images, indexing, shapes
from cubepy.models.onnx.ops.microsoft.heads import MS
from cubepy.models.onnx.records import RECORDS, Call, operator
from cubepy.tensor import Tensor

SAME = {
    "GatherND": indexing,
    "GridSample": images,
    "Pad": shapes,
    "Range": creation,
    "Trilu": shapes,
}
"""Operators with the inputs and attributes of ONNX's, and the family that records these."""
for _name in SAME:
    RECORDS.setdefault((MS, _name), []).append(replace(RECORDS["", _name][0], domain=MS, since=1))


@operator("ExpandDims", domain=MS, reads=(1,))
def expand_dims(call: Call, x: Tensor, axis: Any) -> Tensor:
    """With an axis of length 1 more."""
    return x.unsqueeze(int(axis.reshape(-1)[0]))


@operator("Inverse", domain=MS)
def inverse(call: Call, x: Tensor) -> Tensor:
    """The inverses of matrices (..., N, N)."""
    wide = x.astype("f32") if x.dtype.bits < 32 else x
    return wide.inverse().astype(x.dtype)


@operator("CDist", domain=MS)
def distances(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Distances of rows (M, F) and (N, F), (M, N), or their squares."""
    metric = call.get("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise call.refuse(f"the metric {metric!r}")
    squares = ((a.unsqueeze(1) - b) ** 2).sum(axis=-1)
    return squares.sqrt() if metric == "euclidean" else squares
