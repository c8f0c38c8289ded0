"""Random numbers where units work in planes: the numbers of `random`, several blocks a unit."""

from __future__ import annotations

from typing import Any

import cubepy as cb

STEPS = 4  # blocks of a unit, a cube's width apart: they share the keys of the rounds
MANY, LARGE = 16, 1 << 24  # and of normal numbers in f32, of at least so many (6 % faster)
UNITS = 128  # of a cube


def filled(
    out: cb.Array,
    p,
    seed: cb.u64,
    high: cb.u64,
    first: cb.u64,
    a,
    b,
    block_of: cb.Comptime,
    kind: cb.Comptime[str],
    each: cb.Comptime[int],
    steps: cb.Comptime[int],
):
    """out[i] = the element that its block gives, by `block_of`; a unit makes `steps` blocks of
    `each` elements.

    What lies behind the end is computed too: without a branch the blocks are worked on at the same
        time.
    """
    width = cb.CUBE_DIM * steps
    begin = cb.CUBE_POS * width + cb.UNIT_POS
    lines = ()
    for step in cb.unroll(range(steps)):
        block = begin + step * cb.CUBE_DIM
        count = first + cb.cast(block, cb.u64)
        lines = lines + (block_of(kind, out.dtype, seed, high, count, block * each, a, b, p),)
    if (cb.CUBE_POS + 1) * (width * each) <= out.size:
        for step in cb.unroll(range(steps)):
            out.store(begin * each + step * (cb.CUBE_DIM * each), lines[step])
    else:
        for step in cb.unroll(range(steps)):
            at = begin * each + step * (cb.CUBE_DIM * each)
            out.store(at, lines[step], valid=out.size - at)


fill_wide = cb.kernel(filled)
fill_ordinary = cb.kernel(fast_math=("nnan", "ninf"))(filled)
"""For normal numbers in f32: no square root is of NaN, infinity or of a number below 1e-8 that is
not 0.
"""


def fill(
    out: Any,
    p: Any,
    seed: int,
    high: int,
    first: int,
    a: Any,
    b: Any,
    block_of: Any,
    kind: str,
    each: int,
    where: Any,
) -> None:
    """Fill an array of rank 1 on the device `where`."""
    ordinary = kind == "normal" and each == 4
    steps = MANY if ordinary and out.size >= LARGE else STEPS
    cubes = -(-out.size // (UNITS * steps * each))
    kernel = fill_ordinary if ordinary else fill_wide
    kernel[cubes, UNITS](
        out, p, seed, high, first, a, b, block_of, kind, each, steps, mode="unchecked", device=where
    )
