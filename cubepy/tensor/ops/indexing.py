"""Ops by integers that are data."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.tensor.ops.library import kernels, zeros
from cubepy.tensor.ops.op import Spec, define


@define("index", {"embedding": lambda d, indices, weight: kernels().embedding(indices, weight)})
def _embedding(indices: Spec, weight: Spec) -> Spec:
    if not indices.dtype.is_int:
        raise DTypeError(f"embedding needs integer indices, not {indices.dtype.name}")
    if len(weight.shape) != 2:
        raise ShapeError(f"expected an embedding table of rank 2, got shape {weight.shape}")
    return Spec((*indices.shape, weight.shape[1]), weight.dtype)


def _run_embedding_gradient(dtype: np.dtype, g: Any, indices: Any, rows: int) -> Any:
    width = g.shape[-1]
    start = zeros(g, (rows, width), dtype)
    return kernels().index_put(
        start, (indices.reshape(-1),), g.reshape(-1, width), "add", out=start
    )


@define("index", {"embedding_gradient": _run_embedding_gradient})
def _embedding_gradient(g: Spec, indices: Spec, rows: int) -> Spec:
    """The sums of rows of g by index."""
    return Spec((rows, g.shape[-1]), g.dtype)
