"""Transposed convolutions, and the gradients of convolutions by their input and by their filters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.arguments import (
    float_array,
    output,
    repeated,
    rounds_to_tf32,
    size_of,
    whole,
    wrapper,
)
from cubepy.kernels.convolution import LAYOUTS, _as_it_lies, _convolve, _three
from cubepy.kernels.convolution_channels import channels_by_phases, channels_by_weight
from cubepy.kernels.convolution_channelwise import weight_by_channel_on_gpu
from cubepy.kernels.convolution_channelwise_boxes import channels_back
from cubepy.kernels.convolution_channelwise_planes import planes_back, weight_by_planes
from cubepy.kernels.convolution_channelwise_weight import weight_by_boxes
from cubepy.kernels.convolution_filters import FEW, PackedFilter
from cubepy.kernels.convolution_gpu_back import by_remainders
from cubepy.kernels.convolution_phases import Phases, by_phases
from cubepy.kernels.convolution_plan import tile_for
from cubepy.kernels.convolution_routes import Problem, columns_of
from cubepy.kernels.convolution_turn import turned_panels
from cubepy.kernels.convolution_weight import by_places
from cubepy.kernels.convolution_weight_gpu import by_windows_on_gpu
from cubepy.kernels.convolution_weight_hopper import by_places_on_gpu
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise import contiguous, convert_into
from cubepy.kernels.matmul import matmul
from cubepy.kernels.movement import transpose
from cubepy.kernels.pad import pad
from cubepy.kernels.shapes import as_new
from cubepy.runtime import memory

WRITTEN_OUT = 16  # columns of a depthwise window whose sums are in registers
NARROW = 16  # filters of a group that the tiles of phases are too wide for


def _turned(w: Any, groups: int) -> Any:
    """Filters (in, out / groups, *window) as (out, in / groups, *window), with every window reversed."""
    axes = w.ndim - 2
    parts = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    back = parts[(slice(None),) * 3 + (slice(None, None, -1),) * axes]
    swapped = contiguous(back.transpose(0, 2, 1, *range(3, 3 + axes)))
    return swapped.reshape(groups * w.shape[1], w.shape[0] // groups, *w.shape[2:])


def _channels_last(x: Any, already: bool) -> Any:
    """(N, *size, C) of an array (N, C, *size), or of one that is so already, contiguous."""
    if already:
        return contiguous(x)
    order = (0, *range(2, x.ndim), 1)
    view = x.transpose(order)
    return view if view.flags.c_contiguous else transpose(x, order)


def _conv_transpose(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any,
    layout: str, axes: int, precision: str | None, out: Any,
) -> Any:  # fmt: skip
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
            f"filters of shape {w.shape} in {groups} groups do not go with {view.shape[-1]} channels"
        )
    step, dil = (
        _three(stride, "stride", axes, 1)[-axes:],
        _three(dilation, "dilation", axes, 1)[-axes:],
    )
    cut, more = (
        _three(padding, "padding", axes, 0)[-axes:],
        _three(output_padding, "output_padding", axes, 0)[-axes:],
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
        apart = tuple((n - 1) * s + 1 for n, s in zip(view.shape[1:-1], step, strict=True))
        spread = memory.empty((view.shape[0], *apart, view.shape[-1]), view.dtype)
        spread[...] = 0
        spread[(slice(None), *(slice(None, None, s) for s in step), slice(None))] = view
    widths: list[int] = []
    for k, d, p, m in zip(w.shape[2:], dil, cut, more, strict=True):
        widths = [d * (k - 1) - p, d * (k - 1) - p + m, *widths]
    wide = pad(contiguous(spread), (0, 0, *widths)) if any(widths) else spread
    result = _convolve(
        wide, _turned(w, groups), bias, 1, 0, dil, groups, last, None, None, None, axes, precision
    )
    if layout == first:
        result = result.transpose(0, axes + 1, *range(1, axes + 1))
    if out is not None:
        convert_into(output(out, result.shape, result.dtype), result)
        return out
    return wrap(contiguous(result) if layout == first and not view.flags.c_contiguous else result)


def _on_cpu(
    x: Any, w: Any, bias: Any, layout: str, axes: int, step: Any, cut: Any, more: Any, dil: Any, groups: int, out: Any
) -> Any:  # fmt: skip
    """The transposed convolution without zeros between the elements of x; None: no cube has the memory for it."""
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
        return _convolve(x, turned, bias, 1, around, dil, groups, layout, None, None, out, axes)
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
        seen = _channels_last(x, layout == last).reshape(n, *problem.size, c)
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
    x: Any, w: Any, bias: Any, layout: str, axes: int, step: Any, cut: Any, more: Any, dil: Any, groups: int,
    precision: str | None, out: Any,
) -> Any:  # fmt: skip
    """The transposed convolution without zeros between the elements of x; None: there is no kernel for it."""
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
        return _convolve(
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


_known = repeated(_conv_transpose)


def _repeated(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: int, dilation: Any,
    layout: str, axes: int, precision: str | None, out: Any,
) -> Any:  # fmt: skip
    """`_conv_transpose`, or the launches of an earlier call with arrays of the same layouts."""
    view = _as_it_lies(input, layout, out, axes)
    if view is None:
        return _known(
            input, weight, bias, stride, padding, output_padding, groups, dilation, layout, axes, precision, out
        )  # fmt: skip
    last = LAYOUTS[axes][1]
    return _known(
        view, weight, bias, stride, padding, output_padding, groups, dilation, last, axes, precision, None
    ).transpose(0, axes + 1, *range(1, axes + 1))  # fmt: skip


def conv_transpose1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, *, layout: str = "NCL", precision: str | None = None, out: Any = None,
) -> Any:  # fmt: skip
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
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, *, layout: str = "NCHW", precision: str | None = None, out: Any = None,
) -> Any:  # fmt: skip
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
        >>> conv_transpose2d(np.ones((1, 2, 3, 3), np.float32), np.ones((2, 4, 2, 2), np.float32), stride=2).shape
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
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1, *, layout: str = "NCDHW", precision: str | None = None, out: Any = None,
) -> Any:  # fmt: skip
    """Transposed convolution of volumes, as `torch.nn.functional.conv_transpose3d`.

    Example:
        >>> import numpy as np
        >>> conv_transpose3d(np.ones((1, 1, 1, 1, 1), np.float32), np.ones((1, 2, 2, 2, 2), np.float32)).shape
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


def _conv_input(
    grad_output: Any, weight: Any, input_size: tuple[int, ...], stride: Any, padding: Any, dilation: Any, groups: int,
    precision: str | None,
) -> Any:  # fmt: skip
    """`conv_input`."""
    wrap, weight, grad_output = (
        wrapper(grad_output),
        float_array(weight, "weight"),
        float_array(grad_output, "grad"),
    )
    axes = len(input_size) - 2
    if not 1 <= axes <= 3 or weight.ndim != axes + 2 or grad_output.ndim != axes + 2:
        raise ShapeError(
            f"an input of shape {input_size}, filters of shape {weight.shape} and a gradient of shape "
            f"{grad_output.shape} do not go together"
        )
    step, dil = (
        _three(stride, "stride", axes, 1)[-axes:],
        _three(dilation, "dilation", axes, 1)[-axes:],
    )
    cut = _three(padding, "padding", axes, 0)[-axes:]
    shape, places = weight.shape, grad_output.shape[2:]
    more = tuple(
        n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
        for n, m, s, p, d, k in zip(input_size[2:], places, step, cut, dil, shape[2:], strict=True)
    )
    if any(m < 0 for m in more):
        raise ShapeError(
            f"a gradient of shape {grad_output.shape} does not come from an input of shape {input_size}"
        )
    first = LAYOUTS[axes][0]
    return wrap(
        _conv_transpose(
            grad_output, weight, None, step, cut, more, groups, dil, first, axes, precision, None
        )
    )


_known_input = repeated(_conv_input)


def conv_input(
    input_size: tuple[int, ...], weight: Any, grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, precision: str | None = None,
) -> Any:  # fmt: skip
    """The gradient of a convolution by its input, as `torch.nn.grad.conv2d_input` (in 1 to 3 axes, channels first).

    Args:
        input_size: shape of the input, (N, C, *size).
        weight: (filters, channels / groups, *window).
        grad_output: (N, filters, *places).
        stride, padding, dilation, groups, precision: as the convolution's.

    Example:
        >>> import numpy as np
        >>> conv_input((1, 3, 8, 8), np.ones((4, 3, 3, 3), np.float32), np.ones((1, 4, 3, 3), np.float32), 2).shape
        (1, 3, 8, 8)
    """
    size = size_of(input_size, "input_size")
    return _known_input(grad_output, weight, size, stride, padding, dilation, groups, precision)


def _conv_weight(
    input: Any, grad_output: Any, weight_size: tuple[int, ...], stride: Any, padding: Any, dilation: Any, groups: int,
    precision: str | None,
) -> Any:  # fmt: skip
    """`conv_weight`."""
    wrap, x, grad = (
        wrapper(input),
        float_array(input, "input"),
        float_array(grad_output, "grad_output"),
    )
    axes = x.ndim - 2
    if not 1 <= axes <= 3 or grad.ndim != x.ndim or len(weight_size) != x.ndim:
        raise ShapeError(
            f"filters of shape {weight_size} do not go with {x.shape} and {grad.shape}"
        )
    ones = (1,) * (3 - axes)
    problem = Problem(
        ones + tuple(x.shape[2:]), ones + tuple(weight_size[2:]), _three(stride, "stride", axes, 1),
        _three(padding, "padding", axes, 0), _three(dilation, "dilation", axes, 1), ones + tuple(grad.shape[2:]),
        rounds_to_tf32(precision),
    )  # fmt: skip
    groups = whole(groups, "groups")
    filters, channels = weight_size[0] // max(groups, 1), weight_size[1]
    fitting = all(
        m == (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d, m in zip(
            problem.size,
            problem.window,
            problem.stride,
            problem.pad,
            problem.dilation,
            problem.out,
            strict=True,
        )
    )
    if (
        x.shape[:2] != (grad.shape[0], channels * groups)
        or grad.shape[1] != filters * groups
        or not fitting
    ):
        raise ShapeError(
            f"filters of shape {weight_size} do not go with {x.shape} and {grad.shape}"
        )
    result = memory.empty(tuple(weight_size), x.dtype)
    if x.size == 0 or grad.size == 0 or result.size == 0:
        result[...] = 0
        return wrap(result)
    cpu = not has_planes() and isinstance(x, np.ndarray) and x.itemsize <= 4
    if cpu and (filters > 1 or channels > 1 or weight_size[-1] > WRITTEN_OUT):
        by_places(x, grad, result.reshape(groups, filters, -1), problem, groups)
        return wrap(result)
    if cpu:  # every channel has its own filter
        seen = _channels_last(x, False).reshape(x.shape[0], *problem.size, groups)
        lines = _channels_last(grad, False).reshape(x.shape[0], *problem.out, groups)
        channels_by_weight(seen, lines, result.reshape(1, groups, -1), problem)
        return wrap(result)
    last = (0, *range(2, axes + 2), 1)
    if has_planes():
        pair, by_tap = (
            (x.transpose(last), grad.transpose(last)),
            result.reshape(weight_size[0], channels, -1),
        )
        if filters == channels == 1:
            flat = result.reshape(groups, -1)
            if weight_by_planes(x, grad, flat, problem) or weight_by_boxes(*pair, flat, problem):
                return wrap(result)
            if weight_by_channel_on_gpu(*pair, flat, problem):
                return wrap(result)
        if by_places_on_gpu(*pair, by_tap, problem, groups) or by_windows_on_gpu(
            *pair, by_tap, problem, groups
        ):
            return wrap(result)
    view = contiguous(x.transpose(last))
    seen = grad.reshape(*grad.shape[:2], -1).transpose(1, 0, 2)
    for g in range(groups):
        columns = columns_of(view, problem, g * channels, channels)
        part = contiguous(seen[g * filters : (g + 1) * filters]).reshape(filters, -1)
        product = matmul(part, columns, precision=precision).reshape(
            filters, math.prod(weight_size[2:]), channels
        )
        convert_into(
            result[g * filters : (g + 1) * filters].reshape(filters, channels, -1),
            product.transpose(0, 2, 1),
        )
    return wrap(result)


_known_weight = repeated(_conv_weight)


def conv_weight(
    input: Any, weight_size: tuple[int, ...], grad_output: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: int = 1, *, precision: str | None = None,
) -> Any:  # fmt: skip
    """The gradient of a convolution by its filters, as `torch.nn.grad.conv2d_weight` (in 1 to 3 axes, channels first).

    Args:
        input: (N, C, *size).
        weight_size: shape of the filters, (filters, channels / groups, *window).
        grad_output: (N, filters, *places).
        stride, padding, dilation, groups, precision: as the convolution's.

    Example:
        >>> import numpy as np
        >>> conv_weight(np.ones((1, 3, 8, 8), np.float32), (4, 3, 3, 3), np.ones((1, 4, 6, 6), np.float32)).shape
        (4, 3, 3, 3)
    """
    size = size_of(weight_size, "weight_size")
    return _known_weight(input, grad_output, size, stride, padding, dilation, groups, precision)
