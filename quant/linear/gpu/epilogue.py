"""The ends of products of planes with packed weights: sums of planes, and of the cubes of a
cluster, become results.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.quant.linear.gpu.blueprint import COLUMNS, PANEL


@cb.func
def finish(buffer, sums, facts, weight_sums, scales, bias, residual, out, gain, lane, plane, plan):
    """Put a plane's sums where its blocks were, add up those of all planes, and write the results.

    Of activations in eight bits, `facts` and `weight_sums` say what a unit and a zero are worth;
    else they are None.
    """
    for p in range(plan.panels):
        for j in range(plan.tiles):
            words = cb.bitcast(sums[p, j], cb.u32)
            for i in cb.unroll(range(4)):
                channel = lane // 4 + i // 2 * 8
                column = j * COLUMNS + (lane & 3) * 2 + i % 2
                buffer[plane * plan.span * 4 + (p * plan.columns + column) * PANEL + channel] = (
                    words[i]
                )
    cb.sync_cube()
    rows = plan.columns // plan.parts
    top = cb.CUBE_POS_Y * rows
    here = cb.min(rows, out.shape[0] - top)
    write(buffer, top, here, facts, weight_sums, scales, bias, residual, out, gain, plan)


@cb.func
def write(buffer, top, rows, facts, weight_sums, scales, bias, residual, out, gain, plan):
    """Add the sums of the planes, in their order, and write `rows` rows of results from row `top`
    on.
    """
    width = plan.panels * PANEL
    for at in range(cb.UNIT_POS, rows * width, plan.units):
        row, inside = at // width, at % width
        channel = cb.CUBE_POS_X * width + inside
        if channel < out.shape[1]:
            index = (inside // PANEL * plan.columns + row * plan.parts) * PANEL + inside % PANEL
            if plan.eight:
                result = worth_of_bytes(
                    buffer, index, top + row, channel, facts, weight_sums, scales, plan
                )
            else:
                result = sum_of_planes(buffer, index, cb.f32, plan)
                for part in cb.unroll(range(1, plan.parts)):
                    result = result + sum_of_planes(buffer, index + part * PANEL, cb.f32, plan)
                result = result * gain
                if plan.group == 0:
                    result = result * scales[channel]
            finish_one(result, bias, residual, out, top + row, channel, plan)


@cb.func
def worth_of_bytes(buffer, index, row, channel, facts, weight_sums, scales, plan):
    """What a sum of bytes times codes is worth; in int8 it is exact until here."""
    scale, zero = facts[row, 0], facts[row, 1]
    if plan.group > 0:
        return (sum_of_planes(buffer, index, cb.f32, plan) - zero * weight_sums[channel]) * scale
    whole = (
        sum_of_planes(buffer, index, cb.i32, plan) - cb.cast(zero, cb.i32) * weight_sums[channel]
    )
    return cb.cast(whole, cb.f32) * (scale * scales[channel])


@cb.func
def exchange(buffer, total, scales, bias, residual, out, gain, lane, plane, plan):
    """The end of a cube of a cluster of two: each gives the other the sums of half of the channels
    and adds up its own.

    Sums of eight channels of a panel stay where the plane's blocks were; those of the other eight
    go to where the other cube expects them, so that one meeting is all that both wait for. A lane
    has a word of each line of 32.
    """
    tiles, rank = plan.tiles, cb.CLUSTER_POS
    landing, step = plan.landing
    if not plan.separate:
        cb.sync_cluster()
    for p in cb.unroll(range(plan.panels)):
        for j in cb.unroll(range(tiles)):
            words = cb.bitcast(total[p, j], cb.u32)
            for e in cb.unroll(range(2)):
                index = ((p * tiles + j) * 2 + e) * 32 + lane
                buffer[plane * plan.span * 4 + index] = cb.select(rank == 0, words[e], words[e + 2])
                other = cb.select(rank == 0, words[e + 2], words[e])
                cb.store_cluster(buffer, landing + plane * step + index, other, 1 - rank)
    cb.sync_cluster()
    for start in cb.unroll(range(0, plan.half, plan.units)):
        at = start + cb.UNIT_POS
        line, t, g = at >> 5, at >> 3 & 3, at & 7
        index = line * 32 + g * 4 + t
        row = (cb.CUBE_POS_Y * tiles + (line >> 1) % tiles) * COLUMNS + t * 2 + (line & 1)
        channel = (cb.CUBE_POS_X // 2 * plan.panels + (line >> 1) // tiles) * PANEL + rank * 8 + g
        if at < plan.half and row < out.shape[0] and channel < out.shape[1]:
            result, others = cb.f32(0.0), cb.f32(0.0)
            for k in cb.unroll(range(plan.planes)):
                result = result + cb.bitcast(buffer[k * plan.span * 4 + index], cb.f32)
                others = others + cb.bitcast(buffer[landing + k * step + index], cb.f32)
            result = (result + others) * gain
            if plan.group == 0:
                result = result * scales[channel]
            finish_one(result, bias, residual, out, row, channel, plan)


@cb.func
def sum_of_planes(buffer, index, dtype: cb.Comptime, plan):
    """A sum of the cube: those of its planes, in their order."""
    result = cb.bitcast(buffer[index], dtype)
    for k in cb.unroll(range(1, plan.planes)):
        result = result + cb.bitcast(buffer[k * plan.span * 4 + index], dtype)
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
