"""log_softmax and rms_norm along a row, group_norm and batch_norm by channel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.elementwise.map import map
from cubepy.kernels.entry.arguments import array_of, axis_of, float_array, number_of, whole, wholes
from cubepy.kernels.entry.dispatch import placed, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import contiguous, convert_into, fill
from cubepy.kernels.normalization.columns_cpu import down_columns
from cubepy.kernels.normalization.problem import GroupNorm, Norm, Softmax
from cubepy.kernels.normalization.routines import GROUP_NORM, NORM, SOFTMAX
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.reduce.reduce import wide_mean
from cubepy.kernels.reduce.statistics import wide_var
from cubepy.runtime import memory
from cubepy.runtime.memory.constants import constant_on
from cubepy.runtime.memory.device_array import DeviceArray


@repeated
def log_softmax(x: Any, axis: int = -1, *, out: Any = None) -> Any:
    """x - log(sum(exp(x))) along an axis, from the maximum down, as
    `torch.nn.functional.log_softmax`.

    Args:
        x: array of floats.
        axis: the axis whose exponentials sum to one.
        out: array to write.

    Example:
        >>> import numpy as np
        >>> bool(np.allclose(np.exp(log_softmax(np.array([1.0, 2.0, 3.0]))).sum(), 1))
        True
    """
    wrap, array = wrapper(x), float_array(x, "x")
    d = axis_of(axis, array.ndim)
    result = output(out, array.shape, array.dtype)
    if result.size and not down_columns(array, result, d, log=True):
        moved = (*(k for k in range(array.ndim) if k != d), d)
        rows = contiguous(array.transpose(moved))
        straight = d == array.ndim - 1 and result.flags.c_contiguous
        done = result if straight else memory.empty(rows.shape, rows.dtype)
        n = rows.shape[-1]
        SOFTMAX.run(Softmax(rows.reshape(-1, n), done.reshape(-1, n), log=True))
        if not straight:
            convert_into(result, done.transpose(tuple(int(k) for k in np.argsort(moved))))
    return finish(result, out, wrap)


@repeated
def rms_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    eps: float | None = None,
    *,
    out: Any = None,
) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last axes (Zhang and Sennrich, 2019), as torch's
    `rms_norm`.

    Args:
        input: array of floats whose last axes have the shape `normalized_shape`.
        normalized_shape: int or tuple.
        weight: of that shape, or None.
        eps: added to the mean square; by default the smallest step of the dtype from 1.
        out: array to write.

    Raises:
        ShapeError: the last axes of input, or weight, have another shape.

    Example:
        >>> import numpy as np
        >>> rms_norm(np.array([[3.0, 4.0]]), 2, eps=0.0).round(3)
        array([[0.849, 1.131]])
    """
    wrap, array = wrapper(input), float_array(input, "input")
    shape = wholes(normalized_shape, "normalized_shape")
    if not shape or array.shape[array.ndim - len(shape) :] != shape:
        raise ShapeError(
            f"rms_norm over {shape}: the last axes of input {array.shape} are not of that shape"
        )
    w = None if weight is None else array_of(weight, "weight")
    if w is not None and w.shape != shape:
        raise ShapeError(f"weight has shape {w.shape}, but rms_norm is over {shape}")
    step = (
        {8: 2.0**-52, 4: 2.0**-23}.get(array.itemsize, 2.0**-23)
        if eps is None
        else number_of(eps, "eps")
    )
    result = output(out, array.shape, array.dtype)
    if result.size:
        n = math.prod(shape)
        flat = None if w is None else contiguous(w).reshape(n)
        rows, how = contiguous(array).reshape(-1, n), (float(step), False)
        fill(result, lambda to: NORM.run(Norm(rows, flat, None, to.reshape(-1, n), *how)))
    return finish(result, out, wrap)


def _per_channel(value: Any, name: str, channels: int) -> Any:
    if value is None:
        return None
    array = float_array(value, name)
    if array.shape != (channels,):
        raise ShapeError(f"{name} has shape {array.shape}, but there are {channels} channels")
    return contiguous(array)


@repeated
def group_norm(
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Any = None,
) -> Any:
    """Normalise groups of channels of every image (Wu and He, 2018), as
    `torch.nn.functional.group_norm`.

    Args:
        input: (N, C, ...), floats.
        num_groups: divides C.
        weight, bias: (C,), or None.
        eps: added to the variance.
        out: array to write.

    Raises:
        ShapeError: groups that do not divide the channels, or parameters of another length.

    Example:
        >>> import numpy as np
        >>> group_norm(np.array([[1.0, 3.0]]), 1, eps=0.0)
        array([[-1.,  1.]])
    """
    wrap, array = wrapper(input), float_array(input, "input")
    num_groups, eps = whole(num_groups, "num_groups"), number_of(eps, "eps")
    if array.ndim < 2 or num_groups < 1 or array.shape[1] % num_groups:
        raise ShapeError(f"group_norm of shape {array.shape} in {num_groups} groups")
    w, b = (
        _per_channel(v, name, array.shape[1]) for v, name in ((weight, "weight"), (bias, "bias"))
    )
    result = output(out, array.shape, array.dtype)
    if result.size:
        m = array.shape[0] * num_groups
        rows = contiguous(array).reshape(m, -1)
        how = (eps, num_groups, array.shape[1] // num_groups)
        fill(result, lambda to: GROUP_NORM.run(GroupNorm(rows, w, b, to.reshape(m, -1), *how)))
    return finish(result, out, wrap)


@cb.func
def scale_of(variance, weight, eps):
    """weight / sqrt(variance + eps)"""
    return weight / cb.sqrt(variance + eps)


@cb.func
def shift_of(mean, scale, bias):
    """bias - mean * scale"""
    return bias - mean * scale


@cb.func
def scaled(x, scale, shift):
    """x * scale + shift"""
    return x * scale + shift


@cb.func
def blended(old, new, momentum):
    """old moved towards new."""
    return old + (new - old) * momentum


def _one(value: float, like: Any) -> Any:
    """A number as an array where another one is, in f64 beside one of f64."""
    dtype = np.float64 if like.dtype == np.float64 else np.float32
    if type(like) is DeviceArray:
        return constant_on(like.device, np.array([value], dtype))
    array = memory.empty((1,), dtype)
    array[...] = value
    return array


def by_channel(x: Any) -> tuple[Any, Any]:
    """Mean and variance of each channel of (N, C, ...), of narrow floats in f32."""
    axes = tuple(d for d in range(x.ndim) if d != 1)
    return wide_mean(x, axes), wide_var(x, axes)


@placed
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    out: Any = None,
) -> Any:
    """Normalise each channel over a batch (Ioffe and Szegedy, 2015), as
    `torch.nn.functional.batch_norm`.

    Args:
        input: (N, C, ...), floats.
        running_mean, running_var: (C,); used as they are, or when `training` moved towards the
            batch's, in place. None when training without them.
        weight, bias: (C,), or None.
        training: normalise by the batch's own mean and variance.
        momentum: share of the batch's values in the running ones.
        eps: added to the variance.
        out: array to write.

    Raises:
        ShapeError: parameters of another length, or no running values without training.

    Example:
        >>> import numpy as np
        >>> x = np.array([[1.0], [3.0]], np.float32)
        >>> mean, variance = np.array([2.0], np.float32), np.array([1.0], np.float32)
        >>> batch_norm(x, mean, variance, eps=0.0).tolist()
        [[-1.0], [1.0]]
    """
    wrap, array = wrapper(input), float_array(input, "input")
    if array.ndim < 2:
        raise ShapeError(f"batch_norm needs 2 axes or more, not shape {array.shape}")
    channels = array.shape[1]
    w, b = (_per_channel(v, name, channels) for v, name in ((weight, "weight"), (bias, "bias")))
    number = lambda value: _one(value, array)
    if training:
        momentum = number_of(momentum, "momentum")
        mean, variance = by_channel(array)
        count = array.size // max(channels, 1)
        for running, fresh, factor in (
            (running_mean, mean, 1.0),
            (running_var, variance, count / max(count - 1, 1)),
        ):
            if running is not None:
                map(
                    blended,
                    running,
                    map(f.mul, fresh, number(factor)),
                    number(momentum),
                    out=running,
                )
    else:
        mean, variance = (
            _per_channel(running_mean, "running_mean", channels),
            _per_channel(running_var, "running_var", channels),
        )
        if mean is None or variance is None:
            raise ShapeError(
                "batch_norm needs running_mean and running_var where it is not training"
            )
    shape = (channels, *(1,) * (array.ndim - 2))
    scale = map(scale_of, variance, number(1.0) if w is None else w, number(number_of(eps, "eps")))
    shift = map(shift_of, mean, scale, number(0.0) if b is None else b)
    result = output(out, array.shape, array.dtype)
    if result.size:
        map(scaled, array, scale.reshape(shape), shift.reshape(shape), out=result)
    return finish(result, out, wrap)
