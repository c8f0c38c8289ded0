"""The CPU's depthwise convolution with channels last: lines lie along the channels."""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.convolution_routes import Problem
from cubepy.kernels.elementwise import contiguous

WRITTEN_OUT = 25  # taps of a window whose filters are kept in registers


@cb.func
def edge_place(x, weight, n, at, c, window, dilation, lanes, whole):
    """The sum over a window that may reach over the edge."""
    d0, h0, w0 = at
    valid = x.shape[4] - c
    total = cb.cast(cb.splat(0.0, lanes), cb.f32)
    for t in range(window[0]):
        d = d0 + t * dilation[0]
        if d >= 0 and d < x.shape[1]:
            for u in range(window[1]):
                h = h0 + u * dilation[1]
                if h >= 0 and h < x.shape[2]:
                    for v in range(window[2]):
                        w = w0 + v * dilation[2]
                        if w >= 0 and w < x.shape[3]:
                            tap = (t * window[1] + u) * window[2] + v
                            if whole:
                                seen, filters = x.load((n, d, h, w, c), lanes), weight.load((tap, c), lanes)
                                total = cb.fma(cb.cast(seen, cb.f32), cb.cast(filters, cb.f32), total)
                            else:
                                seen = x.load((n, d, h, w, c), lanes, valid=valid)
                                filters = weight.load((tap, c), lanes, valid=valid)
                                total = cb.fma(cb.cast(seen, cb.f32), cb.cast(filters, cb.f32), total)
    return total


@cb.func
def inner_place(x, taps, n, at, c, window, dilation, lanes):
    """The sum over a window that lies within the input."""
    d0, h0, w0 = at
    total = cb.cast(cb.splat(0.0, lanes), cb.f32)
    for t in cb.unroll(range(window[0])):
        for u in cb.unroll(range(window[1])):
            for v in cb.unroll(range(window[2])):
                place = (n, d0 + t * dilation[0], h0 + u * dilation[1], w0 + v * dilation[2], c)
                tap = taps[(t * window[1] + u) * window[2] + v]
                total = cb.fma(cb.cast(x.load(place, lanes), cb.f32), tap, total)
    return total


@cb.func
def put_place(out, total, bias, n, at, c, function, lanes, whole):
    """Bias, activation, store."""
    valid = out.shape[4] - c
    if bias is not None:
        total = total + cb.cast(bias.load(c, lanes, valid=valid), cb.f32)
    if function is not None:
        total = function(total)
    if whole:
        out.store((n, at[0], at[1], at[2], c), cb.cast(total, out.dtype))
    else:
        out.store((n, at[0], at[1], at[2], c), cb.cast(total, out.dtype), valid=valid)


@cb.kernel
def depthwise(
    x: cb.Array, weight: cb.Array, bias, out: cb.Array, stride, dilation, pad, function: cb.Comptime,
    window: cb.Comptime[tuple], lanes: cb.Comptime[int],
):  # fmt: skip
    """out[n, d, h, w, c] = function(sum over the window of x * weight[tap, c] + bias[c]); a cube does a row of places.

    Lines lie along the channels. Where the whole window lies within the input, its filters stay in registers.
    """
    h = cb.CUBE_POS % out.shape[2]
    d = (cb.CUBE_POS // out.shape[2]) % out.shape[1]
    n = cb.CUBE_POS // (out.shape[2] * out.shape[1])
    channels, places = out.shape[4], out.shape[3]
    d0, h0 = d * stride[0] - pad[0], h * stride[1] - pad[1]
    within = d0 >= 0 and d0 + (window[0] - 1) * dilation[0] < x.shape[1]
    within = within and h0 >= 0 and h0 + (window[1] - 1) * dilation[1] < x.shape[2]
    first, stop = places, places
    if within and window[0] * window[1] * window[2] <= WRITTEN_OUT:
        room = x.shape[3] - 1 + pad[2] - (window[2] - 1) * dilation[2]  # of the last place's window
        first = cb.min(places, (pad[2] + stride[2] - 1) // stride[2])
        stop = cb.clamp(room // stride[2] + 1, first, places)
    for c in range(0, channels // lanes * lanes, lanes):
        for w in range(first):
            total = edge_place(x, weight, n, (d0, h0, w * stride[2] - pad[2]), c, window, dilation, lanes, True)
            put_place(out, total, bias, n, (d, h, w), c, function, lanes, True)
        if window[0] * window[1] * window[2] <= WRITTEN_OUT:
            taps = ()
            for tap in cb.unroll(range(window[0] * window[1] * window[2])):
                taps = taps + (cb.cast(weight.load((tap, c), lanes), cb.f32),)
            for w in range(first, stop):
                total = inner_place(x, taps, n, (d0, h0, w * stride[2] - pad[2]), c, window, dilation, lanes)
                put_place(out, total, bias, n, (d, h, w), c, function, lanes, True)
        for w in range(stop, places):
            total = edge_place(x, weight, n, (d0, h0, w * stride[2] - pad[2]), c, window, dilation, lanes, True)
            put_place(out, total, bias, n, (d, h, w), c, function, lanes, True)
    if channels % lanes > 0:
        c = channels // lanes * lanes
        for w in range(places):
            total = edge_place(x, weight, n, (d0, h0, w * stride[2] - pad[2]), c, window, dilation, lanes, False)
            put_place(out, total, bias, n, (d, h, w), c, function, lanes, False)


def by_channel(x: Any, w: Any, bias: Any, out: Any, problem: Problem, function: Any) -> None:
    """Every channel has one filter: x (N, d, h, w, C) and out (N, *out, C) are contiguous, w is (C, 1, window)."""
    taps = contiguous(w[:, 0].T)
    lanes = cb.device_properties_of().register_bytes // 4
    cubes = out.shape[0] * out.shape[1] * out.shape[2]
    depthwise[cubes, 1](
        x, taps, bias, out, problem.stride, problem.dilation, problem.pad, function, problem.window, lanes,
        mode="unchecked",
    )  # fmt: skip
