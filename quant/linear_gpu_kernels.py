"""Kernels of linear layers with packed weights and float activations, for planes with matrix units.

The product is y = W x' with x' = x * input_scale, and W is the operand with sixteen rows, so that a panel of sixteen
channels is one fragment and eight columns of activations are the smallest piece. A code n becomes the float 128 + n
by placing its four bits into the mantissa of 128 (bf16), with one logical operation for a pair of codes. What the
128 adds is taken away where sums start: not at 0 but at -128 times the sum of the group's activations (-136 where
codes stand for n - 8). So nothing is rounded but activations, and sums as float32.

Activations become bf16 in one, two or three parts that add up to the value: one for bf16, two for f16, three for
f32 where columns are free. Weights lie as `cubepy.quant.gpu_weight` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb

CHUNK = 64
"""Inputs of one 16-byte load of a lane."""
PANEL = 16
COLUMNS = 8
"""Columns of activations of one fragment."""


@dataclass(frozen=True)
class PlaneBlueprint:
    """What changes the code of a product of planes.

    Attributes:
        rows: rows of activations where they are staged, else 0.
        parts: bf16 numbers that stand for one activation.
        tiles: fragments of eight columns.
        group: inputs that share a scale, or 0 (int8).
        symmetric: whether codes stand for n - 8 (int4).
        planes: planes of a cube; they share its panels, and each takes blocks of its own.
        panels: panels of a cube.
        depth: blocks of a plane that are under way.
        staged: where the cube rounds its few rows itself: for how many inputs there is room, else 0.
        eight: whether activations are bytes.
        bias, residual, activation: the epilogue.
        whole: whether rows of activations are whole lines of eight.
        early: whether the launch may begin before the one before it has ended: weights are fetched meanwhile.
    """

    rows: int
    parts: int
    tiles: int
    group: int
    symmetric: bool
    planes: int
    panels: int
    depth: int
    staged: int
    eight: bool = False
    bias: bool = False
    residual: bool = False
    activation: Any = None
    whole: bool = False
    early: bool = False

    @property
    def block(self) -> int:
        """Inputs that a plane takes at a time: whole groups and whole chunks."""
        return max(CHUNK, self.group)

    @property
    def width(self) -> int:
        """Inputs whose sum is taken."""
        return self.group or CHUNK

    @property
    def halves(self) -> int:
        """Pieces of four bits of a code."""
        return 1 if self.group else 2

    @property
    def loads(self) -> int:
        """16-byte loads of a lane for a block of a panel."""
        return self.block // CHUNK * self.halves

    @property
    def fact_words(self) -> int:
        """Words that say the scales (and minimums) of a lane's two channels, for a block."""
        return self.block // self.group * (1 if self.symmetric else 2) if self.group else 0

    @property
    def lines(self) -> int:
        """16-byte loads of a lane for a block of activations."""
        return 0 if self.staged else self.tiles * self.block // (64 if self.eight else 32)

    @property
    def starts(self) -> int:
        """Words of a block's sums of activations."""
        return 0 if self.staged or self.eight else self.tiles * COLUMNS * (self.block // self.width)

    @property
    def slot(self) -> int:
        """Pieces of 16 bytes of a block that is under way."""
        return 32 * (self.panels * self.loads + self.lines) + (8 * self.panels * self.fact_words + self.starts) // 4

    @property
    def turns(self) -> int:
        """How often every unit stages eight activations of a row."""
        return -(-self.staged // (8 * self.units))

    @property
    def columns(self) -> int:
        """Columns of activations that a cube keeps."""
        return self.rows * self.parts if self.staged else self.tiles * COLUMNS

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        staged = self.columns * (2 * self.staged + 64 + 4 * self.staged // self.width) if self.staged else 0
        return self.planes * (16 * self.depth * self.slot + 4 * self.panels * self.columns * PANEL) + staged

    @property
    def offset(self) -> float:
        """What the sums of activations are multiplied with, to take away what codes stand too high."""
        return -136.0 if self.group and self.symmetric else -128.0

    @property
    def units(self) -> int:
        """Units of a cube."""
        return 32 * self.planes


@cb.func
def line4(a, b, c, d):
    """A line of four numbers."""
    return cb.concat(cb.concat(cb.splat(a, 1), cb.splat(b, 1)), cb.concat(cb.splat(c, 1), cb.splat(d, 1)))


@cb.func
def code_fragment(word, magic):
    """Eight codes as a fragment of 128 + n; `magic` is 0x43004300, in a register so that `(w & m) | magic` is one."""
    parts = line4(word, word >> 4, word >> 8, word >> 12)
    return (parts & cb.splat(cb.u32(0x000F000F), 4)) | cb.splat(magic, 4)


@cb.func
def split(value, parts: cb.Comptime[int]):
    """Floats as `parts` lines of packed bf16 that add up to them."""
    out = ()
    for part in cb.unroll(range(parts)):
        words = cb.pack(value, cb.bf16)
        out = out + (words,)
        if part + 1 < parts:
            value = value - cb.unpack(words, cb.bf16)
    return out


@cb.func
def scaled(x, factors, row, k):
    """Eight activations times their factors, zero beyond the end."""
    depth = x.shape[1]
    factor = cb.cast(factors.load((k,), 8, valid=depth - k), cb.f32)
    return cb.cast(x.load((row, k), 8, valid=depth - k), cb.f32) * factor


@cb.kernel
def arrange_rows(
    x: cb.Array, factors: cb.Array, out: cb.Array, sums: cb.Array, offset: cb.f32, width: cb.Comptime[int],
    parts: cb.Comptime[int], early: cb.Comptime[bool] = False,
):  # fmt: skip
    """Activations as the fragments of a product, a plane for `width` inputs of eight columns.

    out[k / 32, tile, lane, 4 words]; sums[k / width, tile, column] = the bits of offset times the sum. Columns
    beyond the rows are zero.
    """
    if early:
        cb.start_next()
        cb.wait_previous()
    lane = cb.UNIT_POS_PLANE
    tiles = out.shape[1] // 128
    job = cb.ABSOLUTE_POS // 32
    group, tile = job // tiles, job % tiles
    if group < sums.shape[0]:
        column = tile * 8 + lane // 4
        row = column // parts
        total = cb.f32(0.0)
        for q in cb.unroll(range(width // 32)):
            k32 = group * (width // 32) + q
            words = cb.splat(cb.u32(0), 4)
            if row < x.shape[0]:
                pieces = split(scaled(x, factors, row, k32 * 32 + (lane & 3) * 8), parts)
                for part in cb.unroll(range(parts)):
                    if column % parts == part:
                        words = pieces[part]
            out.store((k32, tile * 128 + lane * 4), words)
            total = total + cb.unpack(words, cb.bf16).sum()
        total = total + cb.plane_shuffle_xor(total, 1)
        total = total + cb.plane_shuffle_xor(total, 2)
        if lane & 3 == 0:
            sums[group, tile * 8 + lane // 4] = cb.bitcast(total * offset, cb.u32)


@cb.func
def stage_loads(lines, gains, x, factors, plan):
    """Start loading the rows and their factors; nothing here waits for them."""
    last = x.shape[1] - 8
    for turn in cb.unroll(range(plan.turns)):
        k = cb.min((turn * plan.units + cb.UNIT_POS) * 8, last)
        gains[turn] = factors.load((k,), 8)
        for row in cb.unroll(range(plan.rows)):
            lines[turn * plan.rows + row] = x.load((row, k), 8)


@cb.func
def stage_rows(lines, gains, staged, sums, x, factors, plan):
    """Round the rows into shared memory, with offset times the sum of each group."""
    eighths = plan.staged // 8
    for turn in cb.unroll(range(plan.turns)):
        at = turn * plan.units + cb.UNIT_POS
        for row in cb.unroll(range(plan.rows)):
            if plan.whole:
                value = cb.cast(lines[turn * plan.rows + row], cb.f32) * cb.cast(gains[turn], cb.f32)
                if at * 8 >= x.shape[1]:
                    value = cb.splat(cb.f32(0.0), 8)
            else:
                value = scaled(x, factors, row, at * 8)
            pieces = split(value, plan.parts)
            for part in cb.unroll(range(plan.parts)):
                column = row * plan.parts + part
                total = cb.unpack(pieces[part], cb.bf16).sum()
                for step in cb.unroll(range(plan.width.bit_length() - 4)):
                    total = total + cb.plane_shuffle_xor(total, 1 << step)
                if at < eighths:
                    staged.store((column * (eighths + 4) + at) * 4, pieces[part])
                    if at % (plan.width // 8) == 0:
                        sums[column, at // (plan.width // 8)] = total * cb.f32(plan.offset)


@cb.kernel
def plane_product(
    x: cb.Array, factors: cb.Array, sums: cb.Array, words: cb.Array, facts: cb.Array, scales: cb.Array, bias,
    residual, out: cb.Array, gain: cb.f32, magic: cb.u32, blocks, panels, plan: cb.Comptime,
):  # fmt: skip
    """out = epilogue(gain * (x * factors) @ W.T); W is words with facts or, in int8, scales.

    Staged, x is (M, K) and sums is not read; else both are what `arrange_rows` makes. Everything else comes through a
    ring of blocks in shared memory, of which every lane copies what it reads.
    """
    lane = cb.UNIT_POS_PLANE
    plane = cb.PLANE_POS
    tiles, count = plan.tiles, plan.panels
    first = cb.CUBE_POS_X * count
    ring = cb.shared(plan.planes * plan.depth * plan.slot * 4, cb.u32)
    mine = plane * (plan.depth * plan.slot)
    if plan.early:
        cb.start_next()
    lines = cb.local((max(1, plan.turns * plan.rows),), x.dtype, lanes=8)
    gains = cb.local((max(1, plan.turns),), factors.dtype, lanes=8)
    # The first block, then the rows, so that these do not queue behind a whole ring.
    fetch_weights(ring, mine, words, facts, plane, blocks, panels, first, lane, plan)
    if plan.early:
        cb.wait_previous()
    fetch_rows(ring, mine, x, sums, plane, blocks, lane, plan)
    if plan.staged and plan.whole:
        stage_loads(lines, gains, x, factors, plan)
    for d in cb.unroll(range(1, plan.depth)):
        block = plane + d * plan.planes
        fetch(ring, mine + d * plan.slot, words, facts, x, sums, block, blocks, panels, first, lane, plan)
    staged = ring
    if plan.staged:
        staged = cb.shared(plan.columns * (plan.staged // 8 + 4) * 4, cb.u32)
        sums = cb.shared((plan.columns, plan.staged // plan.width), cb.f32)
        stage_rows(lines, gains, staged, sums, x, factors, plan)
        cb.sync_cube()
    total = cb.local((count, tiles), cb.f32, lanes=4)
    excess = cb.local((tiles,), cb.f32, lanes=4)
    for j in range(tiles):
        excess[j] = cb.splat(cb.f32(0.0), 4)
        for p in range(count):
            total[p, j] = cb.splat(cb.f32(0.0), 4)
    slot = 0
    for block in range(plane, blocks, plan.planes):
        cb.copy_async_wait(plan.depth - 1)
        cb.sync_plane()
        at = mine + slot * plan.slot
        multiply(total, excess, ring, staged, sums, at, block, lane, magic, plan)
        cb.sync_plane()
        fetch(ring, at, words, facts, x, sums, block + plan.depth * plan.planes, blocks, panels, first, lane, plan)
        slot = slot + 1
        if slot == plan.depth:
            slot = 0
    finish(total, excess, scales, bias, residual, out, gain, lane, plane, plan)


@cb.func
def fetch(ring, at, words, facts, x, sums, block, blocks, panels, first, lane, plan):
    """Start copying a block, if there is one, to piece `at` of the ring: codes, scales, activations, sums."""
    fetch_weights(ring, at, words, facts, block, blocks, panels, first, lane, plan)
    fetch_rows(ring, at, x, sums, block, blocks, lane, plan)


@cb.func
def fetch_weights(ring, at, words, facts, block, blocks, panels, first, lane, plan):
    """The codes and scales of a block."""
    if block < blocks:
        place = block * panels + first
        weights = plan.panels * plan.loads
        for c in cb.unroll(range(weights)):
            cb.copy_async(ring, (at + lane) * 4 + c * 128, words, (place * (plan.loads * 32) + lane) * 4 + c * 128, 16)
        pieces = 2 * plan.panels * plan.fact_words
        target = (at + (weights + plan.lines) * 32 + lane) * 4
        source = place * 8 * plan.fact_words + lane * 4
        for c in cb.unroll(range(0, pieces, 32)):
            if c + 32 <= pieces or lane < pieces - c:
                cb.copy_async(ring, target + c * 4, facts, source + c * 4, 16)


@cb.func
def fetch_rows(ring, at, x, sums, block, blocks, lane, plan):
    """The activations of a block and their sums, where they are not staged; ends the group of copies."""
    if block < blocks:
        at = at + plan.panels * plan.loads * 32
        if plan.lines > 0:
            per = plan.lines // plan.tiles
            for q in cb.unroll(range(per)):
                for j in range(plan.tiles):
                    source = (block * per + q, ((cb.CUBE_POS_Y * plan.tiles + j) * 32 + lane) * 4)
                    cb.copy_async(ring, (at + lane) * 4 + (q * plan.tiles + j) * 128, x, source, 16)
        if plan.starts > 0 and lane < 8:
            starts = (at + plan.lines * 32) * 4 + 8 * plan.panels * plan.fact_words
            copy_starts(ring, starts, sums, block, lane, plan)
    cb.copy_async_commit()


@cb.func
def copy_starts(ring, at, sums, block, lane, plan):
    """Sums of activations, one for each lane; a ring of words takes them as they are."""
    groups = plan.block // plan.width
    for g in cb.unroll(range(groups)):
        for j in range(plan.tiles):
            source = (block * groups + g, (cb.CUBE_POS_Y * plan.tiles + j) * 8 + lane)
            cb.copy_async(ring, at + (g * plan.tiles + j) * 8 + lane, sums, source, 4)


@cb.func
def activations(ring, staged, at, q, j, block, lane, plan):
    """The fragments of 32 inputs of a tile of columns: the words of two products."""
    if plan.staged:
        column = cb.min(lane // 8, plan.columns - 1)
        k32 = block * (plan.block // 32) + q
        return staged.load((column * (plan.staged // 8 + 4) + k32 * 4 + (lane & 3)) * 4, 4)
    return ring.load((at + lane + (plan.panels * plan.loads + q * plan.tiles + j) * 32) * 4, 4)


@cb.func
def start_of(ring, sums, at, g, j, block, lane, plan):
    """Where the sums of a group start, for each of a lane's four."""
    if plan.staged:
        return cb.splat(sums[cb.min(lane & 3, plan.columns - 1), block * (plan.block // plan.width) + g], 4)
    here = at * 4 + 128 * (plan.panels * plan.loads + plan.lines) + 8 * plan.panels * plan.fact_words
    two = cb.bitcast(ring.load(here + (g * plan.tiles + j) * 8 + (lane & 3) * 2, 2), cb.f32)
    return cb.concat(two, two)


@cb.func
def multiply(total, excess, ring, staged, sums, at, block, lane, magic, plan):
    """Add a block of every panel to the plane's sums."""
    tiles, halves, groups = plan.tiles, plan.halves, plan.block // plan.width
    steps = plan.width // 32
    # A start that is the same in all lanes costs three copies; adding it to the two sums that count, two additions.
    apart = plan.staged > 0
    base = cb.local((groups, tiles), cb.f32, lanes=4)
    part = cb.local((halves, tiles), cb.f32, lanes=4)
    b = cb.local((plan.block // 32, tiles), cb.u32, lanes=4)
    for q in cb.unroll(range(groups * steps)):
        for j in range(tiles):
            b[q, j] = activations(ring, staged, at, q, j, block, lane, plan)
    for g in cb.unroll(range(groups)):
        for j in range(tiles):
            base[g, j] = start_of(ring, sums, at, g, j, block, lane, plan)
            if plan.group == 0:
                excess[j] = excess[j] + base[g, j]
    for p in cb.unroll(range(plan.panels)):
        for g in cb.unroll(range(groups)):
            for h in cb.unroll(range(halves)):
                for j in range(tiles):
                    part[h, j] = cb.splat(cb.f32(0.0), 4) if apart else base[g, j]
                for q in cb.unroll(range(g * steps, (g + 1) * steps)):
                    four = ring.load((at + lane + (p * plan.loads + q // 2 * halves + h) * 32) * 4, 4)
                    for s in cb.unroll(range(2)):
                        a = code_fragment(four[q % 2 * 2 + s], magic)
                        for j in range(tiles):
                            part[h, j] = cb.mma(a, cb.slice_line(b[q, j], 2 * s, 2), part[h, j], cb.bf16)
            for j in range(tiles):
                first = part[0, j] + base[g, j] if apart else part[0, j]
                if plan.group > 0:
                    total[p, j] = cb.fma(fact(ring, at, p, g, 0, lane, plan), first, total[p, j])
                    if not plan.symmetric:
                        plain = base[g, j] * cb.f32(-1 / 128)
                        total[p, j] = cb.fma(fact(ring, at, p, g, 1, lane, plan), plain, total[p, j])
                else:
                    second = part[1, j] + base[g, j] if apart else part[1, j]
                    total[p, j] = cb.fma(cb.splat(cb.f32(16.0), 4), first, total[p, j]) + second


@cb.func
def fact(ring, at, p, g, which, lane, plan):
    """The scale (0) or minimum (1) of a group, for each of a lane's four sums."""
    here = at * 4 + 128 * (plan.panels * plan.loads + plan.lines) + (p * 8 + lane // 4) * plan.fact_words
    words = ring.load(here, plan.fact_words)
    both = cb.unpack(cb.slice_line(words, g if plan.symmetric else 2 * g + which, 1), cb.f16)
    return line4(both[0], both[0], both[1], both[1])


@cb.func
def finish(total, excess, scales, bias, residual, out, gain, lane, plane, plan):
    """Add the sums of the planes, in their order, and write the results."""
    tiles, count, columns = plan.tiles, plan.panels, plan.columns
    sums = cb.shared((plan.planes, count, columns, PANEL), cb.f32)
    for p in range(count):
        for j in range(tiles):
            value = total[p, j]
            if plan.group == 0:
                value = value + excess[j]
            for i in cb.unroll(range(4)):
                if plan.staged:
                    # Staged columns, at most four, lie two apart, so that a lane's odd sums need no arithmetic.
                    if i % 2 == 0 and lane & 3 < columns:
                        sums[plane, p, lane & 3, lane // 4 + i // 2 * 8] = value[i]
                else:
                    sums[plane, p, j * COLUMNS + (lane & 3) * 2 + i % 2, lane // 4 + i // 2 * 8] = value[i]
    cb.sync_cube()
    width = count * PANEL
    rows = columns // plan.parts
    left = cb.CUBE_POS_X * width
    top = cb.CUBE_POS_Y * rows
    here = cb.min(rows, out.shape[0] - top)
    for at in range(cb.UNIT_POS, here * width, plan.units):
        row, inside = at // width, at % width
        channel = left + inside
        if channel < out.shape[1]:
            result = cb.f32(0.0)
            for part in cb.unroll(range(plan.parts)):
                for k in range(plan.planes):
                    result = result + sums[k, inside // PANEL, row * plan.parts + part, inside % PANEL]
            result = result * gain
            if plan.group == 0:
                result = result * scales[channel]
            finish_one(result, bias, residual, out, top + row, channel, plan)


@cb.func
def finish_one(result, bias, residual, out, row, channel, plan):
    """The epilogue of one result: bias, activation, residual, store."""
    if plan.bias:
        result = result + cb.cast(bias[channel], cb.f32)
    if plan.activation is not None:
        result = plan.activation(result)
    if plan.residual:
        result = result + cb.cast(residual[row, channel], cb.f32)
    out[row, channel] = cb.cast(result, out.dtype)
