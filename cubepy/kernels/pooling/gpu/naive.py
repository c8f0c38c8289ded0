"""Max pooling and table look-up by whole cubes, for devices with planes: every unit makes one line
of the result.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.pooling.problem import MaxPool
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.tune import GpuRoutine

UNITS = 256  # of a cube


@cb.kernel
def pool_last(
    x: cb.Array,
    out: cb.Array,
    stride_h,
    stride_w,
    pad_h,
    pad_w,
    kernel: cb.Comptime[tuple],
    dilation: cb.Comptime[tuple],
    lanes: cb.Comptime[int],
):
    """out[n, i, j, c] = max over the window, for channels last."""
    lines = (out.shape[3] + lanes - 1) // lanes
    t = cb.ABSOLUTE_POS
    if t < out.shape[0] * out.shape[1] * out.shape[2] * lines:
        n, i, j, line = cb.unravel(t, out.shape[:3] + (lines,))
        c = multiple(line * lanes, lanes)
        left = out.shape[3] - c
        best = cb.cast(cb.splat(-float("inf"), lanes), x.dtype)
        for u in cb.unroll(range(kernel[0])):
            y = i * stride_h - pad_h + u * dilation[0]
            if y >= 0 and y < x.shape[1]:
                for v in cb.unroll(range(kernel[1])):
                    z = j * stride_w - pad_w + v * dilation[1]
                    if z >= 0 and z < x.shape[2]:
                        best = cb.nan_max(best, x.load((n, y, z, c), lanes, valid=left))
        out.store((n, i, j, c), best, valid=left)


@cb.kernel
def pool_first(
    x: cb.Array,
    out: cb.Array,
    stride_h,
    stride_w,
    pad_h,
    pad_w,
    kernel: cb.Comptime[tuple],
    dilation: cb.Comptime[tuple],
):
    """out[p, i, j] = max over the window, for planes p = n * C + c."""
    t = cb.ABSOLUTE_POS
    if t < out.size:
        p, i, j = cb.unravel(t, out.shape[:3])
        best = cb.cast(-float("inf"), x.dtype)
        for u in cb.unroll(range(kernel[0])):
            y = i * stride_h - pad_h + u * dilation[0]
            if y >= 0 and y < x.shape[1]:
                for v in cb.unroll(range(kernel[1])):
                    z = j * stride_w - pad_w + v * dilation[1]
                    if z >= 0 and z < x.shape[2]:
                        best = cb.nan_max(best, x[p, y, z])
        out[p, i, j] = best


class Images(GpuRoutine):
    """Every window of images of floats by itself."""

    name = "images"

    def unfit(self, p: MaxPool, properties: cb.DeviceProperties) -> str | None:
        """Windows of images of floats."""
        if p.index is not None or p.parts or p.axes != 2:
            return "for values of windows of images"
        return "for floats" if p.x.dtype.kind in "iu" else None

    def launch(self, p: MaxPool, properties: cb.DeviceProperties) -> None:
        """A unit makes a line of channels, or a result."""
        kernel, step, pad, dilation = (part[1:] for part in p.settings)
        if p.last:
            x, out = p.x[:, 0], p.out[:, 0]
            lanes = line_of(x, out)
            units = out.size // out.shape[3] * -(-out.shape[3] // lanes)
            pool_last[-(-units // UNITS), UNITS](
                x, out, *step, *pad, kernel, dilation, lanes, mode="unchecked"
            )
        else:
            x, out = p.x[:, 0, :, :, 0], p.out[:, 0, :, :, 0]
            pool_first[-(-out.size // UNITS), UNITS](
                x, out, *step, *pad, kernel, dilation, mode="unchecked"
            )
