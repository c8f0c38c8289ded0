"""Transposed convolutions, and the gradients of convolutions by their input and by their
filters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.convolution.conv import LAYOUTS, as_it_lies, convolve_into, on_three_axes
from cubepy.kernels.convolution.cpu.depthwise_gradients import channels_by_phases
from cubepy.kernels.convolution.cpu.filters import FEW, PackedFilter, turned_panels
from cubepy.kernels.convolution.cpu.register_tile import tile_for
from cubepy.kernels.convolution.cpu.transposed import by_phases
from cubepy.kernels.convolution.cpu.transposed_plan import Phases
from cubepy.kernels.convolution.gpu.depthwise_nchw import planes_back
from cubepy.kernels.convolution.sm90.depthwise_nhwc import channels_back
from cubepy.kernels.convolution.sm90.transposed import by_remainders
from cubepy.kernels.convolution.spread import spread_out
from cubepy.kernels.entry.arguments import float_array, rounds_to_tf32, whole
from cubepy.kernels.entry.dispatch import has_planes, repeated
from cubepy.kernels.entry.results import output, wrapper
from cubepy.kernels.entry.shapes import as_new
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.movement.pad import pad
from cubepy.kernels.movement.transpose import transpose
from cubepy.runtime import memory

WRITTEN_OUT = 16  # columns of a depthwise window whose sums are in registers
NARROW = 16  # filters of a group that the tiles of phases are too wide for


def _turned(w: Any, groups: int) -> Any:
    """Filters (in, out / groups, *window) as (out, in / groups, *window), with every window
    reversed.
    """
    axes = w.ndim - 2
    parts = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    back = parts[(slice(None),) * 3 + (slice(None, None, -1),) * axes]
    swapped = contiguous(back.transpose(0, 2, 1, *range(3, 3 + axes)))
    return swapped.reshape(groups * w.shape[1], w.shape[0] // groups, *w.shape[2:])


def channels_last_view(x: Any, already: bool) -> Any:
    """(N, *size, C) of an array (N, C, *size), or of one that is so already, contiguous."""
    if already:
        return contiguous(x)
    order = (0, *range(2, x.ndim), 1)
    view = x.transpose(order)
    return view if view.flags.c_contiguous else transpose(x, order)


def transposed_into(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    layout: str,
    axes: int,
    precision: str | None,
    out: Any,
) -> Any:
    wrap, x, w = wrapper(input), float_array(input, "input"), float_array(weight, "weight")
    first, last = LAYOUTS[axes]
    if layout not in (first, last):
        raise ShapeError(f'layout is "{first}" or "{last}", not {layout!r}')
    if x.ndim != axes + 2 or w.ndim != axes + 2:
        raise ShapeError(
            f"conv_transpose{axes}d needs {axes + 2} axes, not shapes {x.shape} and {w.shape}"
        )
    view = x if layout == last else x.transpose(0, *range(2, axes + 2), 1)
    groups = whole(groups, "groups")
    rounds_to_tf32(precision)  # a CPU has no use for it, but a name of nothing is refused
    if groups < 1 or view.shape[-1] != w.shape[0] or w.shape[0] % groups:
        raise ShapeError(
            f"filters of shape {w.shape} in {groups} groups do not go with {view.shape[-1]} "
            "channels"
        )
    step, dil = (
        on_three_axes(stride, "stride", axes, 1)[-axes:],
        on_three_axes(dilation, "dilation", axes, 1)[-axes:],
    )
    cut, more = (
        on_three_axes(padding, "padding", axes, 0)[-axes:],
        on_three_axes(output_padding, "output_padding", axes, 0)[-axes:],
    )
    for m, s, d in zip(more, step, dil, strict=True):
        if m >= max(s, d):
            raise ShapeError(
                f"output_padding {m} must be smaller than the stride {s} or the dilation {d}"
            )
    settings = (step, cut, more, dil, groups)
    if not has_planes() and isinstance(x, np.ndarray) and x.itemsize <= 4 and x.size and w.size:
        result = _on_cpu(x, w, bias, layout, axes, *settings, out)
        if result is not None:
            return wrap(result) if out is None else out
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + m + 1
        for n, s, p, d, k, m in zip(
            view.shape[1:-1], step, cut, dil, w.shape[2:], more, strict=True
        )
    ]
    if min(sizes) < 1:
        raise ShapeError(
            f"a transposed convolution of {x.shape} with filters {w.shape} has no place: {sizes}"
        )
    if has_planes() and x.size and w.size:
        result = _on_gpu(x, w, bias, layout, axes, *settings, precision, out)
        if result is not None:
            return wrap(result) if out is None else out
    spread = view
    if any(s > 1 for s in step):
        spread = spread_out(view, step)
    widths: list[int] = []
    for k, d, p, m in zip(w.shape[2:], dil, cut, more, strict=True):
        widths = [d * (k - 1) - p, d * (k - 1) - p + m, *widths]
    wide = pad(contiguous(spread), (0, 0, *widths)) if any(widths) else spread
    result = convolve_into(
        wide, _turned(w, groups), bias, 1, 0, dil, groups, last, None, None, None, axes, precision
    )
    if layout == first:
        result = result.transpose(0, axes + 1, *range(1, axes + 1))
    if out is not None:
        convert_into(output(out, result.shape, result.dtype), result)
        return out
    return wrap(contiguous(result) if layout == first and not view.flags.c_contiguous else result)


def _on_cpu(
    x: Any,
    w: Any,
    bias: Any,
    layout: str,
    axes: int,
    step: Any,
    cut: Any,
    more: Any,
    dil: Any,
    groups: int,
    out: Any,
) -> Any:
    """The transposed convolution without zeros between the elements of x; None: no cube has the
    memory for it.
    """
    first, last = LAYOUTS[axes]
    view = x if layout == last else x.transpose(0, *range(2, axes + 2), 1)
    filters, window = w.shape[1] * groups, w.shape[2:]
    around = tuple(d * (k - 1) - p for d, k, p in zip(dil, window, cut, strict=True))
    dense = groups == 1 or w.shape[1] > FEW  # what a convolution takes in panels
    if (
        all(s == 1 for s in step)
        and not any(more)
        and min(around) >= 0
        and (dense or w.shape[1] < NARROW)
    ):
        if dense:
            panels = turned_panels(w, groups, True, math.prod(tile_for(w.shape[1])[1:]))
            turned = PackedFilter(panels, (filters, w.shape[0] // groups, *window), groups)
        else:
            taps = w[(slice(None),) * 2 + (slice(None, None, -1),) * axes]
            taps = taps.reshape(groups, w.shape[0] // groups, w.shape[1], -1).transpose(0, 2, 1, 3)
            turned = PackedFilter(taps, (filters, w.shape[0] // groups, *window), groups)
        return convolve_into(x, turned, bias, 1, around, dil, groups, layout, None, None, out, axes)
    sizes = [
        (n - 1) * s - p + m + a + 1
        for n, s, p, m, a in zip(view.shape[1:-1], step, cut, more, around, strict=True)
    ]
    if min(sizes) < 1:
        raise ShapeError(
            f"a transposed convolution of {x.shape} with filters {w.shape} has no place: {sizes}"
        )
    add = None if bias is None else float_array(bias, "bias")
    if add is not None and add.shape != (filters,):
        raise ShapeError(f"bias has shape {add.shape}, but there are {filters} filters")
    ones, zeros = (1,) * (3 - axes), (0,) * (3 - axes)
    problem = Phases(
        ones + view.shape[1:-1],
        ones + window,
        ones + step,
        zeros + cut,
        ones + dil,
        (*ones, *sizes),
    )
    n, c = view.shape[0], view.shape[-1]
    channels_last = layout == last or (view.flags.c_contiguous and c > 1 and view.size > n * c)
    alone = w.shape[:2] == (groups, 1)  # every channel has its own filter
    is_last = channels_last or alone
    given, target = None, None
    if out is not None:
        given = output(
            out, (n, *sizes, filters) if layout == last else (n, filters, *sizes), x.dtype
        )
        if not any(a is not None and np.may_share_memory(given, a) for a in (x, w, add)):
            target = as_new(
                given, (0, *range(2, axes + 2), 1) if is_last and layout == first else None
            )
    if alone:
        target = memory.empty((n, *sizes, filters), x.dtype) if target is None else target
        taps = memory.empty((math.prod(window), filters), np.float32)
        convert_into(taps, w.reshape(filters, -1).T)
        seen = channels_last_view(x, layout == last).reshape(n, *problem.size, c)
        channels_by_phases(seen, taps, add, target.reshape(n, *problem.out, filters), problem)
    else:
        made = by_phases(view, w, add, problem, groups, channels_last, target)
        if made is None:
            return None
        target = made.reshape((n, *sizes, filters) if channels_last else (n, filters, *sizes))
    if is_last and layout == first:
        target = target.transpose(0, axes + 1, *range(1, axes + 1))
    if given is not None:
        if not np.may_share_memory(given, target):
            convert_into(given, target)
        return out
    return target if channels_last == is_last else transpose(target, tuple(range(axes + 2)))


def _on_gpu(
    x: Any,
    w: Any,
    bias: Any,
    layout: str,
    axes: int,
    step: Any,
    cut: Any,
    more: Any,
    dil: Any,
    groups: int,
    precision: str | None,
    out: Any,
) -> Any:
    """The transposed convolution without zeros between the elements of x; None: there is no kernel
    for it.
    """
    view = x if layout == LAYOUTS[axes][1] else x.transpose(0, *range(2, axes + 2), 1)
    n, c = view.shape[0], view.shape[-1]
    around = tuple(d * (k - 1) - p for d, k, p in zip(dil, w.shape[2:], cut, strict=True))
    sizes = tuple(
        (m - 1) * s - p + r + a + 1
        for m, s, p, r, a in zip(view.shape[1:-1], step, cut, more, around, strict=True)
    )
    filters = w.shape[1] * groups
    add = None if bias is None else float_array(bias, "bias")
    if add is not None and add.shape != (filters,):
        raise ShapeError(f"bias has shape {add.shape}, but there are {filters} filters")
    made = None
    if groups == 1 and math.prod(w.shape[2:]) * math.prod(step) > 1:
        made = by_remainders(view, w, add, sizes, step, cut, dil, rounds_to_tf32(precision))
    elif groups == filters and layout == LAYOUTS[axes][0] and x.flags.c_contiguous:
        result = planes_back(x, w, add, sizes, step, cut, dil)
        if result is not None and out is not None:
            convert_into(output(out, result.shape, result.dtype), result)
        if result is not None:
            return result if out is None else out
    if made is None and groups == filters and (view.flags.c_contiguous or any(s > 1 for s in step)):
        made = channels_back(view, w, add, sizes, step, cut, dil)
    if made is None:
        if any(s > 1 for s in step) or any(more) or min(around) < 0:
            return None
        return convolve_into(
            x,
            _turned(w, groups),
            bias,
            1,
            around,
            dil,
            groups,
            layout,
            None,
            None,
            out,
            axes,
            precision,
        )
    channels_last = layout == LAYOUTS[axes][1] or (
        view.flags.c_contiguous and c > 1 and view.size > n * c
    )
    target = (
        made if layout == LAYOUTS[axes][1] else made.transpose(0, axes + 1, *range(1, axes + 1))
    )
    if channels_last and out is None:
        return target
    return transpose(target, tuple(range(axes + 2)), out=out)


_known = repeated(transposed_into)


def _repeated(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    layout: str,
    axes: int,
    precision: str | None,
    out: Any,
) -> Any:
    """`transposed_into`, or the launches of an earlier call with arrays of the same layouts."""
    view = as_it_lies(input, layout, out, axes)
    if view is None:
        return _known(
            input, weight, bias, stride, padding, output_padding, groups, dilation, layout, axes,
            precision, out
        )  # fmt: skip
    last = LAYOUTS[axes][1]
    return _known(
        view, weight, bias, stride, padding, output_padding, groups, dilation, last, axes,
        precision, None
    ).transpose(0, axes + 1, *range(1, axes + 1))  # fmt: skip


def conv_transpose1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCL",
    precision: str | None = None,
    out: Any = None,
) -> Any:
    """Transposed convolution along one axis, as `torch.nn.functional.conv_transpose1d`.

    Example:
        >>> import numpy as np
        >>> conv_transpose1d(np.array([[[1, 10]]], np.float32), np.ones((1, 1, 2), np.float32))
        array([[[ 1., 11., 10.]]], dtype=float32)
    """
    return _repeated(
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
        layout,
        1,
        precision,
        out,
    )


def conv_transpose2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCHW",
    precision: str | None = None,
    out: Any = None,
) -> Any:
    """Transposed convolution of images, as `torch.nn.functional.conv_transpose2d`.

    Args:
        input: (N, C, H, W), or (N, H, W, C) with layout "NHWC".
        weight: (channels, filters / groups, kh, kw).
        bias: (filters,), or None.
        stride, padding, output_padding, dilation: int or 2 of them.
        groups: channels and filters fall into so many groups.
        layout: "NCHW" or "NHWC".
        precision: as the convolution's.
        out: array to write.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> conv_transpose2d(np.ones((1, 2, 3, 3), np.float32), np.ones((2, 4, 2, 2), np.float32),
        ...     stride=2).shape
        (1, 4, 6, 6)
    """
    return _repeated(
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
        layout,
        2,
        precision,
        out,
    )


def conv_transpose3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    layout: str = "NCDHW",
    precision: str | None = None,
    out: Any = None,
) -> Any:
    """Transposed convolution of volumes, as `torch.nn.functional.conv_transpose3d`.

    Example:
        >>> import numpy as np
        >>> conv_transpose3d(np.ones((1, 1, 1, 1, 1), np.float32), np.ones((1, 2, 2, 2, 2),
        ...     np.float32)).shape
        (1, 2, 2, 2, 2)
    """
    return _repeated(
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
        layout,
        3,
        precision,
        out,
    )
