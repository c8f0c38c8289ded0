"""Products with few rows: the matrix is read once, where it stands; nothing is packed."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul_kernels import Blueprint, finish_line

MOST_ROWS = 4  # rows of b along K are summed lane by lane for up to MOST_DOT_ROWS rows of a
MOST_DOT_ROWS = 64
CHANNELS = 16  # results that a cube makes side by side


@cb.kernel
def dot_rows(
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha, rows: cb.Comptime[int], plan: cb.Comptime
):
    """out[0, i, n] = a[i] . b[n], both read along their rows: a is (M, K), b (N, K).

    A cube does `block_panels` channels for all rows, `rows` x 4 of them at a time; its part of b stays in the cache.
    """
    lanes = plan.lanes
    m, depth, channels = a.shape[0], a.shape[1], b.shape[0]
    first = cb.CUBE_POS * plan.block_panels
    buffer = cb.local((rows, plan.block_panels), cb.f32)
    for row in range(0, m, rows):
        for n in range(0, plan.block_panels, 4):
            dot_tile(buffer, a, b, row, first + n, n, m, channels, depth, rows, lanes)
        for i in range(cb.min(rows, m - row)):
            for j in range(0, plan.block_panels, lanes):
                if first + j < channels:
                    value = buffer.load((i, j), lanes, valid=plan.block_panels - j) * alpha
                    valid = cb.min(channels - first - j, plan.block_panels - j)
                    finish_line(value, out, bias, residual, 0, row + i, first + j, valid, plan)


@cb.func
def dot_tile(buffer, a, b, row, channel, n, m, channels, depth, rows, lanes):
    """buffer[i, n + j] = a[row + i] . b[channel + j] for `rows` x 4 pairs, summed in lines along K."""
    acc = cb.local((rows, 4), cb.f32, lanes=lanes)
    strip = cb.local(4, cb.f32, lanes=lanes)
    for i in range(rows):
        for j in range(4):
            acc[i, j] = cb.splat(0.0, lanes)
    places = ()
    for j in cb.unroll(range(4)):
        places = places + (cb.min(channel + j, channels - 1),)
    sources = ()
    for i in cb.unroll(range(rows)):
        sources = sources + (cb.min(row + i, m - 1),)
    whole = depth // lanes * lanes
    for k in range(0, whole, lanes):
        for j in cb.unroll(range(4)):
            strip[j] = cb.cast(b.load((places[j], k), lanes), cb.f32)
        for i in cb.unroll(range(rows)):
            x = cb.cast(a.load((sources[i], k), lanes), cb.f32)
            for j in range(4):
                acc[i, j] = cb.fma(x, strip[j], acc[i, j])
    if whole < depth:
        for i in cb.unroll(range(rows)):
            x = cb.cast(a.load((sources[i], whole), lanes, valid=depth - whole), cb.f32)
            for j in cb.unroll(range(4)):
                y = cb.cast(b.load((places[j], whole), lanes, valid=depth - whole), cb.f32)
                acc[i, j] = cb.fma(x, y, acc[i, j])
    for i in cb.unroll(range(rows)):
        for j in cb.unroll(range(4)):
            buffer[i, n + j] = acc[i, j].sum()


@cb.kernel
def sum_rows(
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha, rows: cb.Comptime[int], plan: cb.Comptime
):
    """out[0, i, n] = sum over k of a[i, k] * b[k, n]: lines lie along the rows of b, which is (K, N)."""
    lanes, lines = plan.lanes, plan.lines
    columns = b.shape[1]
    first = cb.CUBE_POS * (lanes * lines)
    acc = cb.local((rows, lines), cb.f32, lanes=lanes)
    done = cb.local((rows, lines), cb.f32, lanes=lanes)
    for i in range(rows):
        for j in range(lines):
            acc[i, j] = cb.splat(0.0, lanes)
    for k in range(a.shape[1]):
        for j in cb.unroll(range(lines)):
            y = cb.cast(b.load((k, first + j * lanes), lanes, valid=columns - first - j * lanes), cb.f32)
            for i in cb.unroll(range(rows)):
                acc[i, j] = cb.fma(cb.splat(cb.cast(a[i, k], cb.f32), lanes), y, acc[i, j])
    for i in range(rows):
        for j in range(lines):
            done[i, j] = acc[i, j]
    for i in range(rows):
        for j in range(lines):
            at = first + j * lanes
            if at < columns:
                finish_line(done[i, j] * alpha, out, bias, residual, 0, i, at, columns - at, plan)


@cache
def plan_of(rows: int, lines: int, lanes: int, panels: int, bias: bool, residual: bool, function: Any) -> Blueprint:
    """The blueprint of a product with few rows; the same object every time, so that keys compare quickly."""
    return Blueprint(rows, lines, lanes, 1, panels, 0, bias, residual, function)


def skinny_product(
    x: np.ndarray, b: np.ndarray, out: np.ndarray, bias: Any, residual: Any, function: Any, alpha: float
) -> bool:
    """out (1, M, N) = epilogue(x (M, K) @ b (K, N)) for few rows; False when the layouts do not suit."""
    m = x.shape[0]
    if m > MOST_DOT_ROWS:
        return False
    lanes = cb.device_properties_of().register_bytes // 4
    common = (bias is not None, residual is not None, function)
    if b.strides[0] == b.itemsize or b.shape[0] == 1:
        plan = plan_of(min(m, 6), 4, lanes, CHANNELS, *common)
        cubes = -(-b.shape[1] // CHANNELS)
        dot_rows[cubes, 1](x, b.T, out, bias, residual, alpha, min(m, 6), plan, mode="unchecked")
        return True
    if m <= MOST_ROWS and b.strides[1] == b.itemsize:
        plan = plan_of(m, 4, lanes, 1, *common)
        cubes = -(-b.shape[1] // (4 * lanes))
        sum_rows[cubes, 1](x, b, out, bias, residual, alpha, m, plan, mode="unchecked")
        return True
    return False
