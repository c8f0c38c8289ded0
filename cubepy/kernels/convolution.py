"""Convolutions in one, two and three axes: strides, padding, dilation, groups, transposed, and their gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.arguments import finish, float_array, output, placed, wrapper
from cubepy.kernels.convolution_block import Plan, convolve, pack_filters
from cubepy.kernels.convolution_routes import Problem, by_channel, by_columns
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise import contiguous, convert_into
from cubepy.kernels.functions import ACTIVATIONS
from cubepy.kernels.pad import pad
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory

LARGEST_STRIP = 49152  # elements of a cube's copy of the input: what a cube may have of its own, less its board
PLACES = 192  # output places of a cube, about
LAYOUTS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


@dataclass(frozen=True)
class PackedFilter:
    """Filters laid out for convolutions: give them as `weight` any number of times.

    Attributes:
        panels: (groups, panels, window * channels, width) f32.
        shape: of the weight, (filters, channels of a group, *window).
        groups: number of groups.
    """

    panels: Any
    shape: tuple[int, ...]
    groups: int


def _three(value: Any, name: str, axes: int, least: int) -> tuple[int, ...]:
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(given) == 1:
        given = given * axes
    if len(given) != axes or any(isinstance(v, bool) or not hasattr(v, "__index__") or v < least for v in given):
        raise ShapeError(f"{name} must be an int of at least {least} or {axes} of them, not {value!r}")
    return ((0,) if least == 0 else (1,)) * (3 - axes) + tuple(int(v) for v in given)


def _padding(value: Any, axes: int, window: Any, dilation: Any, stride: Any) -> tuple[int, ...]:
    if value == "valid":
        value = 0
    elif value == "same":
        reach = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
        if any(s != 1 for s in stride) or any(r % 2 for r in reach):
            raise ShapeError('padding "same" needs stride 1 and windows that reach as far to both sides')
        return tuple(r // 2 for r in reach)
    return _three(value, "padding", axes, 0)


def tile() -> tuple[int, int, int]:
    """Rows, lines and lanes of the register tile for this CPU."""
    p = cb.device_properties_of()
    lanes = p.register_bytes // 4
    return (6, 4, lanes) if p.vector_registers >= 32 else (6, 2, lanes)


def _plain(w: Any) -> Any:
    """Filters as they are."""
    if isinstance(w, PackedFilter):
        raise DTypeError("packed filters are for the CPU", hint="give the weight itself to a convolution on a GPU")
    return w


@placed
def prepack_filter(weight: Any, groups: int = 1) -> PackedFilter:
    """Lay constant filters out once, so that later convolutions on the CPU need not.

    Args:
        weight: (filters, channels / groups, *window), as torch has it.
        groups: as the convolution's.

    Example:
        >>> import numpy as np
        >>> w = prepack_filter(np.ones((4, 3, 1, 1), np.float32))
        >>> conv2d(np.ones((1, 3, 2, 2), np.float32), w).shape
        (1, 4, 2, 2)
    """
    w = float_array(weight, "weight")
    if w.ndim < 3 or w.shape[0] % groups:
        raise ShapeError(f"filters of shape {w.shape} do not make {groups} groups")
    _, lines, lanes = tile()
    width = lines * lanes
    filters, taps = w.shape[0] // groups, math.prod(w.shape[2:])
    panels = -(-filters // width)
    out = memory.empty((groups, panels, taps, w.shape[1], width), np.float32)
    if out.size:
        flat = contiguous(w).reshape(groups, filters, w.shape[1], taps)
        pack_filters[groups * panels, 1](flat, out, width, mode="checked")
    return PackedFilter(out.reshape(groups, panels, taps * w.shape[1], width), w.shape, groups)


def _convolve(
    input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, layout: str,
    activation: Any, out: Any, axes: int,
) -> Any:  # fmt: skip
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
    dil = _three(dilation, "dilation", axes, 1)
    step = _three(stride, "stride", axes, 1)
    pad = _padding(padding, axes, window, dil, step)
    if groups < 1 or c != w.shape[1] * groups or w.shape[0] % groups or getattr(w, "groups", groups) != groups:
        raise ShapeError(f"filters of shape {w.shape} in {groups} groups do not go with {c} channels")
    size = (1,) * (3 - axes) + tuple(view.shape[1:-1])
    places = []
    for length, k, s, p, d in zip(size, window, step, pad, dil, strict=True):
        m = (length + 2 * p - d * (k - 1) - 1) // s + 1
        if m < 1:
            raise ShapeError(f"a window of {k} with dilation {d} does not fit into {length} with padding {p}")
        places.append(m)
    problem = Problem(size, window, step, pad, dil, tuple(places))
    filters = w.shape[0]
    add = None if bias is None else float_array(bias, "bias")
    if add is not None and add.shape != (filters,):
        raise ShapeError(f"bias has shape {add.shape}, but there are {filters} filters")
    spatial = tuple(places[3 - axes :])
    channels_last = layout == last or (c > 1 and view.flags.c_contiguous and math.prod(view.shape[1:-1]) > 1)
    dtype = x.dtype
    if as_dtype(dtype).bits == 64:
        raise DTypeError("convolutions work on f32, f16 and bf16, not on f64", hint="convert with x.astype(np.float32)")
    shape = (n, *spatial, filters) if layout == last else (n, filters, *spatial)
    if out is None and channels_last and layout == first:
        result = memory.empty((n, *spatial, filters), dtype).transpose(0, axes + 1, *range(1, axes + 1))
    else:
        result = output(out, shape, dtype)
    if result.size:
        function = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        by_filter = result.transpose(0, *range(2, axes + 2), 1) if layout == first else result
        inner = by_filter if channels_last else by_filter.transpose(0, axes + 1, *range(1, axes + 1))
        target = inner if inner.flags.c_contiguous else memory.empty(inner.shape, dtype)
        flat = (n, -1, filters) if channels_last else (n, filters, -1)
        if x.size == 0 or math.prod(w.shape) == 0:
            raise ShapeError(f"a convolution of nothing: input {x.shape}, filters {w.shape}")
        if has_planes() or not isinstance(view, np.ndarray):
            by_columns(view, _plain(w), add, target.reshape(flat), problem, groups, channels_last, function)
        elif groups == c == filters and not isinstance(w, PackedFilter):
            by_channel(
                view,
                w,
                add,
                target if channels_last else target.transpose(0, *range(2, axes + 2), 1),
                problem,
                function,
            )
        else:
            _on_cpu(view, w, add, target.reshape(flat), problem, groups, channels_last, function)
        if target is not inner:
            convert_into(inner, target)
    return finish(result, out, wrap)


def _on_cpu(
    view: Any, w: Any, bias: Any, out: Any, problem: Problem, groups: int, channels_last: bool, function: Any
) -> None:
    """Launch the block kernel: view is (N, *size, C) in any layout, out (N, places, filters) or the other way."""
    packed = w if isinstance(w, PackedFilter) else prepack_filter(w, groups)
    last = view.flags.c_contiguous
    first = (0, view.ndim - 1, *range(1, view.ndim - 1))
    if not last and not view.transpose(first).flags.c_contiguous:
        view, last = contiguous(view), True
    if any(problem.pad) and _strip(problem, packed.shape[1], 1) > LARGEST_STRIP:
        edges = tuple(p for p in reversed(problem.pad[5 - view.ndim :]) for _ in range(2))
        size = tuple(a + 2 * b for a, b in zip(problem.size, problem.pad, strict=True))
        widened = pad(contiguous(view), (0, 0, *edges))
        _on_cpu(widened, packed, bias, out, replace(problem, size=size, pad=(0, 0, 0)), groups, channels_last, function)
        return
    counts = packed.panels.shape[:3]
    cubes, geometry, plan = _plan(
        problem, view.shape[0], packed.shape[0] // groups, packed.shape[1], counts, last, channels_last,
        view.dtype == np.float32, bias is not None, function,
    )  # fmt: skip
    flat = (view if last else view.transpose(first)).reshape(-1)
    convolve[cubes, 1](flat, packed.panels.reshape(-1), bias, out, geometry, plan, mode="unchecked")


def _extent(problem: Problem, block: int) -> tuple[int, int, int]:
    """The input that `block` rows of output places need, along depth, height and width."""
    (kd, kh, kw), (dd, dh, dw) = problem.window, problem.dilation
    return (
        (kd - 1) * dd + 1, (block - 1) * problem.stride[1] + (kh - 1) * dh + 1,
        (problem.out[2] - 1) * problem.stride[2] + (kw - 1) * dw + 1,
    )  # fmt: skip


def _strip(problem: Problem, channels: int, block: int) -> int:
    """Elements of a cube's copy of the input."""
    return math.prod(_extent(problem, block)) * channels


@lru_cache(maxsize=1024)
def _plan(
    problem: Problem, n: int, filters: int, channels: int, counts: tuple[int, ...], last: bool, channels_last: bool,
    single: bool, bias: bool, function: Any,
) -> tuple[int, Any, Plan]:  # fmt: skip
    """Cubes, integers and blueprint of a convolution on this CPU.

    `counts`: groups, panels and taps of the packed filters; `last`: channels of the input are neighbours in memory;
    `single`: it is f32. Input without padding is read where it is, unless it would be converted again and again.
    """
    rows, lines, lanes = tile()
    groups, panels, taps = counts
    _, out_h, out_w = problem.out
    direct = not any(problem.pad) and (single or _strip(problem, channels, 1) > LARGEST_STRIP)
    many = n * groups * problem.out[0]

    def cost(block: int) -> tuple[float, int]:
        places = block * out_w
        spare = -(-places // rows) * rows / places
        ragged = -(-out_h // block) * block / out_h
        large = 100 if not direct and _strip(problem, channels, block) > LARGEST_STRIP else 0
        few = 0.2 if many * -(-out_h // block) * panels < 4 else 0.0
        again = 0.0 if direct else 0.1 * _extent(problem, block)[1] / (block * problem.stride[1])
        return large + spare * (0.5 + 0.5 * ragged) + few + again, -block

    block = min(range(1, max(1, min(out_h, PLACES // out_w)) + 1), key=cost)
    window_d, rows_in, width_in = extent = _extent(problem, block)
    all_channels = channels * groups
    depth, height, width = problem.size
    if last:
        sc, sw = 1, all_channels
        sh = width * sw
        strides = (depth * height * sh, height * sh, sh, sw, sc)
    else:
        strides = (all_channels * depth * height * width, height * width, width, 1, depth * height * width)
    if direct:
        copied, size, room = (0, 0, 0, 0), 0, 0
        fd, fh, fw, fc = strides[1:]
    else:
        size = math.prod(extent) * channels
        room = -(-size // 4096) * 4096
        if last or channels < lanes:
            copied = (rows_in * width_in * channels, width_in * channels, channels, 1)
        else:
            copied = (rows_in * width_in, width_in, 1, window_d * rows_in * width_in)
        fd, fh, fw, fc = copied
    dd, dh, dw = problem.dilation
    walk, steps, run = list(problem.window), [dd * fd, dh * fh, dw * fw], (channels, fc)
    if dw == 1 and ((fc == 1 and fw == channels) or channels == 1):  # the window's columns and channels are one run
        run, walk[2], steps[2] = (channels * walk[2], fw if channels == 1 else 1), 1, 0
    row_blocks = -(-out_h // block)
    block_panels = panels
    while block_panels > 1 and many * row_blocks * -(-panels // block_panels) < 16:
        block_panels = -(-block_panels // 2)
    numbers = (
        *problem.size, *strides, *copied, *extent, *problem.stride, *problem.pad, *problem.out, channels, size, groups,
        panels, taps, filters, block, block_panels, *walk, *steps, *run,
    )  # fmt: skip
    largest = max(n * all_channels * math.prod(problem.size), math.prod(counts) * lines * lanes)
    geometry = np.array(numbers, np.int64 if largest >= 1 << 31 else np.int32)
    whole = 0 if channels_last else -(-block * out_w // 48) * 48
    plan = Plan(rows, lines, lanes, whole, room, channels_last, bias, function)
    return many * row_blocks * -(-panels // block_panels), geometry, plan


@placed
def conv1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, *,
    layout: str = "NCL", activation: Any = None, out: Any = None,
) -> Any:  # fmt: skip
    """Convolution along one axis, as `torch.nn.functional.conv1d`.

    Args:
        input: (N, C, L), or (N, L, C) with layout "NLC"; f32, f16 or bf16. Sums are in f32.
        weight: (filters, channels / groups, L), or what `prepack_filter` gives.
        bias: (filters,), or None.
        stride, padding, dilation: int or 1 of them; padding may be "same" or "valid".
        groups: channels and filters fall into so many groups.
        layout: "NCL" or "NLC". A NCL view of channels-last memory runs as NLC.
        activation: a name of `matmul`'s activations, or a `@cb.func` of one value, applied before the result is stored.
        out: array to write.

    Raises:
        ShapeError: shapes that do not go together, or a window that does not fit.

    Example:
        >>> import numpy as np
        >>> conv1d(np.ones((2, 3, 5), np.float32), np.ones((4, 3, 3), np.float32), padding=1).shape
        (2, 4, 5)
    """
    return _convolve(input, weight, bias, stride, padding, dilation, groups, layout, activation, out, 1)


@placed
def conv2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, *,
    layout: str = "NCHW", activation: Any = None, out: Any = None,
) -> Any:  # fmt: skip
    """Convolution of images, as `torch.nn.functional.conv2d`.

    Args:
        input: (N, C, H, W), or (N, H, W, C) with layout "NHWC"; f32, f16 or bf16. Sums are in f32.
        weight: (filters, channels / groups, kh, kw), or what `prepack_filter` gives.
        bias: (filters,), or None.
        stride, padding, dilation: int or 2 of them; padding may be "same" or "valid".
        groups: channels and filters fall into so many groups.
        layout: "NCHW" or "NHWC". A NCHW view of channels-last memory runs as NHWC.
        activation: a name of `matmul`'s activations, or a `@cb.func` of one value, applied before the result is stored.
        out: array to write.

    Raises:
        ShapeError: shapes that do not go together, or a window that does not fit.

    Example:
        >>> import numpy as np
        >>> conv2d(np.ones((2, 3, 5, 5), np.float32), np.ones((4, 3, 3, 3), np.float32), padding=1).shape
        (2, 4, 5, 5)
    """
    return _convolve(input, weight, bias, stride, padding, dilation, groups, layout, activation, out, 2)


@placed
def conv3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, *,
    layout: str = "NCDHW", activation: Any = None, out: Any = None,
) -> Any:  # fmt: skip
    """Convolution of volumes, as `torch.nn.functional.conv3d`.

    Args:
        input: (N, C, D, H, W), or (N, D, H, W, C) with layout "NDHWC"; f32, f16 or bf16. Sums are in f32.
        weight: (filters, channels / groups, kd, kh, kw), or what `prepack_filter` gives.
        bias: (filters,), or None.
        stride, padding, dilation: int or 3 of them; padding may be "same" or "valid".
        groups: channels and filters fall into so many groups.
        layout: "NCDHW" or "NDHWC". A NCDHW view of channels-last memory runs as NDHWC.
        activation: a name of `matmul`'s activations, or a `@cb.func` of one value, applied before the result is stored.
        out: array to write.

    Raises:
        ShapeError: shapes that do not go together, or a window that does not fit.

    Example:
        >>> import numpy as np
        >>> conv3d(np.ones((2, 3, 5, 5, 5), np.float32), np.ones((4, 3, 3, 3, 3), np.float32), padding=1).shape
        (2, 4, 5, 5, 5)
    """
    return _convolve(input, weight, bias, stride, padding, dilation, groups, layout, activation, out, 3)
