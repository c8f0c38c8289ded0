"""Max pooling and table look-up by whole cubes, for devices with planes: every unit makes one line of the result."""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.cube_wide import line_of, multiple, power_of_two
from cubepy.kernels.elementwise_cubes import unravelled

UNITS = 256  # of a cube
AHEAD = 4  # lines of a table that a unit asks for at once


@cb.kernel
def pool_last(
    x: cb.Array, out: cb.Array, stride_h, stride_w, pad_h, pad_w,
    kernel: cb.Comptime[tuple], dilation: cb.Comptime[tuple], lanes: cb.Comptime[int],
):  # fmt: skip
    """out[n, i, j, c] = max over the window, for channels last."""
    lines = (out.shape[3] + lanes - 1) // lanes
    t = cb.ABSOLUTE_POS
    if t < out.shape[0] * out.shape[1] * out.shape[2] * lines:
        n, i, j, line = unravelled(t, (out.shape[0], out.shape[1], out.shape[2], lines), 4)
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
    x: cb.Array, out: cb.Array, stride_h, stride_w, pad_h, pad_w,
    kernel: cb.Comptime[tuple], dilation: cb.Comptime[tuple],
):  # fmt: skip
    """out[p, i, j] = max over the window, for planes p = n * C + c."""
    t = cb.ABSOLUTE_POS
    if t < out.size:
        p, i, j = unravelled(t, out.shape, 3)
        best = cb.cast(-float("inf"), x.dtype)
        for u in cb.unroll(range(kernel[0])):
            y = i * stride_h - pad_h + u * dilation[0]
            if y >= 0 and y < x.shape[1]:
                for v in cb.unroll(range(kernel[1])):
                    z = j * stride_w - pad_w + v * dilation[1]
                    if z >= 0 and z < x.shape[2]:
                        best = cb.nan_max(best, x[p, y, z])
        out[p, i, j] = best


@cb.kernel
def gather_rows_wide(
    indices: cb.Array, table: cb.Array, out: cb.Array, lanes: cb.Comptime[int], across: cb.Comptime[int],
    ahead: cb.Comptime[int], along: cb.Comptime[bool],
):  # fmt: skip
    """out[i] = table[indices[i]]; `across` units lie along a row, the others of a cube along the indices. A unit asks
    for `ahead` lines before it stores the first: `along` one row that is longer than a cube is wide, else of several.
    """
    hop = across * lanes
    down = cb.CUBE_DIM // across
    n = out.shape[1]
    if along:
        blocks = (n + hop * ahead - 1) // (hop * ahead)
        i = cb.CUBE_POS // blocks
        k = multiple(cb.CUBE_POS % blocks * (hop * ahead) + cb.UNIT_POS * lanes, lanes)
        row = indices[i]
        if k + hop * (ahead - 1) + lanes <= n:
            lines = ()
            for j in cb.unroll(range(ahead)):
                lines = lines + (table.load((row, k + j * hop), lanes),)
            for j in cb.unroll(range(ahead)):
                out.store((i, k + j * hop), lines[j])
        else:
            for at in range(k, n, hop):
                out.store((i, at), table.load((row, at), lanes))
    else:
        k = multiple(cb.UNIT_POS % across * lanes, lanes)
        i = cb.CUBE_POS * (down * ahead) + cb.UNIT_POS // across
        if k < n and i + down * (ahead - 1) < indices.size:
            rows = ()
            for j in cb.unroll(range(ahead)):
                rows = rows + (indices[i + j * down],)
            lines = ()
            for j in cb.unroll(range(ahead)):
                lines = lines + (table.load((rows[j], k), lanes),)
            for j in cb.unroll(range(ahead)):
                out.store((i + j * down, k), lines[j])
        elif k < n:
            for at in range(i, cb.min(i + down * ahead, indices.size), down):
                out.store((at, k), table.load((indices[at], k), lanes))


def channels_last(
    x: Any,
    target: Any,
    step: tuple[int, int],
    pad: tuple[int, int],
    kernel: tuple[int, int],
    dilation: tuple[int, int],
) -> None:
    """Max pooling of (N, H, W, C)."""
    lanes = line_of(x, target)
    units = target.size // target.shape[3] * -(-target.shape[3] // lanes)
    pool_last[-(-units // UNITS), UNITS](
        x, target, *step, *pad, kernel, dilation, lanes, mode="unchecked"
    )


def channels_first(
    x: Any,
    target: Any,
    step: tuple[int, int],
    pad: tuple[int, int],
    kernel: tuple[int, int],
    dilation: tuple[int, int],
) -> None:
    """Max pooling of (N * C, H, W)."""
    pool_first[-(-target.size // UNITS), UNITS](
        x, target, *step, *pad, kernel, dilation, mode="unchecked"
    )


def gather(indices: Any, table: Any, target: Any) -> None:
    """Rows of a table by index."""
    lanes = line_of(table, target)
    n = target.shape[1]
    across = min(UNITS, power_of_two(-(-n // lanes)))
    along = n > UNITS * lanes
    if along:
        cubes = -(-n // (UNITS * lanes * AHEAD)) * indices.size
    else:
        cubes = -(-indices.size // (UNITS // across * AHEAD))
    gather_rows_wide[cubes, UNITS](
        indices, table, target, lanes, across, AHEAD, along, mode="checked"
    )
