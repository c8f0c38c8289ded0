"""Max pools the other way round, and max pools of windows that are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cubepy.errors import ArgumentError, ShapeError
from cubepy.kernels.entry.arguments import per_axis
from cubepy.nn import arguments, init
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import arange, concat, full, zeros


def max_unpool1d(
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros (N, C, L) with the maxima of `max_pool1d` where they were.

    Args:
        input: (N, C, L'), or without N: the maxima.
        indices: of the same shape: where they were, as `return_indices` says.
        kernel_size, stride, padding: of the pool.
        output_size: L, or the shape of the result, where several lengths gave the maxima's.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> max_unpool1d([[[3.0, 5.0]]], [[[1, 2]]], 2)
        tensor([[[0., 3., 5., 0.]]])
    """
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros (N, C, H, W) with the maxima of `max_pool2d` where they were; see `max_unpool1d`.

    Example:
        >>> max_unpool2d([[[[3.0]]]], [[[[1]]]], 2)
        tensor([[[[0., 3.],
                  [0., 0.]]]])
    """
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros (N, C, D, H, W) with the maxima of `max_pool3d` where they were; see `max_unpool1d`.

    Example:
        >>> max_unpool3d([[[[[3.0]]]]], [[[[[1]]]]], (1, 1, 2))
        tensor([[[[[0., 3.]]]]])
    """
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)


def _unpool(
    axes: int, input: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, size: Any
) -> Tensor:
    x, index = as_tensor(input), as_tensor(indices)
    if x.ndim not in (axes + 1, axes + 2) or index.shape != x.shape:
        raise ShapeError(
            f"max_unpool{axes}d takes values and indices of {axes + 1} or {axes + 2} axes, not "
            f"{x.shape} and {index.shape}"
        )
    window = per_axis(kernel_size, axes, "kernel_size", 1)
    steps = window if stride is None else per_axis(stride, axes, "stride", 1)
    added = per_axis(padding, axes, "padding", 0)
    first = x.shape[: x.ndim - axes]
    lengths = [
        (n - 1) * s + k - 2 * p
        for n, k, s, p in zip(x.shape[x.ndim - axes :], window, steps, added, strict=True)
    ]
    if size is not None:
        given = [arguments.size("output_size", n) for n in size][-axes:]
        near = zip(given, lengths, steps, strict=False)
        if len(given) != axes or any(abs(n - m) >= s for n, m, s in near):
            raise ShapeError(
                f"output_size is {lengths}, each less than a stride more or less, not {given}"
            )
        lengths = given
    rows = math.prod(first)
    flat = zeros((rows, math.prod(lengths)), dtype=x.dtype, device=x.device)
    found = flat.scatter(1, index.reshape(rows, -1).astype("i64"), x.reshape(rows, -1))
    return found.reshape(*first, *lengths)


def fractional_max_pool2d(
    input: Any,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """The largest value of windows of (N, C, H, W) whose distances are drawn (Graham, 2014), so
    that they give any number of rows and columns.

    Args:
        input: (N, C, H, W), or without N.
        kernel_size: of a window.
        output_size: rows and columns of the result; or
        output_ratio: their share of the input's, below 1.
        return_indices: whether it is said where the maxima were, too.
        _random_samples: (N, C, 2) numbers of [0, 1) that decide the windows, for columns and rows.

    Raises:
        ArgumentError: not one of `output_size` and `output_ratio`.
        ShapeError: another number of axes, or more windows than there is room for.

    Example:
        >>> import numpy as np
        >>> fractional_max_pool2d(np.ones((1, 1, 5, 7)), 2, output_size=(3, 4)).shape
        (1, 1, 3, 4)
    """
    how = (output_size, output_ratio, return_indices, _random_samples)
    return _fractional(2, input, kernel_size, *how)


def fractional_max_pool3d(
    input: Any,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Any = None,
) -> Any:
    """The same of (N, C, D, H, W), with samples (N, C, 3).

    Example:
        >>> import numpy as np
        >>> fractional_max_pool3d(np.ones((1, 1, 4, 5, 7)), 2, output_ratio=0.5).shape
        (1, 1, 2, 2, 3)
    """
    how = (output_size, output_ratio, return_indices, _random_samples)
    return _fractional(3, input, kernel_size, *how)


def _fractional(
    axes: int, input: Any, kernel_size: Any, size: Any, ratio: Any, indices: bool, samples: Any
) -> Any:
    x = as_tensor(input)
    if x.ndim == axes + 1:
        given = None if samples is None else as_tensor(samples).reshape(1, x.shape[0], axes)
        found = _fractional(axes, x.unsqueeze(0), kernel_size, size, ratio, indices, given)
        return tuple(t.squeeze(0) for t in found) if indices else found.squeeze(0)
    if x.ndim != axes + 2:
        raise ShapeError(f"fractional_max_pool{axes}d takes {axes + 2} axes, not {x.shape}")
    if (size is None) == (ratio is None):
        raise ArgumentError("give output_size or output_ratio")
    lengths = x.shape[2:]
    if size is None:
        ratios = ratio if isinstance(ratio, (tuple, list)) else [ratio] * axes
        shares = arguments.numbers("output_ratio", list(ratios), axes)
        sizes = [int(n * share) for n, share in zip(lengths, shares, strict=True)]
    else:
        sizes = list(per_axis(size, axes, "output_size", 1))
    window = per_axis(kernel_size, axes, "kernel_size", 1)
    if any(m < 1 or m + k - 1 > n for m, k, n in zip(sizes, window, lengths, strict=True)):
        raise ShapeError(f"there are no {sizes} windows of {list(window)} in {list(lengths)}")
    rows = x.shape[0] * x.shape[1]
    if samples is None:
        drawn = init.dropout_generator(x.device).uniform((rows, axes), dtype="f32")
    else:
        drawn = as_tensor(samples).to(x.device).reshape(rows, axes)
    index: Any = 0
    for n, (length, m, k) in enumerate(zip(lengths, sizes, window, strict=True)):
        own = drawn[:, axes - 1 - n if axes == 2 else n]
        begins = _begins(arguments.widened(own), length, m, k)
        at = begins.unsqueeze(2) + arange(k, dtype="i64", device=x.device)
        shape = [rows, *(1,) * (2 * axes)]
        shape[1 + n], shape[1 + axes + n] = m, k
        index = index * length + at.reshape(*shape)
    index = index.reshape(rows, math.prod(sizes), math.prod(window))
    flat = x.reshape(rows, 1, math.prod(lengths)).expand(rows, index.shape[1], math.prod(lengths))
    values = flat.gather(2, index)
    best = values.detach().argmax(axis=2, keepdims=True)
    shape = [*x.shape[:2], *sizes]
    y = values.gather(2, best).reshape(*shape)
    return (y, index.gather(2, best).reshape(*shape)) if indices else y


def _begins(sample: Tensor, length: int, count: int, window: int) -> Tensor:
    """Where the windows of each row begin, (rows, count)."""
    last = full((sample.shape[0], 1), length - window, dtype="i64", device=sample.device)
    if count == 1:
        return last
    step = (length - window) / (count - 1)
    u = sample.unsqueeze(1)
    ahead = (u + arange(count - 1, dtype="i64", device=u.device).astype(u.dtype)) * step
    return concat([ahead.astype("i64") - (u * step).astype("i64"), last], axis=1)
