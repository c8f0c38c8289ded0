"""Normalisation over axes."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from cubepy.errors import ArgumentError, ShapeError
from cubepy.nn import arguments
from cubepy.nn.functional.linear import optional
from cubepy.nn.functional.padding import pad
from cubepy.nn.functional.windows import avg_pool2d
from cubepy.tensor import Tensor, apply, as_tensor, no_grad
from cubepy.tensor.control.composed import composed


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """Normalise over the last axes to mean 0 and variance 1, then scale and shift.

    Example:
        >>> layer_norm([[1.0, 3.0]], 2).numpy().round(3)
        array([[-1.,  1.]], dtype=float32)
    """
    shape, eps = (
        arguments.shape("normalized_shape", normalized_shape),
        arguments.number("eps", eps, 0),
    )
    return apply(
        "layer_norm",
        as_tensor(input),
        optional(weight),
        optional(bias),
        normalized_shape=shape,
        eps=eps,
    )


@composed
def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divided by its norm (sum |x|^p)^(1/p) along an axis (at least eps).

    Example:
        >>> normalize([[3.0, 4.0]])
        tensor([[0.6, 0.8]])
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    y = wide / wide.norm(p, dim, keepdim=True).clip(eps)
    return y.astype(x.dtype) if wide is not x else y


def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """Normalise groups of channels (axis 1) of each sample, then scale and shift each channel.

    Raises:
        ShapeError: the groups do not divide the channels.

    Example:
        >>> group_norm([[1.0, 3.0, 2.0, 2.0]], 2).numpy().round(3)
        array([[-1.,  1.,  0.,  0.]], dtype=float32)
    """
    x = as_tensor(input)
    groups = arguments.size("num_groups", num_groups, 1)
    if x.ndim < 2 or x.shape[1] % groups:
        raise ShapeError(f"group_norm: {groups} groups do not divide the channels of {x.shape}")
    eps = arguments.number("eps", eps, 0)
    return apply("group_norm", x, optional(weight), optional(bias), groups=groups, eps=eps)  # type: ignore[no-any-return]


def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (axis 1) of each sample, then scale and shift it.

    Args:
        input: (N, C, ...).
        running_mean, running_var: (C,), or None. Where samples are normalised by themselves, these
            tensors get other values, as of `batch_norm`: towards the means of those of all samples.
        weight, bias: (C,), or None.
        use_input_stats: False normalises by the running values.
        momentum: the share of new values, a number or a tensor.
        eps: added to variances.

    Raises:
        ShapeError: no axis of channels, or running values of one value per channel.
        ArgumentError: no running values, though they are asked for.

    Example:
        >>> instance_norm([[[1.0, 3.0]]]).numpy().round(3)
        array([[[-1.,  1.]]], dtype=float32)
    """
    x = as_tensor(input)
    if x.ndim < 2:
        raise ShapeError(f"instance_norm: an input of shape {x.shape} has no axis of channels")
    if not arguments.flag("use_input_stats", use_input_stats):
        return batch_norm(x, running_mean, running_var, weight, bias, eps=eps)
    running = optional(running_mean), optional(running_var)
    if running != (None, None):
        count = math.prod(x.shape[2:])
        if count < 2:
            raise ShapeError(
                f"instance_norm moves running values by more than 1 value per channel, not by the "
                f"shape {x.shape}"
            )
        with no_grad():
            rows = arguments.widened(x).reshape(x.shape[0], x.shape[1], count)
            means = rows.mean(axis=2), rows.var(axis=2, correction=1)
            _moved(running, [m.mean(axis=0) for m in means], momentum)
    return group_norm(x, x.shape[1], weight, bias, eps)


def _moved(running: Any, values: Any, share: Any) -> None:
    """Give running values a share of new ones."""
    for old, new in zip(running, values, strict=True):
        if old is not None:
            wide = arguments.widened(old)
            old.assign_((wide * (1 - share) + new.detach() * share).astype(old.dtype))


def rms_norm(
    input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Tensor:
    """Divide by the root of the mean square over the last axes, then scale.

    Args:
        input: of any shape that ends with `normalized_shape`.
        normalized_shape: the last axes.
        weight: of this shape, or None.
        eps: added to the mean square; None is the epsilon of the input's dtype.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> rms_norm([[3.0, 3.0]], 2, eps=0.0)
        tensor([[1., 1.]])
    """
    x, shape = as_tensor(input), arguments.shape("normalized_shape", normalized_shape)
    least = float(ml_dtypes.finfo(x.dtype.numpy).eps) if eps is None else eps
    least = arguments.number("eps", least, 0)
    return apply("rms_norm", x, optional(weight), normalized_shape=shape, eps=least)  # type: ignore[no-any-return]


def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel (axis 1): by running values or, training, by the batch.

    Args:
        input: (N, C, ...).
        running_mean, running_var: (C,), or None while training. Training gives these tensors other
            values: (1 - momentum) times what they were plus momentum times those of the batch, of
            which the variance is the unbiased one.
        weight, bias: (C,): scale and shift, or None.
        training: see above.
        momentum: see above.
        eps: added to variances.

    Raises:
        ShapeError: another number of channels, or one value per channel while training.
        ArgumentError: no running values, though it does not train.

    Example:
        >>> import cubepy as cb
        >>> mean, var = cb.tensor([0.0]), cb.tensor([1.0])
        >>> batch_norm([[1.0], [3.0]], mean, var, training=True).numpy().round(3).ravel()
        array([-1.,  1.], dtype=float32)
        >>> mean
        tensor([0.2])
    """
    x, eps = as_tensor(input), arguments.number("eps", eps, 0)
    scale, shift = optional(weight), optional(bias)
    mean, var = optional(running_mean), optional(running_var)
    if not arguments.flag("training", training):
        if mean is None or var is None:
            raise ArgumentError(
                "batch_norm needs running_mean and running_var unless it trains",
                hint="give training=True to normalise by the batch",
            )
        return apply("channel_norm", x, mean, var, scale, shift, eps=eps)  # type: ignore[no-any-return]
    count = math.prod(x.shape[:1] + x.shape[2:])
    if x.ndim < 2 or count < 2:
        raise ShapeError(
            f"batch_norm trains on more than 1 value per channel, not on the shape {x.shape}"
        )
    y, *found = apply("batch_norm", x, scale, shift, eps=eps)
    take = arguments.number("momentum", momentum, 0, 1)
    with no_grad():
        _moved((mean, var), (found[0], found[1] * (count / (count - 1))), take)
    return y  # type: ignore[no-any-return]


@composed
def local_response_norm(
    input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha * mean of the squares of `size` channels around)^beta (Krizhevsky et al.,
    2012); channels outside are zeros.

    Args:
        input: (N, C, ...), of 3 axes or more.
        size: how many channels.
        alpha, beta, k: see above.

    Raises:
        ShapeError: fewer axes.

    Example:
        >>> local_response_norm([[[2.0], [4.0]]], 1, alpha=1.0, beta=0.5, k=0.0).flatten()
        tensor([1., 1.])
    """
    x, size = as_tensor(input), arguments.size("size", size, 1)
    if x.ndim < 3:
        raise ShapeError(f"local_response_norm takes (N, C, ...) of 3 axes, not {x.shape}")
    alpha, beta, k = (
        arguments.number(name, value)
        for name, value in (("alpha", alpha), ("beta", beta), ("k", k))
    )
    if not x.size:
        return x
    wide = arguments.widened(x)
    squares = (wide * wide).reshape(x.shape[0], 1, x.shape[1], math.prod(x.shape[2:]))
    squares = pad(squares, (0, 0, size // 2, (size - 1) // 2))
    mean = avg_pool2d(squares, (size, 1), 1).reshape(x.shape)
    y = wide / (mean * alpha + k) ** beta
    return y.astype(x.dtype) if x.dtype.is_float else y
