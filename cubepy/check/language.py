"""Cases of the language: small kernels, each for one part of it."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.check.case import Case, Put

F = np.float32
N = 200
WHOLE = np.random.default_rng(1).integers(-(2**31), 2**31 - 1, N).astype(np.int32)
REAL = np.random.default_rng(2).standard_normal(N).astype(F)
LONG = WHOLE.astype(np.int64) * 99_991 + 7
WIDE = REAL.astype(np.float64)
POSITIVE = np.abs(REAL) + F(0.1)


@cb.kernel
def axpy(a, x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cb.kernel
def integers(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        a, b = x[i], y[i]
        out[0, i] = a * b + (a - b)
        out[1, i] = a // (b | 1)
        out[2, i] = a % (b | 1)
        out[3, i] = (a << (b & 7)) ^ (a >> (b & 15))
        out[4, i] = cb.min(a, b) - cb.max(a, b)


@cb.kernel
def floats(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[0, i] = x[i] / y[i]
        out[1, i] = cb.sqrt(y[i])
        out[2, i] = cb.fma(x[i], y[i], x[i])
        out[3, i] = cb.floor(x[i] * 8) - x[i]


@cb.kernel
def functions(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[0, i] = cb.exp(x[i])
        out[1, i] = cb.log(x[i])
        out[2, i] = cb.sin(x[i] * 50)
        out[3, i] = cb.tanh(x[i])
        out[4, i] = cb.erf(x[i])
        out[5, i] = x[i] ** 1.7


@cb.kernel
def converted(x: cb.Array, out: cb.Array, dtype: cb.Comptime):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[i] = cb.cast(cb.cast(x[i], dtype) * cb.cast(3, dtype), cb.f32)


@cb.kernel
def lines(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS * 4
    v = x.load(i, 4)
    out.store(i, cb.select(v > 0, v * v, -v) + v.sum())


@cb.kernel
def turned(x: cb.Array, out: cb.Array):
    tile = cb.shared((16, 17), cb.f32)
    tile[cb.UNIT_POS_Y, cb.UNIT_POS_X] = x[cb.UNIT_POS_Y, cb.UNIT_POS_X]
    cb.sync_cube()
    out[cb.UNIT_POS_Y, cb.UNIT_POS_X] = tile[cb.UNIT_POS_X, cb.UNIT_POS_Y]


@cb.kernel
def summed(x: cb.Array, out: cb.Array):
    total = cb.plane_sum(x[cb.ABSOLUTE_POS])
    if cb.UNIT_POS_PLANE == 0:
        cb.atomic_add(out, cb.CUBE_POS, total)


@cb.kernel
def exchanged(x: cb.Array, out: cb.Array):
    """What a plane of any size makes of its units, and then takes back."""
    i = cb.ABSOLUTE_POS
    there = cb.plane_shuffle_xor(x[i], 1)
    back = cb.plane_shuffle_xor(there, 1)
    before = cb.plane_inclusive_sum(x[i]) - cb.plane_exclusive_sum(x[i])
    out[i] = back + before
    if cb.plane_any(x[i] > 1000) or not cb.plane_all(x[i] > -1000):
        out[i] = 0


@cb.kernel
def counted(x: cb.Array, sums: cb.Array, ends: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        cb.atomic_add(sums, x[i] & 7, 1)
        cb.atomic_max(ends, 0, x[i])
        cb.atomic_min(ends, 1, x[i])


@cb.kernel
def collatz(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        n = x[i] & 63 | 1
        steps = 0
        while n != 1:
            n = 3 * n + 1 if n % 2 == 1 else n // 2
            steps += 1
        out[i] = steps


@cb.kernel
def sorted_locally(x: cb.Array, out: cb.Array):
    mine = cb.local(8, cb.f32)
    first = cb.ABSOLUTE_POS * 8
    for k in range(8):
        mine[k] = x[first + k]
    for k in range(8):
        for j in range(7 - k):
            if mine[j] > mine[j + 1]:
                larger = mine[j]
                mine[j] = mine[j + 1]
                mine[j + 1] = larger
    for k in range(8):
        out[first + k] = mine[k]


@cb.kernel
def positions(out: cb.Array):
    i = (cb.CUBE_POS_Z * 2 + cb.UNIT_POS_Z, cb.CUBE_POS_Y * 3 + cb.UNIT_POS_Y)
    out[i[0], i[1], cb.CUBE_POS_X * 5 + cb.UNIT_POS_X] = cb.CUBE_POS * 1000 + cb.UNIT_POS


@cb.kernel
def dotted(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    acc = cb.splat(cb.cast(7, cb.i32), 1)
    out.store(i, cb.dot_i8(acc, x.load(4 * i, 4), y.load(4 * i, 4)))


def _axpy(put: Put) -> Any:
    out = put(np.zeros(N, F))
    axpy[cb.over(N)](2.5, put(REAL), put(POSITIVE), out)
    return out


def _rows(kernel: Any, rows: int, x: np.ndarray, y: np.ndarray | None, put: Put) -> Any:
    out = put(np.zeros((rows, x.size), x.dtype))
    given = (put(x),) if y is None else (put(x), put(y))
    kernel[cb.over(x.size)](*given, out)
    return out


def _converted(dtype: Any, put: Put) -> Any:
    out = put(np.zeros(N, F))
    converted[cb.over(N)](put(REAL * 10), out, dtype)
    return out


def _simple(kernel: Any, grid: Any, x: np.ndarray, out: np.ndarray, put: Put) -> Any:
    result = put(out)
    kernel[grid](put(x), result)
    return result


def _counted(put: Put) -> Any:
    sums, ends = put(np.zeros(8, np.int32)), put(np.zeros(2, np.int32))
    counted[cb.over(N)](put(WHOLE), sums, ends)
    return sums, ends


def _positions(put: Put) -> Any:
    out = put(np.zeros((4, 9, 10), np.int32))
    positions[(2, 3, 2), (5, 3, 2)](out)
    return out


def _dotted(put: Put) -> Any:
    out = put(np.zeros(32, np.int32))
    x = (WHOLE[:128] & 255).astype(np.uint8)
    dotted[1, 32](put(x), put(WHOLE[64:192].astype(np.int8)), out)
    return out


SMALL = (WHOLE[:128] & 511).astype(np.int32)
CASES = (
    Case("axpy", _axpy),
    Case("integers", lambda put: _rows(integers, 5, WHOLE, WHOLE[::-1].copy(), put)),
    Case("integers of 64 bits", lambda put: _rows(integers, 5, LONG, LONG[::-1].copy(), put)),
    Case("floats", lambda put: _rows(floats, 4, REAL, POSITIVE, put)),
    Case("floats of 64 bits", lambda put: _rows(floats, 4, WIDE, WIDE**2, put)),
    Case("functions", lambda put: _rows(functions, 6, POSITIVE, None, put), 1e-5),
    Case("f16", lambda put: _converted(cb.f16, put)),
    Case("bf16", lambda put: _converted(cb.bf16, put)),
    Case("i8", lambda put: _converted(cb.i8, put)),
    Case("lines", lambda put: _simple(lines, (1, 50), REAL, np.zeros(N, F), put), 1e-6),
    Case(
        "shared memory",
        lambda put: _simple(
            turned, (1, (16, 16)), np.resize(REAL, (16, 16)), np.zeros((16, 16), F), put
        ),
    ),
    Case("sums of planes", lambda put: _simple(summed, (2, 64), SMALL, np.zeros(2, np.int32), put)),
    Case("planes", lambda put: _simple(exchanged, (2, 64), SMALL, np.zeros(128, np.int32), put)),
    Case("atomics", _counted),
    Case("loops", lambda put: _simple(collatz, cb.over(N), WHOLE, np.zeros(N, np.int32), put)),
    Case("local memory", lambda put: _simple(sorted_locally, (1, 25), REAL, np.zeros(N, F), put)),
    Case("positions", _positions),
    Case("products of bytes", _dotted),
)
"""The language."""
