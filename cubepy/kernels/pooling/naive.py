"""Max pooling of any kind, position by position: with indices, of equal parts (adaptive), and its
gradient.

Arrays are (batch, depth, height, width, channels); lines lie along the channels.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.pooling.problem import MaxPool, MaxPoolBack
from cubepy.kernels.primitives.vector_width import lanes_on, line_of
from cubepy.kernels.windows.window import window
from cubepy.tune import Routine

UNITS = 128


@cb.func
def windows_over(a, n, m, k, s, p, d, parts: cb.Comptime[bool]):
    """The first window that may hold position a, and the one behind the last."""
    if parts:
        return a * m // n, cb.min(m, ((a + 1) * m + n - 1) // n)
    return cb.max(0, (a + p - (k - 1) * d + s - 1) // s), cb.min(m, (a + p) // s + 1)


@cb.kernel
def max_positions(
    x: cb.Array,
    out: cb.Array,
    index,
    kernel,
    stride,
    pad,
    dilation,
    least: cb.Comptime,
    parts: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """The largest value of every window, and where it is: the first of equals, the last NaN, as in
    torch.
    """
    lines = (out.shape[4] + lanes - 1) // lanes
    t = cb.ABSOLUTE_POS
    if t < out.shape[0] * out.shape[1] * out.shape[2] * out.shape[3] * lines:
        n, h, i, j, line = cb.unravel(t, out.shape[:4] + (lines,))
        c = line * lanes
        a0, ka = window(h, x.shape[1], out.shape[1], kernel[0], stride[0], pad[0], parts)
        b0, kb = window(i, x.shape[2], out.shape[2], kernel[1], stride[1], pad[1], parts)
        c0, kc = window(j, x.shape[3], out.shape[3], kernel[2], stride[2], pad[2], parts)
        best = cb.splat(cb.cast(least, x.dtype), lanes)
        position = cb.splat(cb.cast(-1, cb.i64), lanes)
        for u in range(ka):
            y = a0 + u * dilation[0]
            if y >= 0 and y < x.shape[1]:
                for v in range(kb):
                    z = b0 + v * dilation[1]
                    if z >= 0 and z < x.shape[2]:
                        for w in range(kc):
                            q = c0 + w * dilation[2]
                            if q >= 0 and q < x.shape[3]:
                                value = x.load((n, y, z, q, c), lanes)
                                better = (value > best) | (value != value) | (position < 0)
                                best = cb.select(better, value, best)
                                here = cb.cast((y * x.shape[2] + z) * x.shape[3] + q, cb.i64)
                                position = cb.select(better, cb.splat(here, lanes), position)
        out.store((n, h, i, j, c), best)
        if index is not None:
            index.store((n, h, i, j, c), position)


@cb.kernel
def max_positions_back(
    grad: cb.Array,
    index: cb.Array,
    out: cb.Array,
    kernel,
    stride,
    pad,
    dilation,
    acc: cb.Comptime,
    parts: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """The gradient of every position: the sum over the windows that chose it, always in the same
    order.
    """
    lines = (out.shape[4] + lanes - 1) // lanes
    t = cb.ABSOLUTE_POS
    if t < out.shape[0] * out.shape[1] * out.shape[2] * out.shape[3] * lines:
        n, y, z, q, line = cb.unravel(t, out.shape[:4] + (lines,))
        c = line * lanes
        a0, a1 = windows_over(
            y, out.shape[1], grad.shape[1], kernel[0], stride[0], pad[0], dilation[0], parts
        )
        b0, b1 = windows_over(
            z, out.shape[2], grad.shape[2], kernel[1], stride[1], pad[1], dilation[1], parts
        )
        c0, c1 = windows_over(
            q, out.shape[3], grad.shape[3], kernel[2], stride[2], pad[2], dilation[2], parts
        )
        here = cb.splat(cb.cast((y * out.shape[2] + z) * out.shape[3] + q, cb.i64), lanes)
        total = cb.splat(cb.cast(0, acc), lanes)
        for h in range(a0, a1):
            for i in range(b0, b1):
                for j in range(c0, c1):
                    chosen = cb.cast(index.load((n, h, i, j, c), lanes), cb.i64) == here
                    value = cb.cast(grad.load((n, h, i, j, c), lanes), acc)
                    total = total + cb.select(chosen, value, cb.splat(cb.cast(0, acc), lanes))
        out.store((n, y, z, q, c), cb.cast(total, out.dtype))


def lanes_of(properties: cb.DeviceProperties, out: Any, *arrays: Any) -> int:
    """Lanes of a line of channels."""
    if out.shape[-1] == 1:
        return 1
    return line_of(out, *arrays) if properties.plane_size > 1 else lanes_on(properties, out)


class Naive(Routine):
    """Every window by itself, on any device."""

    name = "naive"

    def launch(self, p: MaxPool, properties: cb.DeviceProperties) -> None:
        """A unit does a window of a line of channels."""
        x, out, index = p.x, p.out, p.index
        lanes = lanes_of(properties, out, x, *(() if index is None else (index,)))
        count = out.size // out.shape[4] * -(-out.shape[4] // lanes)
        max_positions[-(-count // UNITS), UNITS](
            x, out, index, *p.settings, p.least, p.parts, lanes, mode="checked"
        )


class NaiveBack(Routine):
    """Every position by itself, on any device."""

    name = "naive"

    def launch(self, p: MaxPoolBack, properties: cb.DeviceProperties) -> None:
        """A unit does a position of a line of channels."""
        grad, index, out = p.grad, p.index, p.out
        lanes = lanes_of(properties, out, grad, index)
        count = out.size // out.shape[4] * -(-out.shape[4] // lanes)
        acc = cb.f64 if out.itemsize == 8 else cb.f32
        max_positions_back[-(-count // UNITS), UNITS](
            grad, index, out, *p.settings, acc, p.parts, lanes, mode="checked"
        )
