"""The gradient of largest values with channels last, on a CPU: every position sums over the windows
that chose it.

Lines lie along the channels, and windows are taken in their order, so that the sums are those of
`pooling.cpu.max_indices`, which adds what every window has to the position that it chose, channel
by channel.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.pooling.naive import windows_over
from cubepy.kernels.pooling.problem import MaxPoolBack
from cubepy.kernels.windows.direct_cpu import pays_streaming
from cubepy.kernels.windows.window import Windows
from cubepy.tune import CpuRoutine

LINES = 4  # that are under way at a time
MOST = 9  # windows that hold a position


@cb.func
def add_chosen_lines(
    grad,
    index,
    out,
    at,
    windows,
    here,
    acc: cb.Comptime,
    streaming: cb.Comptime[bool],
    lines: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """out[at] = the sum over `windows`, the first and the one behind the last, of the gradients
    whose index is `here`, for some lines.
    """
    n, c, position = at[0], at[4], cb.splat(here, lanes)
    first, last = windows
    total = cb.local((lines,), acc, lanes=lanes)
    for k in cb.unroll(range(lines)):
        total[k] = cb.cast(cb.splat(0.0, lanes), acc)
    for h in range(first[0], last[0]):
        for i in range(first[1], last[1]):
            for j in range(first[2], last[2]):
                for k in cb.unroll(range(lines)):
                    chose = (
                        cb.cast(index.load((n, h, i, j, c + k * lanes), lanes), cb.i64) == position
                    )
                    more = total[k] + cb.cast(grad.load((n, h, i, j, c + k * lanes), lanes), acc)
                    total[k] = cb.select(chose, more, total[k])
    for k in cb.unroll(range(lines)):
        if streaming:
            out.store_stream(at[:4] + (c + k * lanes,), cb.cast(total[k], out.dtype))
        else:
            out.store(at[:4] + (c + k * lanes,), cb.cast(total[k], out.dtype))


@cb.kernel
def add_windows(
    grad: cb.Array,
    index: cb.Array,
    out: cb.Array,
    every: Windows,
    acc: cb.Comptime,
    parts: cb.Comptime[bool],
    streaming: cb.Comptime[bool],
    lanes: cb.Comptime[int],
):
    """grad, index, out of (batch, depth, height, width, channels); a cube does a row of
    positions.
    """
    z = cb.CUBE_POS % out.shape[2]
    y = cb.CUBE_POS // out.shape[2] % out.shape[1]
    n = cb.CUBE_POS // out.shape[2] // out.shape[1]
    kernel, stride, pad, dilation = every.kernel, every.stride, every.pad, every.dilation
    a0, a1 = windows_over(
        y, out.shape[1], grad.shape[1], kernel[0], stride[0], pad[0], dilation[0], parts
    )
    b0, b1 = windows_over(
        z, out.shape[2], grad.shape[2], kernel[1], stride[1], pad[1], dilation[1], parts
    )
    channels, row = out.shape[4], (y * out.shape[2] + z) * out.shape[3]
    span = (kernel[2] - 1) * dilation[2]
    many = LINES * lanes
    begin = channels // many * many
    c0, c1 = 0, 0
    for q in range(out.shape[3]):
        if parts:
            c0, c1 = windows_over(
                q, out.shape[3], grad.shape[3], kernel[2], stride[2], pad[2], dilation[2], parts
            )
        else:
            while c1 < grad.shape[3] and c1 * stride[2] - pad[2] <= q:
                c1 += 1
            while c0 < c1 and c0 * stride[2] - pad[2] + span < q:
                c0 += 1
        windows, here = ((a0, b0, c0), (a1, b1, c1)), cb.cast(row + q, cb.i64)
        for c in range(0, begin, many):
            add_chosen_lines(
                grad, index, out, (n, y, z, q, c), windows, here, acc, streaming, LINES, lanes
            )
        for k in range(begin, channels, lanes):
            c = cb.min(k, channels - lanes)  # the last line overlaps the one before
            add_chosen_lines(
                grad, index, out, (n, y, z, q, c), windows, here, acc, streaming, 1, lanes
            )


class AddWindows(CpuRoutine):
    """The sum over the windows that hold a position, in lines of channels."""

    name = "add_windows"

    def unfit(self, p: MaxPoolBack, properties: cb.DeviceProperties) -> str | None:
        """Lines of channels, and few windows over a position."""
        acc = cb.f64 if p.out.itemsize == 8 else cb.f32
        windows = 1
        for k, s, d in zip(p.settings[0], p.settings[1], p.settings[3], strict=True):
            windows *= -(-((k - 1) * d + 1) // s)
        few = p.out.shape[4] < properties.lanes(acc) or windows > MOST
        return "for lines of channels and few windows over a place" if few else None

    def launch(self, p: MaxPoolBack, properties: cb.DeviceProperties) -> None:
        """A cube does a row; an index outside of its window counts nowhere."""
        grad, index, out = p.grad, p.index, p.out
        acc = cb.f64 if out.itemsize == 8 else cb.f32
        lanes = properties.lanes(acc)
        cubes = out.shape[0] * out.shape[1] * out.shape[2]
        add_windows[cubes, 1](
            grad,
            index,
            out,
            Windows(*p.settings),
            acc,
            p.parts,
            pays_streaming(out, lanes, grad, index),
            lanes,
            mode="unchecked",
        )
