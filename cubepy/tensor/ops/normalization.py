"""Normalisations along rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import DType, f32
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import Spec, axis_in, define


def float_of(x: Spec) -> DType:
    """Floats stay, integers become f32."""
    return x.dtype if x.dtype.is_float and not x.dtype.storage_only else f32


@define("row", {"softmax": lambda dtype, x, axis: kernels().softmax(x, axis)})
@define("row", {"log_softmax": lambda dtype, x, axis: kernels().log_softmax(x, axis)})
def _softmax(x: Spec, axis: int) -> Spec:
    axis_in(axis, len(x.shape), "softmax")
    return Spec(x.shape, float_of(x))


def _run_layer_norm(
    dtype: np.dtype, x: Any, weight: Any, bias: Any, normalized_shape: Any, eps: float
) -> Any:
    return kernels().layer_norm(x, normalized_shape, weight, bias, eps)


@define("row", {"layer_norm": _run_layer_norm})
def _layer_norm(
    x: Spec, weight: Spec | None, bias: Spec | None, normalized_shape: tuple[int, ...], eps: float
) -> Spec:
    if not normalized_shape or x.shape[len(x.shape) - len(normalized_shape) :] != normalized_shape:
        raise ShapeError(
            f"layer_norm: expected an input that ends with {normalized_shape}, got {x.shape}"
        )
    for name, part in (("weight", weight), ("bias", bias)):
        if part is not None and part.shape != normalized_shape:
            raise ShapeError(
                f"layer_norm: expected a {name} of shape {normalized_shape}, got {part.shape}"
            )
    return Spec(x.shape, float_of(x))
