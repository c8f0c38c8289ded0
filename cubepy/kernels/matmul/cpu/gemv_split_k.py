"""Products with few rows whose sum is cut along K: a cube streams whole rows of b; sums of cubes
are added up after.

A cube that makes a part of the columns jumps to another page with every row of b, where prefetchers
begin anew; whole rows one after the other are read as fast as memory is, if several of them are
under way at a time.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.matmul.cpu.microkernel import Blueprint, multiply_add
from cubepy.kernels.matmul.cpu.split_k import add_parts
from cubepy.runtime import memory

PARTS, FEWER = 8, 2  # of K, and of smaller matrices; for any number of threads, as results are
LARGE = 1 << 22  # bytes of b
SUMS = 8  # products of a line of sums at a time: rows of a times rows of b
MORE_SUMS = 16  # for several rows, with 32 registers
LINES = 16  # of a row of results that a cube adds up


@cb.func
def line_of(b, k, at, left, lanes: cb.Comptime[int], dtype: cb.Comptime):
    """b[k, at:] as a line of sums; `left` elements of it are there, None: all."""
    if left is None:
        return cb.cast(b.load((k, at), lanes), dtype)
    return cb.cast(b.load((k, at), lanes, valid=left), dtype)


@cb.func
def add_line(
    b,
    sums,
    factors,
    k,
    at,
    left,
    rows: cb.Comptime[int],
    count: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """Add `count` rows of b, times their factors, to a line of every row of a cube's sums."""
    found = tuple(line_of(b, k + r, at, left, lanes, sums.dtype) for r in cb.unroll(range(count)))
    for i in cb.unroll(range(rows)):
        total = sums.load((cb.CUBE_POS, i, at), lanes)
        for r in cb.unroll(range(count)):
            total = multiply_add(factors[i * count + r], found[r], total)
        sums.store((cb.CUBE_POS, i, at), total)


@cb.func
def add_rows(
    a, b, sums, k, rows: cb.Comptime[int], count: cb.Comptime[int], lanes: cb.Comptime[int]
):
    """sums[cube] += a[:, k : k + count] @ b[k : k + count]"""
    columns = b.shape[1]
    factors = ()
    for i in cb.unroll(range(rows)):
        for r in cb.unroll(range(count)):
            factors = factors + (cb.splat(cb.cast(a[i, k + r], sums.dtype), lanes),)
    for at, valid in cb.lines(0, columns, lanes):
        add_line(b, sums, factors, k, at, valid, rows, count, lanes)


@cb.kernel
def sum_split_k(
    a: cb.Array,
    b: cb.Array,
    sums: cb.Array,
    length,
    rows: cb.Comptime[int],
    count: cb.Comptime[int],
    lanes: cb.Comptime[int],
):
    """sums[cube] = a[:, part] @ b[part] for the `length` rows of b, which is (K, N), of a cube,
    `count` at a time.
    """
    first = cb.CUBE_POS * length
    stop = cb.min(first + length, b.shape[0])
    for i in range(rows):
        for at in range(0, sums.shape[2], lanes):
            sums.store((cb.CUBE_POS, i, at), cb.splat(cb.cast(0, sums.dtype), lanes))
    whole = first + (stop - first) // count * count
    for k in range(first, whole, count):
        add_rows(a, b, sums, k, rows, count, lanes)
    for k in range(whole, stop):
        add_rows(a, b, sums, k, rows, 1, lanes)


def multiply_split_k(
    x: Any,
    b: Any,
    out: Any,
    bias: Any,
    residual: Any,
    mask: Any,
    alpha: Any,
    fill: Any,
    plan: Blueprint,
) -> None:
    """out (1, M, N) = epilogue(x (M, K) @ b (K, N)) for up to `SUMS` rows of x."""
    (m, k), columns, lanes = x.shape, b.shape[1], plan.lanes
    length = -(-k // (PARTS if b.nbytes >= LARGE else FEWER))
    parts = -(-k // length)
    narrow = "int32" if out.dtype.kind in "iub" else "float32"
    dtype = narrow if out.dtype.itemsize < 4 else out.dtype
    sums = memory.empty((parts, m, -(-columns // lanes) * lanes), dtype)
    count = (MORE_SUMS if m > 1 and lanes * sums.itemsize >= 64 else SUMS) // m
    sum_split_k[parts, 1](x, b, sums, length, m, count, lanes, mode="unchecked")
    width = LINES * lanes
    cubes = m * -(-columns // width)
    add_parts[cubes, 1](sums, out, bias, residual, mask, alpha, fill, width, plan, mode="unchecked")
