"""Windows of images as columns, and the reverse."""

from __future__ import annotations

import itertools
import math
from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import per_axis
from cubepy.nn.arguments import widened
from cubepy.runtime.device import gpu_of
from cubepy.tensor import Tensor, apply, as_tensor

Sizes = int | tuple[int, int]


def _counts(op: str, size: tuple[int, ...], how: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    kernel, dilation, padding, stride = how
    counts = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(size, kernel, dilation, padding, stride, strict=True)
    )
    if min(counts) < 1:
        raise ShapeError(f"{op}: no window of {kernel} with dilation {dilation} fits in {size}")
    return counts


def _how(
    kernel_size: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> tuple[tuple[int, ...], ...]:
    return (
        per_axis(kernel_size, 2, "kernel_size", 1),
        per_axis(dilation, 2, "dilation", 1),
        per_axis(padding, 2, "padding", 0),
        per_axis(stride, 2, "stride", 1),
    )


def unfold(
    input: Any, kernel_size: Sizes, dilation: Sizes = 1, padding: Sizes = 0, stride: Sizes = 1
) -> Tensor:
    """The windows of images as columns (im2col).

    Args:
        input: (N, C, H, W), or (C, H, W).
        kernel_size, dilation, padding, stride: of the windows, as of a convolution.

    Returns:
        (N, C * kernel, L) for L windows; without N where the input has none.

    Raises:
        ShapeError: windows that do not fit.

    Example:
        >>> unfold([[[1.0, 2.0, 3.0]]], (1, 2))
        tensor([[1., 2.],
                [2., 3.]])
    """
    x = as_tensor(input)
    if x.ndim == 3:
        return unfold(x.unsqueeze(0), kernel_size, dilation, padding, stride)[0]
    if x.ndim != 4:
        raise ShapeError(f"unfold takes images (N, C, H, W), not {x.shape}")
    how = _how(kernel_size, dilation, padding, stride)
    kernel, steps, pads, strides = how
    n, c, *size = x.shape
    counts = _counts("unfold", tuple(size), how)
    if gpu_of(x.device) is not None:
        return apply("unfold", x, how=how, counts=counts)
    if any(pads):
        x = apply("pad", x, widths=_widths(pads), mode="constant", value=0.0)
    many = math.prod(counts)
    taps = [x[(..., *at)] for at in _taps(kernel, steps, strides, counts)]
    columns = apply("concat", *(t.reshape(n, c, 1, many) for t in taps), axis=2)
    return columns.reshape(n, c * math.prod(kernel), many)


def fold(
    input: Any,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Images as the sums of windows that are columns (col2im).

    Args:
        input: (N, C * kernel, L) for L windows, or without N.
        output_size: of the images.
        kernel_size, dilation, padding, stride: of the windows, as of `unfold`.

    Returns:
        (N, C, *output_size), or without N.

    Raises:
        ShapeError: columns that are not as many as windows.

    Example:
        >>> fold([[1.0, 2.0], [2.0, 3.0]], (1, 3), (1, 2))
        tensor([[[1., 4., 3.]]])
    """
    x = as_tensor(input)
    if x.ndim == 2:
        return fold(x.unsqueeze(0), output_size, kernel_size, dilation, padding, stride)[0]
    size = per_axis(output_size, 2, "output_size", 1)
    how = _how(kernel_size, dilation, padding, stride)
    kernel, steps, pads, strides = how
    counts = _counts("fold", size, how)
    window, many = math.prod(kernel), math.prod(counts)
    if x.ndim != 3 or x.shape[1] % window or x.shape[2] != many:
        raise ShapeError(
            f"fold into {size} by {kernel}: {many} columns of a multiple of {window}, not {x.shape}"
        )
    if gpu_of(x.device) is not None:
        return apply("fold", x, size=size, how=how, counts=counts)
    n, c = x.shape[0], x.shape[1] // window
    parts = widened(x).reshape(n, c, window, *counts)
    full = (n, c, *(a + 2 * p for a, p in zip(size, pads, strict=True)))
    found = None
    for tap, at in enumerate(_taps(kernel, steps, strides, counts)):
        index = ((None, None, None), (None, None, None), *((a.start, a.stop, a.step) for a in at))
        part = apply("unslice", parts[:, :, tap], shape=full, index=index)
        found = part if found is None else found + part
    assert found is not None
    inner = tuple(slice(p, p + a) for p, a in zip(pads, size, strict=True))
    return (found[(..., *inner)] if any(pads) else found).astype(x.dtype)


def _widths(padding: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(p for one in reversed(padding) for p in (one, one))


def _taps(
    kernel: tuple[int, ...],
    dilation: tuple[int, ...],
    stride: tuple[int, ...],
    counts: tuple[int, ...],
) -> list[tuple[slice, ...]]:
    """What each element of a window sees of a padded image, over all windows."""
    taps = itertools.product(*(range(k) for k in kernel))
    return [
        tuple(
            slice(k * d, k * d + s * (n - 1) + 1, s)
            for k, d, s, n in zip(tap, dilation, stride, counts, strict=True)
        )
        for tap in taps
    ]
