"""Products with few rows: the matrix is read once, where it stands; nothing is packed."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul_kernels import Blueprint, finish_line

MOST_ROWS = 4
CHANNELS = 16  # results that a cube makes side by side


@cb.kernel
def dot_rows(
    a: cb.Array, b: cb.Array, out: cb.Array, bias, residual, alpha, rows: cb.Comptime[int], plan: cb.Comptime
):
    """out[0, i, n] = a[i] . b[n]: rows of b are read in order, four at a time; a is (M, K), b (N, K)."""
    lanes = plan.lanes
    depth, channels = a.shape[1], b.shape[0]
    first = cb.CUBE_POS * plan.block_panels
    buffer = cb.local((rows, plan.block_panels), cb.f32)
    whole = depth // lanes * lanes
    for n in range(0, plan.block_panels, 4):
        acc = cb.local((rows, 4), cb.f32, lanes=lanes)
        for i in range(rows):
            for j in range(4):
                acc[i, j] = cb.splat(0.0, lanes)
        p0 = cb.min(first + n, channels - 1)
        p1 = cb.min(first + n + 1, channels - 1)
        p2 = cb.min(first + n + 2, channels - 1)
        p3 = cb.min(first + n + 3, channels - 1)
        places = (p0, p1, p2, p3)
        for k in range(0, whole, lanes):
            for i in cb.unroll(range(rows)):
                x = cb.cast(a.load((i, k), lanes), cb.f32)
                for j in cb.unroll(range(4)):
                    acc[i, j] = cb.fma(x, cb.cast(b.load((places[j], k), lanes), cb.f32), acc[i, j])
        if whole < depth:
            for i in cb.unroll(range(rows)):
                x = cb.cast(a.load((i, whole), lanes, valid=depth - whole), cb.f32)
                for j in cb.unroll(range(4)):
                    y = cb.cast(b.load((places[j], whole), lanes, valid=depth - whole), cb.f32)
                    acc[i, j] = cb.fma(x, y, acc[i, j])
        for i in cb.unroll(range(rows)):
            for j in cb.unroll(range(4)):
                buffer[i, n + j] = acc[i, j].sum()
    for i in range(rows):
        for j in range(0, plan.block_panels, lanes):
            if first + j < channels:
                value = buffer.load((i, j), lanes, valid=plan.block_panels - j) * alpha
                valid = cb.min(channels - first - j, plan.block_panels - j)
                finish_line(value, out, bias, residual, 0, i, first + j, valid, plan)


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


def skinny_product(
    x: np.ndarray, b: np.ndarray, out: np.ndarray, bias: Any, residual: Any, function: Any, alpha: float
) -> bool:
    """out (1, M, N) = epilogue(x (M, K) @ b (K, N)) for few rows; False when the layouts do not suit."""
    m = x.shape[0]
    lanes = cb.device_properties_of().register_bytes // 4
    common = (bias is not None, residual is not None, function)
    if b.strides[0] == b.itemsize or b.shape[0] == 1:
        plan = Blueprint(m, 4, lanes, 1, CHANNELS, 0, *common)
        cubes = -(-b.shape[1] // CHANNELS)
        dot_rows[cubes, 1](x, b.T, out, bias, residual, alpha, m, plan, mode="unchecked")
        return True
    if b.strides[1] == b.itemsize:
        plan = Blueprint(m, 4, lanes, 1, 1, 0, *common)
        cubes = -(-b.shape[1] // (4 * lanes))
        sum_rows[cubes, 1](x, b, out, bias, residual, alpha, m, plan, mode="unchecked")
        return True
    return False
