"""Max pooling over 1 to 3 axes, of windows or of equal parts, with the positions of the maxima, and
gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.entry.arguments import array_of, float_array, per_axis
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.entry.shapes import as_new, window_count
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.pooling.problem import MaxPool
from cubepy.kernels.pooling.routines import MAX_POOL
from cubepy.runtime import memory

LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def five(x: Any, axes: int, last: bool) -> Any:
    """An array with its batch as (batch, depth, height, width, channels); planes are a batch with
    channels first.
    """
    size = x.shape[1:-1] if last else x.shape[2:]
    lead = (x.shape[0],) if last else (x.shape[0] * x.shape[1],)
    return x.reshape(*lead, *(1,) * (3 - axes), *size, x.shape[-1] if last else 1)


def batched(x: Any, axes: int, layout: str, name: str) -> tuple[Any, bool, bool]:
    """The array with a batch axis, whether channels are last, and whether the batch axis
    was added.
    """
    if layout not in LAYOUTS[axes]:
        raise ShapeError(f"layout is one of {LAYOUTS[axes]}, not {layout!r}")
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(
            f"{name} needs {axes + 2} axes ({layout}), or one less, not shape {x.shape}"
        )
    alone = x.ndim == axes + 1
    return (x.reshape(1, *x.shape) if alone else x), layout == LAYOUTS[axes][1], alone


def windows(
    size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    """Kernel, stride, padding and dilation along three axes, and how many windows there are along
    each own axis.
    """
    axes = len(size)
    ks, ps = per_axis(kernel, axes, "kernel_size", 1), per_axis(padding, axes, "padding", 0)
    ds, ss = (
        per_axis(dilation, axes, "dilation", 1),
        ks if stride is None else per_axis(stride, axes, "stride", 1),
    )
    along = zip(size, ks, ss, ps, ds, strict=True)
    counts = [window_count(f"max_pool{axes}d", *lengths, ceil_mode) for lengths in along]
    front = 3 - axes
    how = ((1,) * front + ks, (1,) * front + ss, (0,) * front + ps, (1,) * front + ds)
    return how, tuple(counts)


PARTS = (
    (1, 1, 1),
    (1, 1, 1),
    (0, 0, 0),
    (1, 1, 1),
)  # windows that are parts are known by their number


def _least(dtype: np.dtype) -> Any:
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min)
    if dtype.kind == "b":
        raise DTypeError(f"input must hold numbers, not {dtype}")
    return -float("inf")


def _numbers(input: Any) -> Any:
    x = array_of(input, "input")
    return x if x.dtype.kind in "iu" else float_array(input, "input")


def pooled(input: Any, axes: int, how: Any, indices: bool, layout: str, out: Any, name: str) -> Any:
    """Largest values of windows; `how` makes their settings and number of the sizes."""
    wrap = wrapper(input)
    x, last, alone = batched(_numbers(input), axes, layout, name)
    settings, counts, parts = how(x.shape[1:-1] if last else x.shape[2:])
    shape = (x.shape[0], *counts, x.shape[-1]) if last else (*x.shape[:2], *counts)
    order = (0, *range(2, axes + 2), 1)
    turned = (
        not last
        and x.shape[1] > 1
        and not x.flags.c_contiguous
        and x.transpose(order).flags.c_contiguous
    )
    if turned:  # channels-last memory seen as channels first
        x, last, shape = x.transpose(order), True, (x.shape[0], *counts, x.shape[1])
    back = (0, axes + 1, *range(1, axes + 1))
    value, given = None, None
    if out is not None:
        given = output(
            out, (shape if not turned else tuple(shape[d] for d in back))[alone:], x.dtype, x
        )
        value = as_new(given, order if turned else None, alone)
    value = memory.empty(shape, x.dtype) if value is None else value
    positions = memory.empty(shape, np.int64) if indices else None
    if value.size:
        source, target = five(contiguous(x), axes, last), five(value, axes, last)
        least = _least(x.dtype)
        spots = None if positions is None else five(positions, axes, last)
        MAX_POOL.run(MaxPool(source, target, spots, settings, least, parts, last, axes))

    def seen(a: Any) -> Any:
        a = a.transpose(back) if turned else a
        return a.reshape(a.shape[1:]) if alone else a

    result = seen(value)
    if given is not None and not np.may_share_memory(given, value):
        convert_into(given, result)
    result = finish(result, out, wrap)
    return (result, wrap(seen(positions))) if indices else result


def windows_along(kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    return lambda size: (*windows(size, kernel, stride, padding, dilation, ceil_mode), False)


def equal_parts(output_size: Any) -> Any:
    def how(size: tuple[int, ...]) -> Any:
        if 0 in size:
            raise ShapeError(f"parts of nothing: {size}")
        return PARTS, per_axis(output_size, len(size), "output_size", 1), True

    return how


def _pool(axes: int) -> Any:
    def max_pool(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        *,
        layout: str = LAYOUTS[axes][0],
        out: Any = None,
    ) -> Any:
        how = windows_along(kernel_size, stride, padding, dilation, ceil_mode)
        return pooled(input, axes, how, return_indices, layout, out, f"max_pool{axes}d")

    first, last = LAYOUTS[axes]
    sizes = ("(N, C, L)", "(N, C, H, W)", "(N, C, D, H, W)")[axes - 1]
    value = np.full((1,) * (axes + 2), 2**axes - 1, np.float32)
    max_pool.__name__ = max_pool.__qualname__ = f"max_pool{axes}d"
    max_pool.__doc__ = f"""Largest value of every window, as `torch.nn.functional.max_pool{axes}d`.

    Args:
        input: {sizes}, or with the channels last by `layout`, or without N; numbers. NaN in a
            window gives NaN.
        kernel_size, stride, padding, dilation: int or {axes} of them; stride defaults to the
            window.
        ceil_mode: windows may hang over the end.
        return_indices: also the position of each maximum in its plane, counted in rows; the first
            of equals, the last NaN.
        layout: "{first}" or "{last}". A {first} view of channels-last memory runs as {last}.
        out: array to write.

    Raises:
        ShapeError: wrong rank, padding above half the window, or a window that does not fit.
        DTypeError: booleans.

    Example:
        >>> import numpy as np
        >>> x = np.arange({2**axes}, dtype=np.float32).reshape({(1, 1) + (2,) * axes})
        >>> max_pool{axes}d(x, 2, return_indices=True)
        ({value!r}, {value.astype(np.int64)!r})
    """
    return repeated(max_pool)


def _adaptive(axes: int) -> Any:
    def adaptive_max_pool(
        input: Any,
        output_size: Any,
        return_indices: bool = False,
        *,
        layout: str = LAYOUTS[axes][0],
        out: Any = None,
    ) -> Any:
        return pooled(
            input,
            axes,
            equal_parts(output_size),
            return_indices,
            layout,
            out,
            f"adaptive_max_pool{axes}d",
        )

    adaptive_max_pool.__name__ = adaptive_max_pool.__qualname__ = f"adaptive_max_pool{axes}d"
    adaptive_max_pool.__doc__ = f"""Largest values of `output_size` equal parts, as torch's.

    Args:
        input, return_indices, layout, out: as for `max_pool{axes}d`.
        output_size: int or {axes} of them.

    Raises:
        ShapeError: wrong rank or an empty input.

    Example:
        >>> import numpy as np
        >>> x = np.ones({(1, 1) + (5,) * axes}, np.float32)
        >>> adaptive_max_pool{axes}d(x, 2).shape
        {(1, 1) + (2,) * axes}
    """
    return repeated(adaptive_max_pool)


max_pool1d, max_pool2d, max_pool3d = map(_pool, (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (
    _adaptive(axes) for axes in (1, 2, 3)
)
