"""Random numbers where units work in planes: the numbers of `random`, several blocks a unit."""

from __future__ import annotations

from typing import Any

import cubepy as cb

STEPS = 2  # blocks of a unit, a cube's width apart: they share the keys of the rounds (4: uniform 8 % quicker)
UNITS = 128  # of a cube


@cb.kernel
def fill_wide(
    out: cb.Array, p, seed: cb.u64, high: cb.u64, first: cb.u64, a, b, block_of: cb.Comptime, kind: cb.Comptime[str],
    each: cb.Comptime[int], steps: cb.Comptime[int],
):  # fmt: skip
    """out[i] = the element that its block gives, by `block_of`; a unit makes `steps` blocks of `each` elements.

    What lies behind the end is computed too: without a branch the blocks are worked on at the same time.
    """
    hop = cb.CUBE_DIM * each
    begin = cb.CUBE_POS * (hop * steps) + cb.UNIT_POS * each
    for step in cb.unroll(range(steps)):
        at = begin + step * hop
        count = first + cb.cast(at // each, cb.u64)
        out.store(at, block_of(kind, out.dtype, seed, high, count, at, a, b, p))


def fill(
    out: Any, p: Any, seed: int, high: int, first: int, a: Any, b: Any, block_of: Any, kind: str, each: int, where: Any
) -> None:
    """Fill an array of rank 1 on the device `where`."""
    cubes = -(-out.size // (UNITS * STEPS * each))
    fill_wide[cubes, UNITS](out, p, seed, high, first, a, b, block_of, kind, each, STEPS, device=where)
