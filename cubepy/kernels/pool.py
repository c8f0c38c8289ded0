"""Max pooling in two dimensions, for images with channels last (NHWC) or first (NCHW)."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels import pool_cubes
from cubepy.kernels.arguments import finish, float_array, output, placed, wrapper
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise import contiguous, lanes_for
from cubepy.runtime import memory


@cb.kernel
def pool_channels_last(
    x: cb.Array, out: cb.Array, stride_h, stride_w, pad_h, pad_w,
    kernel: cb.Comptime[tuple], dilation: cb.Comptime[tuple], lanes: cb.Comptime[int],
):  # fmt: skip
    """out[n, i, j, c] = max over the window; lines lie along the channels. A cube does one row of out."""
    height, width, channels = x.shape[1], x.shape[2], x.shape[3]
    i = cb.CUBE_POS % out.shape[1]
    n = cb.CUBE_POS // out.shape[1]
    for j in range(out.shape[2]):
        for c in range(0, channels, lanes):
            best = cb.cast(cb.splat(-float("inf"), lanes), x.dtype)
            for u in cb.unroll(range(kernel[0])):
                y = i * stride_h - pad_h + u * dilation[0]
                if y >= 0 and y < height:
                    for v in cb.unroll(range(kernel[1])):
                        z = j * stride_w - pad_w + v * dilation[1]
                        if z >= 0 and z < width:
                            best = cb.nan_max(best, x.load((n, y, z, c), lanes))
            out.store((n, i, j, c), best)


@cb.kernel
def pool_channels_first(
    x: cb.Array, out: cb.Array, stride_h, stride_w, pad_h, pad_w,
    kernel: cb.Comptime[tuple], dilation: cb.Comptime[tuple], lanes: cb.Comptime[int],
):  # fmt: skip
    """out[p, i, j] for planes p = n * C + c; first the window's columns, then its rows of the row's maxima."""
    height, width = x.shape[1], x.shape[2]
    i = cb.CUBE_POS % out.shape[1]
    p = cb.CUBE_POS // out.shape[1]
    for j in range(out.shape[2]):
        best = cb.cast(-float("inf"), x.dtype)
        for u in cb.unroll(range(kernel[0])):
            y = i * stride_h - pad_h + u * dilation[0]
            if y >= 0 and y < height:
                for v in cb.unroll(range(kernel[1])):
                    z = j * stride_w - pad_w + v * dilation[1]
                    if z >= 0 and z < width:
                        best = cb.nan_max(best, x[p, y, z])
        out[p, i, j] = best


@cb.kernel
def pool_rows_unit_stride(
    x: cb.Array, out: cb.Array, stride_h, pad_h, pad_w,
    kernel: cb.Comptime[tuple], dilation: cb.Comptime[tuple], lanes: cb.Comptime[int],
):  # fmt: skip
    """Channels first with stride 1 along the width: lines lie along the width."""
    height, width = x.shape[1], x.shape[2]
    i = cb.CUBE_POS % out.shape[1]
    p = cb.CUBE_POS // out.shape[1]
    reach = (kernel[1] - 1) * dilation[1]
    for j in range(0, out.shape[2], lanes):
        best = cb.cast(cb.splat(-float("inf"), lanes), x.dtype)
        inside = j >= pad_w and j - pad_w + reach + lanes <= width
        for u in cb.unroll(range(kernel[0])):
            y = i * stride_h - pad_h + u * dilation[0]
            if y >= 0 and y < height:
                if inside:
                    for v in cb.unroll(range(kernel[1])):
                        best = cb.nan_max(best, x.load((p, y, j - pad_w + v * dilation[1]), lanes))
                else:
                    for v in cb.unroll(range(kernel[1])):
                        best = cb.nan_max(best, edge_line(x, p, y, j - pad_w + v * dilation[1], width, lanes))
        out.store((p, i, j), best)


@cb.func
def edge_line(x, p, y, z, width, lanes):
    """x[p, y, z : z + lanes] with -inf outside the row."""
    line = cb.cast(cb.splat(-float("inf"), lanes), x.dtype)
    for k in cb.unroll(range(lanes)):
        if z + k >= 0 and z + k < width:
            one = cb.splat(x[p, y, z + k], lanes)
            line = cb.shuffle(line, one, tuple(range(k)) + (lanes + k,) + tuple(range(k + 1, lanes)))
    return line


@placed
def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, *,
    layout: str = "NCHW", out: Any = None,
) -> Any:  # fmt: skip
    """Largest value of every window, as `torch.nn.functional.max_pool2d`.

    Args:
        input: (N, C, H, W), or (N, H, W, C) with layout "NHWC"; floats. NaN in a window gives NaN.
        kernel_size, stride, padding, dilation: int or pair (height, width); stride defaults to the window.
        layout: "NCHW" or "NHWC". An NCHW view of channels-last memory runs as NHWC.
        out: array to write.

    Raises:
        ShapeError: wrong rank, padding above half the window, or a window that does not fit.
    """
    wrap, x = wrapper(input), float_array(input, "input")
    if layout not in ("NCHW", "NHWC"):
        raise ShapeError(f'layout is "NCHW" or "NHWC", not {layout!r}')
    if x.ndim != 4:
        raise ShapeError(f"max_pool2d needs 4 axes ({layout}), not shape {x.shape}")
    kernel, pad = _pair(kernel_size, "kernel_size", 1), _pair(padding, "padding", 0)
    dil = _pair(dilation, "dilation", 1)
    step = kernel if stride is None else _pair(stride, "stride", 1)
    n, h, w, c = x.shape if layout == "NHWC" else (x.shape[0], x.shape[2], x.shape[3], x.shape[1])
    size = []
    for length, k, s, p, d in zip((h, w), kernel, step, pad, dil, strict=True):
        if p > k // 2:
            raise ShapeError(f"padding {p} is more than half of the window {k}")
        m = (length + 2 * p - d * (k - 1) - 1) // s + 1
        if m < 1:
            raise ShapeError(f"a window of {k} with dilation {d} does not fit into {length} with padding {p}")
        size.append(m)
    shape = (n, *size, c) if layout == "NHWC" else (n, c, *size)
    last = x.transpose(0, 2, 3, 1) if layout == "NCHW" else x
    channels_last = layout == "NHWC" or (c > 1 and last.flags.c_contiguous)
    if out is None and channels_last and layout == "NCHW":
        result = memory.empty((n, *size, c), x.dtype).transpose(0, 3, 1, 2)
    else:
        result = output(out, shape, x.dtype)
    if result.size:
        lanes = lanes_for(x)
        if channels_last:
            target = result if layout == "NHWC" else result.transpose(0, 2, 3, 1)
            if has_planes():
                pool_cubes.channels_last(last, target, step, pad, kernel, dil)
                return finish(result, out, wrap)
            pool_channels_last[n * size[0], 1](last, target, *step, *pad, kernel, dil, lanes, mode="checked")
        else:
            planes = contiguous(x).reshape(n * c, h, w)
            target = result.reshape(n * c, *size)
            if has_planes():
                pool_cubes.channels_first(planes, target, step, pad, kernel, dil)
            elif step[1] == 1:
                pool_rows_unit_stride[n * c * size[0], 1](planes, target, step[0], *pad, kernel, dil, lanes)
            else:
                pool_channels_first[n * c * size[0], 1](planes, target, *step, *pad, kernel, dil, lanes)
            if not np.shares_memory(target, result):
                result[...] = target.reshape(result.shape)
    return finish(result, out, wrap)


def _pair(value: Any, name: str, least: int) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or any(isinstance(v, bool) or not hasattr(v, "__index__") or v < least for v in pair):
        raise ShapeError(f"{name} must be an int of at least {least} or a pair of them, not {value!r}")
    return int(pair[0]), int(pair[1])
