"""The end of a tile on Hopper: from registers through shared memory to the array, with the bias and
the residual on the way.

Sums lie in registers as matrix units leave them. A plane puts 16 rows of a box into shared memory,
in the order that the copy engine swizzles, and the engine writes the box; where the result's rows
are not aligned, the plane writes it itself.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.epilogue import ended
from cubepy.kernels.primitives.pipeline import BLOCK, GROUP, ROW_BYTES

PLANE_ROWS = 16
"""Rows of the result that a plane holds of each instruction."""
BUFFERS = 2
"""Boxes of a plane in shared memory."""


@cb.struct
class TileEpilogue:
    """out = activation(alpha * sums + bias) + residual for the tiles of a consumer, or with the
    residual where the blueprint has it `joined`.

    `out` and `residual` are maps of boxes of 16 rows of `ROW_BYTES`, or `out` is an array if the
    blueprint is `plain`. `staging` holds two boxes for each plane, `shift` the bias of a tile for
    each consumer, and barrier `arrived` of a box says that its residual has come.
    """

    out: Any
    bias: Any
    residual: Any
    alpha: Any
    staging: Any
    shift: Any
    arrived: Any
    blueprint: cb.Comptime[Any]

    def load_bias(self, consumer, column):
        """The tile's part of the bias to shared memory; before the products, which hide its way."""
        bias, columns = self.bias, self.blueprint.columns
        cb.sync_group(consumer + 1, GROUP)
        for k in range(cb.UNIT_POS % GROUP, columns, GROUP):
            value = 0.0
            if column + k < bias.shape[0]:
                value = cb.cast(bias[column + k], cb.f32)
            self.shift[consumer * columns + k] = value
        cb.sync_group(consumer + 1, GROUP)

    def write(self, acc, consumer, start, done):
        """Write a consumer's rows of a tile, box by box; two buffers take turns.

        `start`: the batch, the first row and column. A residual comes the opposite way: its box is
        brought to where the result's box will stand. `done` counts the tiles that this consumer
        wrote before; it says the parity of `arrived`.
        """
        batch, row, column = start
        staging, blueprint = self.staging, self.blueprint
        lane = cb.UNIT_POS_PLANE
        plane = cb.PLANE_POS % 4
        width = ROW_BYTES // staging.dtype.itemsize
        count = blueprint.share // BLOCK * (blueprint.columns // width)
        start = batch, row + plane * PLANE_ROWS, column
        if blueprint.residual:
            if blueprint.plain:
                cb.fence_async()
                cb.sync_plane()
            if lane == 0:
                cb.tma_wait(0)
                for n in cb.unroll(range(min(BUFFERS, count))):
                    self.load_residual(consumer, plane, start, n)
        for n in cb.unroll(range(count)):
            down, right, buffer, at = self.box(n, consumer, plane)
            if blueprint.residual:
                parity = (done * ((count + 1 - n % BUFFERS) // BUFFERS) + n // BUFFERS) % 2
                cb.barrier_wait(self.arrived, buffer, parity)
            elif blueprint.plain:
                cb.sync_plane()
            else:
                if lane == 0:  # of an odd number, the last and the next first one share a buffer
                    cb.tma_wait(1 - count % BUFFERS)
                cb.sync_plane()
            for j in cb.unroll(range(width // 16)):
                first = (down * blueprint.columns // BLOCK + right + j * 16) // 2
                self.stage(acc, first, at, j, consumer * blueprint.columns + right + j * 16)
            if blueprint.plain:
                cb.sync_plane()
                self.write_box(at, (batch, start[1] + down, column + right))
                if blueprint.residual and n + BUFFERS < count:
                    cb.fence_async()
                    cb.sync_plane()
                    if lane == 0:
                        self.load_residual(consumer, plane, start, n + BUFFERS)
            else:
                cb.fence_async()
                cb.sync_plane()
                if lane == 0:
                    cb.tma_store(self.out, (batch, start[1] + down, column + right), staging, at)
                    cb.tma_commit()
                    if blueprint.residual and n + BUFFERS < count:
                        cb.tma_wait(0)
                        self.load_residual(consumer, plane, start, n + BUFFERS)

    def box(self, n, consumer, plane):
        """Where a plane's box `n` stands: rows down and columns right in its tile, its buffer, and
        that one's start.
        """
        width = ROW_BYTES // self.staging.dtype.itemsize
        boxes = self.blueprint.columns // width
        buffer = (consumer * BUFFERS + n % BUFFERS) * 4 + plane
        return n // boxes * BLOCK, n % boxes * width, buffer, buffer * PLANE_ROWS * width

    def load_residual(self, consumer, plane, start, n):
        """Start bringing box `n` of the residual; `start` is the plane's in the result."""
        batch, top, column = start
        down, right, buffer, at = self.box(n, consumer, plane)
        cb.barrier_expect(self.arrived, buffer, PLANE_ROWS * ROW_BYTES)
        cb.tma_load(
            self.staging,
            at,
            self.residual,
            (batch, top + down, column + right),
            self.arrived,
            buffer,
        )

    def stage(self, acc, first, at, j, left):
        """16 rows by 16 columns, eight elements a unit, to their swizzled position in shared
        memory: pairs in rows r and r + 8 at one column, then the same 8 columns on, as matrix units
        lay them out.

        `first`: the unit's first sum. `at`: of the box in shared memory, of which these are columns
        16 j and on. `left`: where their bias begins.
        """
        staging, shift, blueprint = self.staging, self.shift, self.blueprint
        lane = cb.UNIT_POS_PLANE
        width = ROW_BYTES // staging.dtype.itemsize
        value = acc.load(first, 8)
        if blueprint.scaled:
            value = value * self.alpha
        if blueprint.bias:
            one = shift.load(left + lane % 4 * 2, 2)
            two = shift.load(left + lane % 4 * 2 + 8, 2)
            value = value + cb.concat(cb.concat(one, one), cb.concat(two, two))
        function, joined = blueprint.activation, blueprint.joined
        if function is not None and not (blueprint.residual and joined == "add"):
            value = function(value)
            function = None
        if staging.dtype.itemsize == 2:
            to = at + lane % 16 * width + ((2 * j + lane // 16) ^ (lane % 8)) * 8
            if blueprint.residual:
                other = cb.unpack(cb.load_matrix(staging, to, 4), staging.dtype)
                value = ended(value, other, function, joined)
            cb.store_matrix(staging, to, cb.pack(value, staging.dtype))
        else:
            for piece in cb.unroll(range(4)):
                row = lane // 4 + piece % 2 * 8
                block = 4 * j + piece // 2 * 2 + lane % 4 // 2
                to = at + row * width + (block ^ (lane // 4)) * 4 + lane % 2 * 2
                pair = cb.slice_line(value, 2 * piece, 2)
                if blueprint.residual:
                    pair = ended(pair, staging.load(to, 2), function, joined)
                staging.store(to, cb.cast(pair, staging.dtype))

    def write_box(self, at, start):
        """16 rows of a box from shared memory, where they are swizzled, to rows of any
        alignment; a box that is inside the result has all its stores under way at once.
        """
        batch, row, column = start
        out, lanes = self.out, self.blueprint.plain
        width = ROW_BYTES // self.staging.dtype.itemsize
        lane = cb.UNIT_POS_PLANE * lanes
        if row + PLANE_ROWS <= out.shape[1] and column + width <= out.shape[2]:
            for first in cb.unroll(range(0, width, lanes * cb.PLANE_DIM)):
                for r in cb.unroll(range(PLANE_ROWS)):
                    value = self.staged(at, r, first + lane, lanes)
                    out.store((batch, row + r, column + first + lane), value)
        else:
            for r in cb.unroll(range(PLANE_ROWS)):
                if row + r < out.shape[1]:
                    for first in cb.unroll(range(0, width, lanes * cb.PLANE_DIM)):
                        k = column + first + lane
                        value = self.staged(at, r, first + lane, lanes)
                        out.store((batch, row + r, k), value, valid=out.shape[2] - k)

    def staged(self, at, r, k, lanes):
        """Neighbours of a row of a box in shared memory, where they are swizzled."""
        width, block = ROW_BYTES // self.staging.dtype.itemsize, 16 // self.staging.dtype.itemsize
        return self.staging.load(at + r * width + (k // block ^ (r % 8)) * block + k % block, lanes)
