"""Convolutions in one, two and three axes: strides, padding, dilation, groups, transposed, and
their gradients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.convolution.cpu.filters import PackedFilter, has_few
from cubepy.kernels.convolution.cpu.implicit_gemm_plan import LIGHT
from cubepy.kernels.convolution.double import convolve_doubles
from cubepy.kernels.convolution.measure import described
from cubepy.kernels.convolution.problem import Convolution, Problem
from cubepy.kernels.convolution.routines import CONVOLUTION
from cubepy.kernels.elementwise.map import run
from cubepy.kernels.entry.arguments import float_array, per_axis, rounds_to_tf32, whole
from cubepy.kernels.entry.dispatch import repeated_with
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.primitives.epilogue import after_sum
from cubepy.kernels.primitives.functions import activation_of
from cubepy.runtime import memory
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.spans import extent
from cubepy.tune import choose

LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def orders(axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What takes channels to the last axis, and back."""
    return (0, *range(2, axes + 2), 1), (0, axes + 1, *range(1, axes + 1))


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
        to_last, to_first = orders(axes)
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
        else:
            task = described(view, w, plus, problem, groups, channels_last)
            _convolve(task, view, w, b, plus, target, function)
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


def _overlap(a: Any, b: Any) -> bool:
    """Whether the memory of two arrays may be the same."""
    (start, stop), (first, last) = (
        [(address(v) if isinstance(v, np.ndarray) else int(v.address)) + end for end in extent(v)]
        for v in (a, b)
    )
    return first < stop and start < last


def _convolve(
    p: Convolution, view: Any, w: Any, bias: Any, add: Any, target: Any, function: Any
) -> None:
    """view is (N, *size, C) in any layout, target (N, *out, filters) or (N, filters, *out), and add
    like it.
    """
    w = _plain(w) if p.on_gpu else w
    alone = has_few(p.all_filters, p.groups) or function not in LIGHT
    if add is not None and alone and not p.on_gpu:  # no kernel does it on its way
        rounded = target.itemsize > 2  # else once, at the end
        sums = target if rounded else memory.empty(target.shape, np.float32)
        _convolve(p._replace(add=False), view, w, bias, None, sums, None)
        run(after_sum(function), [sums, add], target)
    else:
        choose(CONVOLUTION, p).launch(p, view, w, bias, add, target, function)


def _conv(axes: int) -> Any:
    (first, last), (to_last, to_first) = LAYOUTS[axes], orders(axes)

    def conv(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        *,
        layout: str = LAYOUTS[axes][0],
        activation: Any = None,
        add: Any = None,
        precision: str | None = None,
        out: Any = None,
    ) -> Any:
        plain = add is None or type(add) is np.ndarray
        view = as_it_lies(input, layout, out, axes) if plain else None
        if view is not None:
            input, layout = view, last
            if add is not None and add.ndim == axes + 2:
                add = add.transpose(to_last)
        done = _known(
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
        return done if view is None else done.transpose(to_first)

    name, x, w = f"conv{axes}d", (2, 3, *(5,) * axes), (4, 3, *(3,) * axes)
    conv.__name__ = conv.__qualname__ = name
    conv.__doc__ = f"""Convolution over {axes} {"axes" if axes > 1 else "axis"}, as
    `torch.nn.functional.{name}`.

    Args:
        input: (N, C, *size), or (N, *size, C) with layout "{last}"; f32, f16, bf16 or f64, which
            is summed in f64, others in f32.
        weight: (filters, channels / groups, *window), or what `prepack_filter` gives.
        bias: (filters,), or None.
        stride, padding, dilation: int or {axes} of them; padding may be "same" or "valid".
        groups: channels and filters fall into so many groups.
        layout: "{first}" or "{last}". A {first} view of channels-last memory runs as {last}.
        activation: a name of `matmul`'s activations, or a `@cb.func` of one value, applied before
            the result is stored.
        add: array of the result's shape, added before the activation; None: nothing.
        precision: "tf32" lets a GPU's matrix units round f32 to 10 bits of fraction; by default
            they are not used.
        out: array to write.

    Raises:
        ShapeError: shapes that do not go together, or a window that does not fit.

    Example:
        >>> import numpy as np
        >>> {name}(np.ones({x}, np.float32), np.ones({w}, np.float32), padding=1).shape
        {(2, 4, *(5,) * axes)}
    """
    return conv


conv1d, conv2d, conv3d = map(_conv, (1, 2, 3))
