"""Normalisations along rows, and by channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import DType, f32, f64
from cubepy.tensor.ops.library import kernels, norms, number
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


def _run_rms_norm(dtype: np.dtype, x: Any, weight: Any, normalized_shape: Any, eps: float) -> Any:
    return kernels().rms_norm(x, normalized_shape, weight, eps)


@define("row", {"rms_norm": _run_rms_norm})
def _rms_norm(x: Spec, weight: Spec | None, normalized_shape: tuple[int, ...], eps: float) -> Spec:
    return _layer_norm(x, weight, None, normalized_shape, eps)


def _run_group_norm(
    dtype: np.dtype, x: Any, weight: Any, bias: Any, groups: int, eps: float
) -> Any:
    return kernels().group_norm(x, groups, weight, bias, eps)


@define("opaque", {"group_norm": _run_group_norm})
def _group_norm(x: Spec, weight: Spec | None, bias: Spec | None, groups: int, eps: float) -> Spec:
    """x (N, C, ...), each group of channels by itself."""
    if len(x.shape) < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"group_norm of shape {x.shape} in {groups} groups")
    _of_channels("group_norm", x, weight=weight, bias=bias)
    return Spec(x.shape, float_of(x))


def _of_channels(op: str, x: Spec, **parts: Spec | None) -> None:
    for name, part in parts.items():
        if part is not None and part.shape != x.shape[1:2]:
            raise ShapeError(f"{op}: expected a {name} of shape {x.shape[1:2]}, got {part.shape}")


def _normalised(dtype: np.dtype, x: Any, mean: Any, var: Any, w: Any, b: Any, eps: float) -> Any:
    """(x - mean) / sqrt(var + eps) * w + b by channel, in one pass over x."""
    K, f = kernels(), norms()
    wide = np.float64 if x.dtype == np.float64 else np.float32
    along = (-1, *(1,) * (x.ndim - 2))
    one, zero, step = (number(x, n, wide) for n in (1, 0, eps))
    scale = K.map(f.scale_of, var, one if w is None else w, step, dtype=wide)
    shift = K.map(f.shift_of, mean, scale, zero if b is None else b, dtype=wide)
    return K.map(f.scaled, x, scale.reshape(along), shift.reshape(along), dtype=dtype)


def _run_batch_norm(dtype: np.dtype, x: Any, weight: Any, bias: Any, eps: float) -> Any:
    mean, var = norms().by_channel(x)
    return [_normalised(dtype, x, mean, var, weight, bias, eps), mean, var]


@define("opaque", {"batch_norm": _run_batch_norm}, keeps=True)
def _batch_norm(x: Spec, weight: Spec | None, bias: Spec | None, eps: float) -> list[Spec]:
    """x (N, C, ...), each channel over all else; and its means and variances, of narrow floats
    in f32.
    """
    if len(x.shape) < 2 or math.prod(x.shape[:1] + x.shape[2:]) == 0:
        raise ShapeError(f"batch_norm needs 2 axes or more and elements, not shape {x.shape}")
    _of_channels("batch_norm", x, weight=weight, bias=bias)
    of_channels = Spec(x.shape[1:2], f64 if x.dtype is f64 else f32)
    return [Spec(x.shape, float_of(x)), of_channels, of_channels]


def _run_channel_norm(
    dtype: np.dtype, x: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
) -> Any:
    return _normalised(dtype, x, mean, var, weight, bias, eps)


@define("opaque", {"channel_norm": _run_channel_norm})
def _channel_norm(
    x: Spec, mean: Spec, var: Spec, weight: Spec | None, bias: Spec | None, eps: float
) -> Spec:
    """x (N, C, ...) by means and variances that are given, as a batch norm that does not train."""
    if len(x.shape) < 2:
        raise ShapeError(f"batch_norm needs 2 axes or more, not shape {x.shape}")
    _of_channels("batch_norm", x, mean=mean, var=var, weight=weight, bias=bias)
    return Spec(x.shape, float_of(x))
