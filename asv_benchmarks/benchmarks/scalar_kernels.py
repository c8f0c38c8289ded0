"""Kernels of single elements as a newcomer writes them, and the same loops for numba's `prange`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import njit, prange

import cubepy as cb

Run = Callable[[], None]


@cb.kernel
def rows_of_sparse(begin: cb.Array, index: cb.Array, data: cb.Array, x: cb.Array, out: cb.Array):
    """A sparse matrix times a vector."""
    row = cb.ABSOLUTE_POS
    if row < out.size:
        total = cb.f32(0)
        for k in range(begin[row], begin[row + 1]):
            total += data[k] * x[index[k]]
        out[row] = total


@njit(parallel=True)
def rows_of_sparse_numba(begin, index, data, x, out):
    """The same."""
    for row in prange(out.size):
        total = np.float32(0)
        for k in range(begin[row], begin[row + 1]):
            total += data[k] * x[index[k]]
        out[row] = total


@cb.kernel
def counted(x: cb.Array, counts: cb.Array):
    """How often each byte comes, by atomics."""
    i = cb.ABSOLUTE_POS
    if i < x.size:
        cb.atomic_add(counts, cb.cast(x[i], cb.i32), 1)


@njit(parallel=True)
def counted_numba(x, counts):
    """The same by counts of every thread, as numba has no atomics on a CPU."""
    threads = numba.get_num_threads()
    own = np.zeros((threads, counts.size), np.int32)
    size = (x.size + threads - 1) // threads
    for t in prange(threads):
        for i in range(t * size, min(x.size, (t + 1) * size)):
            own[t, x[i]] += 1
    for t in range(threads):
        for b in range(counts.size):
            counts[b] += own[t, b]


@cb.kernel
def relaxed(u: cb.Array, f: cb.Array, out: cb.Array):
    """A step of Jacobi's method."""
    i, j = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        out[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - f[i, j])


@njit(parallel=True)
def relaxed_numba(u, f, out):
    """The same."""
    quarter = np.float32(0.25)
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            out[i, j] = quarter * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - f[i, j])


@cb.kernel
def lived(grid: cb.Array, out: cb.Array):
    """A step of the game of life."""
    i, j = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    if i > 0 and i < out.shape[0] - 1 and j > 0 and j < out.shape[1] - 1:
        n = (grid[i - 1, j - 1] + grid[i - 1, j] + grid[i - 1, j + 1] + grid[i, j - 1]
             + grid[i, j + 1] + grid[i + 1, j - 1] + grid[i + 1, j] + grid[i + 1, j + 1])  # fmt: skip
        if n == 3 or (n == 2 and grid[i, j] == 1):
            out[i, j] = 1
        else:
            out[i, j] = 0


@njit(parallel=True)
def lived_numba(grid, out):
    """The same."""
    for i in prange(1, out.shape[0] - 1):
        for j in range(1, out.shape[1] - 1):
            n = (grid[i - 1, j - 1] + grid[i - 1, j] + grid[i - 1, j + 1] + grid[i, j - 1]
                 + grid[i, j + 1] + grid[i + 1, j - 1] + grid[i + 1, j] + grid[i + 1, j + 1])  # fmt: skip
            if n == 3 or (n == 2 and grid[i, j] == 1):
                out[i, j] = 1
            else:
                out[i, j] = 0


@cb.kernel
def hit(
    bx: cb.Array,
    by: cb.Array,
    bz: cb.Array,
    dx: cb.Array,
    dy: cb.Array,
    dz: cb.Array,
    out: cb.Array,
):
    """Where rays meet a sphere."""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        b = bx[i] * dx[i] + by[i] * dy[i] + bz[i] * dz[i]
        c = bx[i] * bx[i] + by[i] * by[i] + bz[i] * bz[i] - 1.0
        disc = b * b - c
        t = cb.f32(-1)
        if disc >= 0:
            t = -b - cb.sqrt(disc)
            if t < 0:
                t = -b + cb.sqrt(disc)
        out[i] = t


@njit(parallel=True)
def hit_numba(bx, by, bz, dx, dy, dz, out):
    """The same."""
    for i in prange(out.size):
        b = bx[i] * dx[i] + by[i] * dy[i] + bz[i] * dz[i]
        c = bx[i] * bx[i] + by[i] * by[i] + bz[i] * bz[i] - np.float32(1)
        disc = b * b - c
        t = np.float32(-1)
        if disc >= 0:
            t = -b - math.sqrt(disc)
            if t < 0:
                t = -b + math.sqrt(disc)
        out[i] = t


@cb.kernel
def unpacked(x: cb.Array, out: cb.Array):
    """Two numbers of four bits from each byte."""
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[2 * i] = cb.i8(x[i] & 15) - 8
        out[2 * i + 1] = cb.i8(x[i] >> 4) - 8


@njit(parallel=True)
def unpacked_numba(x, out):
    """The same."""
    for i in prange(x.size):
        out[2 * i] = np.int8(x[i] & 15) - 8
        out[2 * i + 1] = np.int8(x[i] >> 4) - 8


@cb.kernel
def summed(x: cb.Array, start: cb.Array, out: cb.Array, chunk: cb.i32):
    """The second half of a scan: sums within chunks, from where each begins."""
    c = cb.ABSOLUTE_POS
    if c < start.size:
        total = start[c]
        for k in range(c * chunk, min((c + 1) * chunk, x.size)):
            total += x[k]
            out[k] = total


@njit(parallel=True)
def summed_numba(x, start, out, chunk):
    """The same."""
    for c in prange(start.size):
        total = start[c]
        for k in range(c * chunk, min((c + 1) * chunk, x.size)):
            total += x[k]
            out[k] = total


@cb.kernel
def strided(x: cb.Array, out: cb.Array):
    """A loop that strides over the grid, as on a GPU."""
    for i in range(cb.ABSOLUTE_POS, out.size, cb.CUBE_COUNT * cb.CUBE_DIM):
        out[i] = 0.5 * x[i] + out[i]


@njit(parallel=True)
def strided_numba(x, out):
    """One loop over all."""
    for i in prange(out.size):
        out[i] = np.float32(0.5) * x[i] + out[i]


def _sparse(n: int) -> tuple[Any, Any, tuple[Any, ...], Any]:
    rng = np.random.default_rng(0)
    rows = n // 16
    begin = np.zeros(rows + 1, np.int32)
    begin[1:] = np.cumsum(rng.integers(0, 33, rows))
    index = rng.integers(0, rows, begin[-1]).astype(np.int32)
    data, x = (rng.standard_normal(m, np.float32) for m in (begin[-1], rows))
    out = np.zeros(rows, np.float32)
    return rows_of_sparse[cb.over(out)], rows_of_sparse_numba, (begin, index, data, x, out), out


def _counted(n: int) -> tuple[Any, Any, tuple[Any, ...], Any]:
    x = np.random.default_rng(0).integers(0, 256, n).astype(np.uint8)
    counts = np.zeros(256, np.int32)
    return counted[cb.over(x)], counted_numba, (x, counts), counts


def _square(kernel: Any, other: Any, inputs: int, dtype: Any) -> Callable[[int], Any]:
    def make(n: int) -> tuple[Any, Any, tuple[Any, ...], Any]:
        side = int(n**0.5)
        arrays = np.random.default_rng(0).integers(0, 2, (inputs, side, side)).astype(dtype)
        out = np.zeros((side, side), dtype)
        return kernel[cb.over(out)], other, (*arrays, out), out

    return make


def _rays(n: int) -> tuple[Any, Any, tuple[Any, ...], Any]:
    out = np.zeros(n, np.float32)
    arrays = np.random.default_rng(0).standard_normal((6, n), np.float32)
    return hit[cb.over(out)], hit_numba, (*arrays, out), out


def _bytes(n: int) -> tuple[Any, Any, tuple[Any, ...], Any]:
    x, out = np.random.default_rng(0).integers(0, 256, n).astype(np.uint8), np.zeros(2 * n, np.int8)
    return unpacked[cb.over(x)], unpacked_numba, (x, out), out


def _scan(n: int) -> tuple[Any, Any, tuple[Any, ...], Any]:
    x, out = np.random.default_rng(0).standard_normal(n, np.float32), np.zeros(n, np.float32)
    start = np.zeros(-(-n // 2048), np.float32)
    return summed[cb.over(start)], summed_numba, (x, start, out, 2048), out


def _strides(n: int) -> tuple[Any, Any, tuple[Any, ...], Any]:
    x, out = np.ones(n, np.float32), np.zeros(n, np.float32)
    return strided[64, 256], strided_numba, (x, out), out


WORKS: dict[str, Callable[[int], tuple[Any, Any, tuple[Any, ...], Any]]] = {
    "sparse": _sparse,
    "histogram": _counted,
    "jacobi": _square(relaxed, relaxed_numba, 2, np.float32),
    "life": _square(lived, lived_numba, 1, np.int32),
    "rays": _rays,
    "int4": _bytes,
    "scan": _scan,
    "grid stride": _strides,
}
SIZES = {"cache": 100_000, "memory": 8_000_000}


@cache
def pair(name: str, size: str) -> tuple[Run, Run]:
    """A kernel of ours and its loop, compiled; both were seen to give the same.

    Raises:
        AssertionError: they do not.
    """
    launch, other, arrays, out = WORKS[name](SIZES[size])
    results = []
    for run in (launch, other):
        out[...] = 0
        run(*arrays)
        results.append(out.copy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-3)
    return lambda: launch(*arrays), lambda: other(*arrays)
