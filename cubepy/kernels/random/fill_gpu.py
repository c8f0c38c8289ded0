"""Random numbers where units work in planes: the numbers of `random`, several blocks a unit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.runtime import recording
from cubepy.tune import GpuRoutine

STEPS = 4  # blocks of a unit, a cube's width apart: they share the keys of the rounds
MANY, LARGE = 16, 1 << 24  # and of normal numbers in f32, of at least so many (6 % faster)
UNITS = 128  # of a cube


def filled(
    out: cb.Array,
    p,
    seed: cb.u64,
    high: cb.u64,
    first: cb.u64,
    ends,
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
        lines = lines + (
            block_of(kind, out.dtype, seed, high, count, block * each, ends[0], ends[1], p),
        )
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


class Fill(NamedTuple):
    """The numbers of a kind that `out` of rank 1 holds, `each` of a block.

    Attributes:
        p: chances, or None.
        state: the seed, the high half of the counter and the first block.
        ends: the two numbers of the distribution.
        device: where to launch.
    """

    out: Any
    p: Any
    state: Any
    ends: Any
    kind: str
    each: int
    device: Any


class Blocks(GpuRoutine):
    """A unit makes several blocks, each by `block_of`."""

    name = "blocks"

    def __init__(self, block_of: Any) -> None:
        self.block_of = block_of

    def launch(self, p: Fill, properties: cb.DeviceProperties) -> None:
        """State and ends are arguments of the launch, which is not repeated."""
        if isinstance(p.out, np.ndarray):
            recording.spoil()
        ordinary = p.kind == "normal" and p.each == 4
        steps = MANY if ordinary and p.out.size >= LARGE else STEPS
        cubes = -(-p.out.size // (UNITS * steps * p.each))
        kernel = fill_ordinary if ordinary else fill_wide
        how = (self.block_of, p.kind, p.each, steps)
        kernel[cubes, UNITS](
            p.out, p.p, *map(int, p.state), tuple(p.ends), *how, mode="unchecked", device=p.device
        )
