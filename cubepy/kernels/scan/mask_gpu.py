"""Where masks hold, and what they select, on GPUs: one pass over the mask.

A cube looks at a tile of it and counts; what the tiles before it found is passed on as in scans
(`kernels/scan/scan_gpu.py`), and its own goes to shared memory first, so that neighbours write what
lies side by side.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.scan.problem import Mask
from cubepy.kernels.scan.scan_gpu import GROUP, before_plane, cleared, look_back, prefix_plane
from cubepy.tune import GpuRoutine

UNITS = 512
LANES = 16
TILE = UNITS * LANES
LEAST = 32


@cb.kernel
def select_tiles(
    mask: cb.Array, x, out: cb.Array, count: cb.Array, state, shape, group: cb.Comptime[int]
):
    """out[:, n] = the index of the n-th element of a mask that holds, along the axes of `shape`;
    or out[n] = x[i] for it, a row. A cube does a tile; `state` begins with 0, and is None for a
    single tile.
    """
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    size = cb.CUBE_DIM * LANES
    found = cb.shared(size, cb.u16)
    scratch = cb.shared(planes + 1, cb.i32)
    ticket = cb.shared(1, cb.i32)
    tile = 0
    tiles = 1
    if state is not None:
        if cb.UNIT_POS == 0:
            ticket[0] = cb.cast(cb.atomic_add(state, 0, cb.u64(1)), cb.i32)
        cb.sync_cube()
        tile = ticket[0]
        tiles = (mask.size + size - 1) // size
    first = tile * size
    mine = cb.UNIT_POS * LANES
    line = mask.load(first + mine, LANES, valid=mask.size - first - mine)
    own = cb.i32(0)
    for j in cb.unroll(range(LANES)):
        own += cb.select(line[j] != 0, cb.i32(1), cb.i32(0))
    ends = prefix_plane(own, f.add)
    if cb.UNIT_POS_PLANE == cb.PLANE_DIM - 1:
        scratch[cb.PLANE_POS] = ends
    cb.sync_cube()
    ahead, total = before_plane(scratch, cb.PLANE_POS, planes, f.add, 0, cb.i32)
    to = ahead + ends - own
    for j in cb.unroll(range(LANES)):
        if line[j] != 0:
            found[to] = cb.cast(mine + j, cb.u16)
            to += 1
    start = cb.i32(0)
    if state is not None:
        if cb.PLANE_POS == 0:
            earlier = look_back(state, 0, tile, tiles, total, f.add, cb.i32(0), group)
            if cb.UNIT_POS_PLANE == 0:
                scratch[planes] = earlier
    cb.sync_cube()
    if state is not None:
        start = scratch[planes]
    if x is None:
        for k in range(cb.UNIT_POS, total, cb.CUBE_DIM):
            index = cb.unravel(first + cb.cast(found[k], cb.i32), shape)
            for d in cb.unroll(range(len(shape))):
                out[d, start + k] = cb.cast(index[d], out.dtype)
    else:
        columns = x.shape[1]
        for e in range(cb.UNIT_POS, total * columns, cb.CUBE_DIM):
            k = e // columns
            out[start + k, e % columns] = x[first + cb.cast(found[k], cb.i32), e % columns]
    if tile == tiles - 1 and cb.UNIT_POS == 0:
        count[0] = cb.cast(start + total, cb.i64)


class Tiles(GpuRoutine):
    """A cube does a tile of the mask."""

    name = "tiles"

    def unfit(self, p: Mask, properties: cb.DeviceProperties) -> str | None:
        """Counts in 32 bits."""
        return None if p.mask.size < 1 << 31 else "for masks of fewer than 2^31 elements"

    def launch(self, p: Mask, properties: cb.DeviceProperties) -> None:
        """One tile needs no state."""
        tiles = -(-p.mask.size // TILE)
        state = None if tiles == 1 else cleared(1 + tiles + -(-tiles // GROUP))
        units = UNITS
        if tiles == 1:
            units = max(LEAST, properties.plane_size)
            while units * LANES < p.mask.size:
                units *= 2
        select_tiles[tiles, units](
            p.mask, p.x, p.out, p.count, state, p.shape, GROUP, mode="unchecked"
        )
