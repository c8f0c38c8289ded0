"""Convolutions in one, two and three axes: strides, padding, dilation, groups, transposed, and
their gradients.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.convolution.cpu.filters import PackedFilter, has_few
from cubepy.kernels.convolution.cpu.implicit_gemm_plan import LIGHT
from cubepy.kernels.convolution.double import convolve_doubles
from cubepy.kernels.convolution.measure import described
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.routines import CONVOLUTION
from cubepy.kernels.elementwise.map import run
from cubepy.kernels.entry.arguments import float_array, per_axis, rounds_to_tf32, whole
from cubepy.kernels.entry.dispatch import has_planes, repeated_with
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.primitives.functions import activation_of
from cubepy.runtime import memory
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.spans import extent
from cubepy.tune import choose

LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def on_three_axes(value: Any, name: str, axes: int, least: int) -> tuple[int, ...]:
    """Ints for three axes, of which the last `axes` are there."""
    return ((0,) if least == 0 else (1,)) * (3 - axes) + per_axis(value, axes, name, least)


def padding_of(value: Any, axes: int, window: Any, dilation: Any, stride: Any) -> tuple[int, ...]:
    if isinstance(value, str) and value == "valid":
        value = 0
    elif isinstance(value, str) and value == "same":
        reach = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
        if any(s != 1 for s in stride) or any(r % 2 for r in reach):
            raise ShapeError(
                'padding "same" needs stride 1 and windows that reach as far to both sides'
            )
        return tuple(r // 2 for r in reach)
    return on_three_axes(value, "padding", axes, 0)


def _plain(w: Any) -> Any:
    """Filters as they are."""
    if isinstance(w, PackedFilter):
        raise DTypeError(
            "packed filters are for the CPU",
            hint="give the weight itself to a convolution on a GPU",
        )
    return w


def convolve_into(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    layout: str,
    activation: Any,
    add: Any,
    out: Any,
    axes: int,
    precision: str | None = None,
) -> Any:
    wrap, x = wrapper(input), float_array(input, "input")
    first, last = LAYOUTS[axes]
    if layout not in (first, last):
        raise ShapeError(f'layout is "{first}" or "{last}", not {layout!r}')
    if x.ndim != axes + 2:
        raise ShapeError(f"conv{axes}d needs {axes + 2} axes ({layout}), not shape {x.shape}")
    w = weight if isinstance(weight, PackedFilter) else float_array(weight, "weight")
    if len(w.shape) != axes + 2:
        raise ShapeError(f"conv{axes}d needs filters of {axes + 2} axes, not shape {w.shape}")
    view = x if layout == last else x.transpose(0, *range(2, axes + 2), 1)
    n, c = view.shape[0], view.shape[-1]
    window = (1,) * (3 - axes) + tuple(w.shape[2:])
    dil = on_three_axes(dilation, "dilation", axes, 1)
    step = on_three_axes(stride, "stride", axes, 1)
    pad = padding_of(padding, axes, window, dil, step)
    groups, function = whole(groups, "groups"), activation_of(activation)
    if (
        groups < 1
        or c != w.shape[1] * groups
        or w.shape[0] % groups
        or getattr(w, "groups", groups) != groups
    ):
        raise ShapeError(
            f"conv{axes}d: filters of shape {w.shape} in {groups} groups do not go with {c} "
            "channels"
        )
    size = (1,) * (3 - axes) + tuple(view.shape[1:-1])
    out_size = []
    for length, k, s, p, d in zip(size, window, step, pad, dil, strict=True):
        m = (length + 2 * p - d * (k - 1) - 1) // s + 1
        if m < 1:
            raise ShapeError(
                f"conv{axes}d: a filter of {k} with dilation={d} does not fit into an axis "
                f"of {length} with padding={p}"
            )
        out_size.append(m)
    problem = Problem(size, window, step, pad, dil, tuple(out_size), rounds_to_tf32(precision))
    filters = w.shape[0]
    b = None if bias is None else float_array(bias, "bias")
    if b is not None and b.shape != (filters,):
        raise ShapeError(f"bias has shape {b.shape}, but there are {filters} filters")
    spatial = tuple(out_size[3 - axes :])
    channels_last = layout == last or (
        c > 1 and view.flags.c_contiguous and math.prod(view.shape[1:-1]) > 1
    )
    dtype = x.dtype
    if dtype == np.float64 and isinstance(w, PackedFilter):
        raise DTypeError(
            "packed filters are for f32, f16 and bf16, not for f64",
            hint="give the weight itself, or convert the input with x.astype(np.float32)",
        )
    shape = (n, *spatial, filters) if layout == last else (n, filters, *spatial)
    plus = None if add is None else float_array(add, "add")
    if plus is not None and plus.shape != shape:
        raise ShapeError(f"add has shape {plus.shape}, but the result has shape {shape}")
    if out is None and channels_last and layout == first:
        result = memory.empty((n, *spatial, filters), dtype).transpose(
            0, axes + 1, *range(1, axes + 1)
        )
    else:
        result = output(out, shape, dtype, x)
    if result.size:
        to_last, to_first = (0, *range(2, axes + 2), 1), (0, axes + 1, *range(1, axes + 1))
        order = (
            None if channels_last == (layout == last) else to_last if channels_last else to_first
        )
        inner = result if order is None else result.transpose(order)
        if plus is not None:
            plus = contiguous(plus if order is None else plus.transpose(order))
        direct = inner.flags.c_contiguous and (
            plus is None or out is None or not _overlap(plus, inner)
        )
        target = inner if direct else memory.empty(inner.shape, dtype)
        if x.size == 0 or math.prod(w.shape) == 0:
            raise ShapeError(f"a convolution of nothing: input {x.shape}, filters {w.shape}")
        if dtype == np.float64:
            convolve_doubles(view, w, b, plus, target, problem, groups, channels_last, function)
        elif has_planes() or not isinstance(view, np.ndarray):
            first_step = function if plus is None else None
            _by_routine(
                view, _plain(w), b, None, target, problem, groups, channels_last, first_step
            )
            if plus is not None:
                run(after_sum(function), [target, plus], target)
        else:
            _on_cpu(view, w, b, plus, target, problem, groups, channels_last, function)
        if target is not inner:
            convert_into(inner, target)
    return finish(result, out, wrap)


_known = repeated_with("weight", PackedFilter, "panels", "shape", "groups")(convolve_into)


def as_it_lies(input: Any, layout: Any, out: Any, axes: int) -> Any:
    """The channels-last memory of a view with channels first, whose result is such a view; None for
    another input.
    """
    if (
        out is not None
        or type(input) is not np.ndarray
        or input.flags.c_contiguous
        or input.ndim != axes + 2
    ):
        return None
    view = input.transpose(0, *range(2, axes + 2), 1)
    first = type(layout) is str and layout == LAYOUTS[axes][0]
    return view if first and view.flags.c_contiguous and view.shape[-1] > 1 else None


def _repeated(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    layout: str,
    activation: Any,
    add: Any,
    precision: str | None,
    out: Any,
    axes: int,
) -> Any:
    """`convolve_into`, or the launches of an earlier call with arrays of the same layouts."""
    view = as_it_lies(input, layout, out, axes) if add is None or type(add) is np.ndarray else None
    if view is None:
        return _known(
            input,
            weight,
            bias,
            stride,
            padding,
            dilation,
            groups,
            layout,
            activation,
            add,
            out,
            axes,
            precision,
        )
    if add is not None and add.ndim == axes + 2:
        add = add.transpose(0, *range(2, axes + 2), 1)
    last = LAYOUTS[axes][1]
    return _known(
        view, weight, bias, stride, padding, dilation, groups, last, activation, add, None, axes,
        precision
    ).transpose(0, axes + 1, *range(1, axes + 1))  # fmt: skip


@lru_cache(maxsize=256)
def after_sum(function: Any) -> Any:
    """A func of two values: `function` of their sum."""

    @cb.func
    def of_sum(a, b):  # type: ignore[no-untyped-def]
        total = cb.cast(a, cb.f32) + cb.cast(b, cb.f32)
        return total if function is None else function(total)

    return of_sum


def _overlap(a: Any, b: Any) -> bool:
    """Whether the memory of two arrays may be the same."""
    (start, stop), (first, last) = (
        [(address(v) if isinstance(v, np.ndarray) else int(v.address)) + end for end in extent(v)]
        for v in (a, b)
    )
    return first < stop and start < last


def _on_cpu(
    view: Any,
    w: Any,
    bias: Any,
    add: Any,
    target: Any,
    shape: Problem,
    groups: int,
    channels_last: bool,
    function: Any,
) -> None:
    """view is (N, *size, C) in any layout, target (N, *out, filters) or (N, filters, *out), and add
    like it.
    """
    if add is not None and (
        has_few(w.shape[0], groups) or function not in LIGHT
    ):  # no kernel does it on its way
        sums = (
            target if target.itemsize > 2 else memory.empty(target.shape, np.float32)
        )  # rounded once, at the end
        _on_cpu(view, w, bias, None, sums, shape, groups, channels_last, None)
        run(after_sum(function), [sums, add], target)
        return
    _by_routine(view, w, bias, add, target, shape, groups, channels_last, function)


def _by_routine(
    view: Any,
    w: Any,
    bias: Any,
    add: Any,
    target: Any,
    shape: Problem,
    groups: int,
    channels_last: bool,
    function: Any,
) -> None:
    """The convolution by the routine that is chosen; arrays as for `_on_cpu`."""
    problem = described(view, w, add, shape, groups, channels_last)
    choose(CONVOLUTION, problem).launch(problem, view, w, bias, add, target, function)


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCL",
    activation: Any = None,
    add: Any = None,
    precision: str | None = None,
    out: Any = None,
) -> Any:
    """Convolution along one axis, as `torch.nn.functional.conv1d`.

    Args: input: (N, C, L), or (N, L, C) with layout "NLC"; f32, f16, bf16 or f64, which is summed
        in f64, others in f32. weight: (filters, channels / groups, L), or what `prepack_filter`
        gives. bias: (filters,), or None. stride, padding, dilation: int or 1 of them; padding may
        be "same" or "valid". groups: channels and filters fall into so many groups. layout: "NCL"
        or "NLC". A NCL view of channels-last memory runs as NLC. activation: a name of `matmul`'s
        activations, or a `@cb.func` of one value, applied before the result is stored. add: array
        of the result's shape, added before the activation; None: nothing. precision: "tf32" lets a
        GPU's matrix units round f32 to 10 bits of fraction; by default they are not used. out:
        array to write.

    Raises:
        ShapeError: shapes that do not go together, or a window that does not fit.

    Example:
        >>> import numpy as np
        >>> conv1d(np.ones((2, 3, 5), np.float32), np.ones((4, 3, 3), np.float32), padding=1).shape
        (2, 4, 5)
    """
    return _repeated(
        input,
        weight,
        bias,
        stride,
        padding,
        dilation,
        groups,
        layout,
        activation,
        add,
        precision,
        out,
        1,
    )


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCHW",
    activation: Any = None,
    add: Any = None,
    precision: str | None = None,
    out: Any = None,
) -> Any:
    """Convolution of images, as `torch.nn.functional.conv2d`.

    Args: input: (N, C, H, W), or (N, H, W, C) with layout "NHWC"; f32, f16, bf16 or f64, which is
        summed in f64, others in f32. weight: (filters, channels / groups, kh, kw), or what
        `prepack_filter` gives. bias: (filters,), or None. stride, padding, dilation: int or 2 of
        them; padding may be "same" or "valid". groups: channels and filters fall into so many
        groups. layout: "NCHW" or "NHWC". A NCHW view of channels-last memory runs as NHWC.
        activation: a name of `matmul`'s activations, or a `@cb.func` of one value, applied before
        the result is stored. add: array of the result's shape, added before the activation; None:
        nothing. precision: "tf32" lets a GPU's matrix units round f32 to 10 bits of fraction; by
        default they are not used. out: array to write.

    Raises:
        ShapeError: shapes that do not go together, or a window that does not fit.

    Example:
        >>> import numpy as np
        >>> conv2d(np.ones((2, 3, 5, 5), np.float32), np.ones((4, 3, 3, 3), np.float32),
        ...     padding=1).shape
        (2, 4, 5, 5)
    """
    return _repeated(
        input,
        weight,
        bias,
        stride,
        padding,
        dilation,
        groups,
        layout,
        activation,
        add,
        precision,
        out,
        2,
    )


def conv3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    layout: str = "NCDHW",
    activation: Any = None,
    add: Any = None,
    precision: str | None = None,
    out: Any = None,
) -> Any:
    """Convolution of volumes, as `torch.nn.functional.conv3d`.

    Args: input: (N, C, D, H, W), or (N, D, H, W, C) with layout "NDHWC"; f32, f16, bf16 or f64,
        which is summed in f64, others in f32. weight: (filters, channels / groups, kd, kh, kw), or
        what `prepack_filter` gives. bias: (filters,), or None. stride, padding, dilation: int or 3
        of them; padding may be "same" or "valid". groups: channels and filters fall into so many
        groups. layout: "NCDHW" or "NDHWC". A NCDHW view of channels-last memory runs as NDHWC.
        activation: a name of `matmul`'s activations, or a `@cb.func` of one value, applied before
        the result is stored. add: array of the result's shape, added before the activation; None:
        nothing. precision: "tf32" lets a GPU's matrix units round f32 to 10 bits of fraction; by
        default they are not used. out: array to write.

    Raises:
        ShapeError: shapes that do not go together, or a window that does not fit.

    Example:
        >>> import numpy as np
        >>> conv3d(np.ones((2, 3, 5, 5, 5), np.float32), np.ones((4, 3, 3, 3, 3), np.float32),
        ...     padding=1).shape
        (2, 4, 5, 5, 5)
    """
    return _repeated(
        input,
        weight,
        bias,
        stride,
        padding,
        dilation,
        groups,
        layout,
        activation,
        add,
        precision,
        out,
        3,
    )
