"""Radix sort of long rows where units work in planes: all digits are counted in one look, then one
pass a digit.

A pass neither counts nor scans first ("onesweep", Adinets and Merrill, 2022): a cube sorts a tile
by its digit and publishes how often it has every digit; where its keys go follows from what the
tiles before it published, either their own counts or the sums up to them. Cubes draw their tiles by
number, so those that a cube waits for are on their way. Flag and count share a word, so nothing
else has to be seen in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import cubepy as cb
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.kernels.scan.scan_gpu import prefix_plane
from cubepy.kernels.sort.keys import digit_of, from_key, key_at, to_key
from cubepy.kernels.sort.problem import Sort
from cubepy.kernels.sort.radix_cpu import passes_of
from cubepy.runtime import memory
from cubepy.tune import GpuRoutine

UNITS = 256  # of a cube: one for every digit


@dataclass(frozen=True)
class SweepPlan:
    """`items` keys a unit, ranked in groups of `sets`; `resident` cubes share a core."""

    items: int
    sets: int
    resident: int


KEYS = SweepPlan(32, 2, 2)
PAIRS = SweepPlan(32, 2, 2)
LONG_KEYS = SweepPlan(16, 2, 2)
"""What was fastest on an H200, of 12 to 32 keys a unit and 2 to 4 cubes a core: more keys beat more
cubes, since more neighbours go to neighbouring positions.
"""


@cb.kernel
def count_all_digits(
    x: cb.Array, seen: cb.Array, piece, keys: cb.Comptime, lanes: cb.Comptime[int]
):
    """seen[p, row, digit] += how often digit p of the keys of a piece of a row is this one."""
    passes = (keys.bits + 7) // 8
    here = cb.shared((passes, 256), cb.i32)
    n = x.shape[1]
    pieces = (n + piece - 1) // piece
    row = cb.CUBE_POS // pieces
    begin = cb.CUBE_POS % pieces * piece
    for p in cb.unroll(range(passes)):
        here[p, cb.UNIT_POS] = 0
    cb.sync_cube()
    stop = cb.min(begin + piece, n)
    hop = cb.CUBE_DIM * lanes
    for start in range(begin, stop, 4 * hop):
        i = multiple(start + cb.UNIT_POS * lanes, lanes)
        if start + 4 * hop <= stop:
            lines = ()
            for r in cb.unroll(range(4)):
                lines = lines + (to_key(x.load((row, i + r * hop), lanes), keys),)
            for r in cb.unroll(range(4)):
                for j in cb.unroll(range(lanes)):
                    for p in cb.unroll(range(passes)):
                        cb.atomic_add(here, (p, digit_of(lines[r][j], p * 8, 8)), 1)
        else:
            for k in range(start + cb.UNIT_POS, stop, cb.CUBE_DIM):
                key = to_key(x[row, k], keys)
                for p in cb.unroll(range(passes)):
                    cb.atomic_add(here, (p, digit_of(key, p * 8, 8)), 1)
    cb.sync_cube()
    for p in cb.unroll(range(passes)):
        n_here = here[p, cb.UNIT_POS]
        if n_here > 0:
            cb.atomic_add(seen, (p, row, cb.UNIT_POS), n_here)


@cb.func
def rank_keys(key, position, shift, masks, counts, plan):
    """position[j] = how many of the plane's keys before key[j] have its digit; counts[plane, digit]
    = how many have it.

    A lane sets its bit in the word of its digit; the lane of the lowest bit takes positions for all
    of them.
    """
    plane, lane = cb.PLANE_POS, cb.UNIT_POS_PLANE
    word = cb.u64 if cb.PLANE_DIM > 32 else cb.u32
    for d in cb.unroll(range(256 // cb.PLANE_DIM)):
        counts[plane, d * cb.PLANE_DIM + lane] = 0
    for d in cb.unroll(range(256 * plan.sets // cb.PLANE_DIM)):
        masks[plane, d * cb.PLANE_DIM + lane] = word(0)
    cb.sync_plane()
    mine = word(1) << cb.cast(lane, word)
    for j in cb.unroll(range(0, plan.items, plan.sets)):
        for s in cb.unroll(range(plan.sets)):
            cb.atomic_or(masks, (plane, s * 256 + digit_of(key[j + s], shift, 8)), mine)
        cb.sync_plane()
        same = ()
        for s in cb.unroll(range(plan.sets)):
            same = same + (masks[plane, s * 256 + digit_of(key[j + s], shift, 8)],)
        cb.sync_plane()
        taken = ()
        for s in cb.unroll(range(plan.sets)):
            d = digit_of(key[j + s], shift, 8)
            begin = 0
            if (same[s] & (mine - word(1))) == 0:
                begin = cb.atomic_add(counts, (plane, d), cb.cast(cb.popcount(same[s]), cb.i32))
                masks[plane, s * 256 + d] = word(0)
            cb.sync_plane()
            taken = taken + (begin,)
        for s in cb.unroll(range(plan.sets)):
            before = cb.cast(cb.popcount(same[s] & (mine - word(1))), cb.i32)
            position[j + s] = cb.plane_shuffle(taken[s], cb.cast(cb.ctz(same[s]), cb.i32)) + before


@cb.func
def before_unit(value, other, scratch):
    """The sums of two numbers over the units of the cube before this one."""
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    one, two = prefix_plane(value, f.add), prefix_plane(other, f.add)
    if cb.UNIT_POS_PLANE == cb.PLANE_DIM - 1:
        scratch[cb.PLANE_POS] = one
        scratch[planes + cb.PLANE_POS] = two
    cb.sync_cube()
    one = one - value
    two = two - other
    for w in cb.unroll(range(planes - 1)):
        if w < cb.PLANE_POS:
            one = one + scratch[w]
            two = two + scratch[planes + w]
    return one, two


@cb.func
def positions_before(state, digit_pass, t, p, start, count):
    """Where the keys of tile t, the p-th of its row, with this unit's digit go: publish, and ask
    the tiles before.

    A word of `state` is 0 until it is known, then the tile's count with the lower flag, then with
    the upper one the sum up to and with the tile.
    """
    word = state.dtype
    top = 8 * word.itemsize - 2
    own, whole = word(1 << top), word(2 << top)
    d = cb.UNIT_POS
    total = cb.cast(start, word)
    if p > 0:
        cb.atomic_add(state, (digit_pass, t, d), own | cb.cast(count, word))
        total = word(0)
        q = t - 1
        while q >= 0:
            found = cb.atomic_or(state, (digit_pass, q, d), word(0))
            if found >= own:
                total = total + (found & (own - word(1)))
                q = -1 if found >= whole else q - 1
        cb.atomic_add(state, (digit_pass, t, d), own + total)
    else:
        cb.atomic_add(state, (digit_pass, t, d), whole | (total + cb.cast(count, word)))
    return cb.cast(total, cb.i32)


@cb.kernel
def sweep(
    source,
    counted,
    found,
    digit_pass,
    tiles,
    keys: cb.Comptime,
    first: cb.Comptime[bool],
    last: cb.Comptime[bool],
    plan: cb.Comptime[SweepPlan],
):
    """out[row, position] = key (an element again in the last pass), with its index: one digit's
    pass over all rows.

    source: x, and indices or None; found: the same of the results. counted: the keys with each
    digit, the tiles that cubes have drawn, and what tiles say of their digits to those behind.
    """
    x, indices = source
    seen, drawn, state = counted
    out, out_indices = found
    if "mma" in cb.device_properties().features:
        cb.resident(plan.resident)
    wide = cb.u64 if keys.bits == 64 else cb.u32
    tile = cb.CUBE_DIM * plan.items
    planes = cb.CUBE_DIM // cb.PLANE_DIM
    word = cb.u64 if cb.PLANE_DIM > 32 else cb.u32  # a bit for every unit of a plane
    masks = cb.shared((planes, 256 * plan.sets), word)
    counts = cb.shared((planes, 256), cb.i32)
    starts = cb.shared(256, cb.i32)
    scratch = cb.shared(2 * planes, cb.i32)
    ticket = cb.shared(1, cb.i32)
    lined = cb.shared(tile, wide)
    order = cb.shared(tile if out_indices is not None else 1, cb.i32)
    key = cb.local(plan.items, wide)
    position = cb.local(plan.items, cb.i32)
    shift = digit_pass * 8
    plane, lane, unit = cb.PLANE_POS, cb.UNIT_POS_PLANE, cb.UNIT_POS
    if unit == 0:
        ticket[0] = cb.atomic_add(drawn, digit_pass, 1)
    cb.sync_cube()
    t = ticket[0]
    row = t // tiles
    p = t % tiles
    n = x.shape[1]
    begin = p * tile + plane * (cb.PLANE_DIM * plan.items) + lane
    if p * tile + tile <= n:
        for j in cb.unroll(range(plan.items)):
            key[j] = key_at(x, row, begin + j * cb.PLANE_DIM, keys, first)
    else:
        for j in cb.unroll(range(plan.items)):
            key[j] = wide(keys.ones)
            if begin + j * cb.PLANE_DIM < n:
                key[j] = key_at(x, row, begin + j * cb.PLANE_DIM, keys, first)
    rank_keys(key, position, shift, masks, counts, plan)
    cb.sync_cube()
    count = 0
    for w in cb.unroll(range(planes)):
        here = counts[w, unit]
        counts[w, unit] = count
        count = count + here
    ahead, start = before_unit(count, seen[digit_pass, row, unit], scratch)
    for w in cb.unroll(range(planes)):
        counts[w, unit] = counts[w, unit] + ahead
    beyond = cb.max(
        p * tile + tile - n, 0
    )  # keys that only fill the last tile: they have the last digit
    starts[unit] = (
        positions_before(state, digit_pass, t, p, start, count - (beyond if unit == 255 else 0))
        - ahead
    )
    cb.sync_cube()
    for j in cb.unroll(range(plan.items)):
        to = position[j] + counts[plane, digit_of(key[j], shift, 8)]
        lined[to] = key[j]
        if out_indices is not None:
            i = begin + j * cb.PLANE_DIM
            at = cb.cast(i, cb.i32)
            if not first:
                if i < n:
                    at = cb.cast(indices[row, i], cb.i32)
            order[to] = at
    cb.sync_cube()
    for j in cb.unroll(range(plan.items)):
        q = j * cb.CUBE_DIM + unit
        if p * tile + q < n:
            k = lined[q]
            to = starts[digit_of(k, shift, 8)] + q
            if out is not None:
                out[row, to] = cb.cast(from_key(k, keys), out.dtype) if last else k
            if out_indices is not None:
                out_indices[row, to] = cb.cast(order[q], out_indices.dtype)


def fitting(plan: SweepPlan, bits: int, pairs: bool, p: cb.DeviceProperties) -> SweepPlan:
    """The plan, with as few keys a unit as a cube's shared memory takes; `bits` of a key, and
    whether indices go with them.
    """
    planes = UNITS // p.plane_size
    digits = 256 * (planes * (max(4, p.plane_size // 8) * plan.sets + 4) + 4)
    of_an_item = UNITS * ((8 if bits == 64 else 4) + 4 * pairs)
    items = plan.items
    while items > plan.sets and digits + items * of_an_item + 1024 > p.max_shared_memory:
        items //= 2
    return replace(plan, items=items)


class Onesweep(GpuRoutine):
    """Radix passes over the whole row, each of which reads and writes once."""

    name = "onesweep"

    def launch(self, p: Sort, properties: cb.DeviceProperties) -> None:
        """A launch that counts, and one for every digit of eight bits."""
        x, values, indices, keys = p.source, p.target, p.indices, p.keys
        m, n = x.shape
        passes = -(-keys.bits // 8)
        plan = LONG_KEYS if keys.bits == 64 else KEYS if indices is None else PAIRS
        plan = fitting(plan, keys.bits, indices is not None, properties)
        tiles = -(-n // (UNITS * plan.items))
        word = np.dtype(np.uint32 if n < 1 << 30 else np.uint64)
        sizes = [4 * passes * m * 256, 1024, word.itemsize * passes * m * tiles * 256]
        zeros = memory.empty((sum(sizes),), np.uint8)
        zeros[...] = 0
        seen = zeros[: sizes[0]].view(np.int32).reshape(passes, m, 256)
        drawn = zeros[sizes[0] : sizes[0] + 4 * passes].view(np.int32)
        state = zeros[sizes[0] + sizes[1] :].view(word).reshape(passes, m * tiles, 256)
        lanes = line_of(x)
        line = 4 * UNITS * lanes
        cubes = max(1, min(-(-n // line), 8 * properties.cores // m))
        piece = -(-n // (cubes * line)) * line
        count_all_digits[m * -(-n // piece), UNITS](x, seen, piece, keys, lanes, mode="unchecked")
        for digit, (here, order, out, out_order, first, last) in enumerate(
            passes_of(x, values, indices, keys, 8)
        ):
            arrays = (here, order), (seen, drawn, state), (out, out_order)
            sweep[m * tiles, UNITS](
                *arrays, digit, tiles, keys, first, last, plan, mode="unchecked"
            )
