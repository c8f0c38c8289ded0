"""Other ways to a convolution: by columns in memory and a matrix product, and channel by channel (depthwise)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.elementwise import contiguous, convert_into
from cubepy.kernels.matmul import matmul
from cubepy.kernels.pad import pad
from cubepy.kernels.shapes import strided
from cubepy.runtime import memory


@dataclass(frozen=True)
class Problem:
    """A convolution in three axes; fewer are axes of length 1.

    Attributes:
        size, window, stride, pad, dilation, out: along depth, height, width.
    """

    size: tuple[int, int, int]
    window: tuple[int, int, int]
    stride: tuple[int, int, int]
    pad: tuple[int, int, int]
    dilation: tuple[int, int, int]
    out: tuple[int, int, int]


def in_three(view: Any) -> Any:
    """(N, *size, C) with three axes of size."""
    return view.reshape(view.shape[0], *(1,) * (5 - view.ndim), *view.shape[1:])


def padded(view: Any, problem: Problem) -> Any:
    """(N, d, h, w, C) with the padding in memory."""
    five = in_three(view)
    if not any(problem.pad):
        return five
    return pad(five, (0, 0, *(p for p in reversed(problem.pad) for _ in range(2))))


def windows_of(view: Any, problem: Problem) -> Any:
    """A view (N, *out, *window, C) of what every output place sees; no element is copied but for the padding."""
    x = padded(view, problem)
    n, d, h, w, c = x.strides
    along = (d, h, w)
    steps = tuple(s * k for s, k in zip(along, problem.stride, strict=True))
    inside = tuple(s * k for s, k in zip(along, problem.dilation, strict=True))
    return strided(x, (x.shape[0], *problem.out, *problem.window, x.shape[4]), (n, *steps, *inside, c))


def columns_of(view: Any, problem: Problem, first: int, channels: int) -> Any:
    """The matrix (places, window * channels) of some channels, in memory where strides allow no view."""
    seen = windows_of(view, problem)[..., first : first + channels]
    return contiguous(seen).reshape(-1, math.prod(problem.window) * channels)


def by_columns(
    view: Any, w: Any, bias: Any, out: Any, problem: Problem, groups: int, channels_last: bool, function: Any
) -> None:
    """out = columns times filters, group by group: what runs on a GPU's matrix units."""
    channels, filters = w.shape[1], w.shape[0] // groups
    order = (0, *range(2, w.ndim), 1)
    matrix = contiguous(w.transpose(order)).reshape(groups, filters, -1)
    n = view.shape[0]
    for g in range(groups):
        columns = columns_of(view, problem, g * channels, channels)
        part = slice(g * filters, (g + 1) * filters)
        add = None if bias is None else contiguous(bias[part])
        done = matmul(columns, matrix[g].T, bias=add, activation=function).reshape(n, -1, filters)
        convert_into(
            out[:, :, part] if channels_last else out[:, part], done if channels_last else done.transpose(0, 2, 1)
        )


@cb.kernel
def depthwise(
    x: cb.Array, weight: cb.Array, bias, out: cb.Array, stride, dilation, function: cb.Comptime,
    window: cb.Comptime[tuple], lanes: cb.Comptime[int],
):  # fmt: skip
    """out[n, d, h, w, c] = function(sum over the window of x * weight[tap, c] + bias[c]); a cube does a row of places.

    Lines lie along the channels; x has its padding.
    """
    h = cb.CUBE_POS % out.shape[2]
    d = (cb.CUBE_POS // out.shape[2]) % out.shape[1]
    n = cb.CUBE_POS // (out.shape[2] * out.shape[1])
    channels = out.shape[4]
    for w in range(out.shape[3]):
        for c in range(0, channels, lanes):
            total = cb.splat(cb.f32(0), lanes)
            if bias is not None:
                total = cb.cast(bias.load(c, lanes), cb.f32)
            for t in range(window[0]):
                for u in range(window[1]):
                    for v in range(window[2]):
                        place = (n, d * stride[0] + t * dilation[0], h * stride[1] + u * dilation[1],
                                 w * stride[2] + v * dilation[2], c)  # fmt: skip
                        tap = (t * window[1] + u) * window[2] + v
                        seen = cb.cast(x.load(place, lanes), cb.f32)
                        total = cb.fma(seen, cb.cast(weight.load((tap, c), lanes), cb.f32), total)
            if function is not None:
                total = function(total)
            out.store((n, d, h, w, c), cb.cast(total, out.dtype))


def by_channel(view: Any, w: Any, bias: Any, out: Any, problem: Problem, function: Any) -> None:
    """Every channel has one filter: out is (N, *out, C), in any layout."""
    x = contiguous(padded(contiguous(view), problem))
    taps = contiguous(w.reshape(w.shape[0], -1).T)
    lanes = 2 * cb.device_properties_of().register_bytes // 4
    done = out if out.flags.c_contiguous else memory.empty(out.shape, out.dtype)
    target = in_three(done)
    cubes = target.shape[0] * target.shape[1] * target.shape[2]
    depthwise[cubes, 1](
        x, taps, bias, target, problem.stride, problem.dilation, function, problem.window, lanes, mode="checked"
    )
    if done is not out:
        convert_into(out, done)
