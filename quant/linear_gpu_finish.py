"""The ends of products of planes with packed weights: sums of planes, and of the cubes of a cluster, become results."""

from __future__ import annotations

import cubepy as cb
from cubepy.quant.linear_gpu_blueprint import COLUMNS, PANEL


@cb.func
def finish(ring, total, excess, scales, bias, residual, out, gain, lane, plane, plan):
    """Add the sums of the planes, in their order, and write the results; each plane's are where its blocks were."""
    tiles, count, columns = plan.tiles, plan.panels, plan.columns
    for p in range(count):
        for j in range(tiles):
            value = total[p, j]
            if plan.group == 0:
                value = value + excess[j]
            words = cb.bitcast(value, cb.u32)
            for i in cb.unroll(range(4)):
                channel = lane // 4 + i // 2 * 8
                column = j * COLUMNS + (lane & 3) * 2 + i % 2
                ring[plane * plan.span * 4 + (p * columns + column) * PANEL + channel] = words[i]
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
                place = (inside // PANEL * columns + row * plan.parts + part) * PANEL + inside % PANEL
                result = result + sum_of_planes(ring, place, plan)
            result = result * gain
            if plan.group == 0:
                result = result * scales[channel]
            finish_one(result, bias, residual, out, top + row, channel, plan)


@cb.func
def exchange(ring, total, excess, bias, residual, out, gain, scales, lane, plane, plan):
    """The end of a cube of a cluster of two: each gives the other the sums of half of the channels and adds up its own.

    Sums of eight channels of a panel stay where the plane's blocks were; those of the other eight go to where the
    other cube expects them, so that one meeting is all that both wait for. A lane has a word of each line of 32.
    """
    tiles, rank = plan.tiles, cb.CLUSTER_POS
    landing, step = plan.landing
    if not plan.apart:
        cb.sync_cluster()
    for p in cb.unroll(range(plan.panels)):
        for j in cb.unroll(range(tiles)):
            value = total[p, j]
            if plan.group == 0:
                value = value + excess[j]
            words = cb.bitcast(value, cb.u32)
            for e in cb.unroll(range(2)):
                place = ((p * tiles + j) * 2 + e) * 32 + lane
                ring[plane * plan.span * 4 + place] = cb.select(rank == 0, words[e], words[e + 2])
                other = cb.select(rank == 0, words[e + 2], words[e])
                cb.store_cluster(ring, landing + plane * step + place, other, 1 - rank)
    cb.sync_cluster()
    for turn in cb.unroll(range(0, plan.half, plan.units)):
        at = turn + cb.UNIT_POS
        line, t, g = at >> 5, at >> 3 & 3, at & 7
        place = line * 32 + g * 4 + t
        row = (cb.CUBE_POS_Y * tiles + (line >> 1) % tiles) * COLUMNS + t * 2 + (line & 1)
        channel = (cb.CUBE_POS_X // 2 * plan.panels + (line >> 1) // tiles) * PANEL + rank * 8 + g
        if at < plan.half and row < out.shape[0] and channel < out.shape[1]:
            result, others = cb.f32(0.0), cb.f32(0.0)
            for k in cb.unroll(range(plan.planes)):
                result = result + cb.bitcast(ring[k * plan.span * 4 + place], cb.f32)
                others = others + cb.bitcast(ring[landing + k * step + place], cb.f32)
            result = (result + others) * gain
            if plan.group == 0:
                result = result * scales[channel]
            finish_one(result, bias, residual, out, row, channel, plan)


@cb.func
def sum_of_planes(ring, place, plan):
    """A sum of the cube: those of its planes, in their order."""
    result = cb.f32(0.0)
    for k in cb.unroll(range(plan.planes)):
        result = result + cb.bitcast(ring[k * plan.span * 4 + place], cb.f32)
    return result


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
