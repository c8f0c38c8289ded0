"""The gradients of attention on a CPU, block by block in the caches: no matrix of scores is
written.

A cube has a key head (or a part of its keys) to itself. For each block of keys it walks over the
queries that see them and makes the weights again from their log-sum-exp (Dao et al., 2022): five
products of a block, each as a tile in registers. What keys and values get stays on the stack until
the block is done; what queries get is added up in memory that no other cube writes. Parts of the
keys have sums of their own, which are added in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.config import config
from cubepy.kernels.attention.flash_lines import fill_rows
from cubepy.kernels.attention.problem import AttentionGradients
from cubepy.kernels.elementwise.map import map
from cubepy.kernels.elementwise.problem import identity
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.primitives.register_transpose import transpose_lines
from cubepy.kernels.reduce.reduce import sum as total_of
from cubepy.runtime import memory

F32 = np.dtype(np.float32)
PARTS = 16
"""Cubes in which a deterministic run divides all heads, whatever the cores, and parts of a head
at most.
"""
SIDE = 4  # keys of a tile of their sums


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        rows: query rows of a register tile.
        lines, lanes: of keys of a register tile.
        tiles: register tiles of a block of queries.
        depth_lines, width_lines: lines that hold a row of keys and of values.
        causal: a query sees keys up to its own position.
        mask: "none", "bool" (true: may look) or "float" (added to the scores).
    """

    rows: int
    lines: int
    lanes: int
    tiles: int
    depth_lines: int
    width_lines: int
    causal: bool
    mask: str

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return self.lines * self.lanes

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return self.rows * self.tiles


@cb.kernel
def attend_back(inputs, mask, found, scale: cb.f32, shared_heads, parts, plan: cb.Comptime):
    """found = dq[part, b, h], dk[b, g], dv[b, g]: the gradients of attention by its inputs; a cube
    does a part of the keys of a head.

    inputs: do, q, k, v, and for each query its log-sum-exp and do . out, `delta`.
    """
    do, q, k, v, lse, delta = inputs
    dq, dk, dv = found
    lanes, keys, block = plan.lanes, plan.keys, plan.queries
    length, depth, width, seen = q.shape[2], q.shape[3], v.shape[3], k.shape[2]
    part = cb.CUBE_POS % parts
    g = cb.CUBE_POS // parts % k.shape[1]
    b = cb.CUBE_POS // (parts * k.shape[1])
    columns = cb.shared((plan.depth_lines * lanes, keys), cb.f32)  # the keys, turned
    values = cb.shared((plan.width_lines * lanes, keys), cb.f32)
    own = cb.shared((keys, plan.depth_lines * lanes), cb.f32)
    queries = cb.shared((block, plan.depth_lines * lanes), cb.f32)
    grads = cb.shared((block, plan.width_lines * lanes), cb.f32)
    weights = cb.shared((block, keys), cb.f32)
    slopes = cb.shared((block, keys), cb.f32)
    key_sums = cb.shared((keys, plan.depth_lines * lanes), cb.f32)
    value_sums = cb.shared((keys, plan.width_lines * lanes), cb.f32)
    nothing = cb.splat(cb.f32(0.0), lanes)
    for s in range(shared_heads):
        for i in range(length):
            for d in range(0, depth, lanes):
                dq.store((part, b, g * shared_heads + s, i, d), nothing, valid=depth - d)
    blocks = (seen + keys - 1) // keys
    for k_block in range(part * blocks // parts, (part + 1) * blocks // parts):
        start = k_block * keys
        count = cb.min(keys, seen - start)
        transpose_keys(columns, k, b, g, start, depth, plan)
        transpose_keys(values, v, b, g, start, width, plan)
        fill_rows(own, k, b, g, start, count, keys, depth, plan.depth_lines, lanes)
        for j in range(keys):
            for d in cb.unroll(range(plan.depth_lines)):
                key_sums.store((j, d * lanes), nothing)
            for d in cb.unroll(range(plan.width_lines)):
                value_sums.store((j, d * lanes), nothing)
        for s in range(shared_heads):
            h = g * shared_heads + s
            for first in range(start // block * block if plan.causal else 0, length, block):
                here = cb.min(block, length - first)
                fill_rows(queries, q, b, h, first, here, block, depth, plan.depth_lines, lanes)
                fill_rows(grads, do, b, h, first, here, block, width, plan.width_lines, lanes)
                for row in range(0, here, plan.rows):
                    product_of(weights, queries, columns, row, depth, plan)
                    product_of(slopes, grads, values, row, width, plan)
                    for i in range(plan.rows):
                        query = cb.min(first + row + i, length - 1)
                        keys_of = Keys(mask, b, h, start, count)
                        slopes_of(weights, slopes, lse, delta, keys_of, row + i, query, scale, plan)
                add_turned(value_sums, weights, grads, here, plan.width_lines, plan)
                add_turned(key_sums, slopes, queries, here, plan.depth_lines, plan)
                for row in range(0, here, plan.rows):
                    at = (part, b, h, first)
                    add_to_queries(dq, at, slopes, row, here, own, count, depth, plan)
        for j in range(count):
            for d in cb.unroll(range(plan.depth_lines)):
                line = cb.cast(key_sums.load((j, d * lanes), lanes), dk.dtype)
                dk.store((b, g, start + j, d * lanes), line, valid=depth - d * lanes)
            for d in cb.unroll(range(plan.width_lines)):
                line = cb.cast(value_sums.load((j, d * lanes), lanes), dv.dtype)
                dv.store((b, g, start + j, d * lanes), line, valid=width - d * lanes)


@cb.func
def transpose_keys(columns, k, b, g, start, depth, plan):
    """columns[d, j] = k[b, g, start + j, d]; keys past the end repeat the last one and are masked
    later.
    """
    for j in range(0, plan.keys, plan.lanes):
        for d in range(0, depth, plan.lanes):
            lines = ()
            for r in cb.unroll(range(plan.lanes)):
                key = cb.min(start + j + r, k.shape[2] - 1)
                lines = lines + (
                    cb.cast(k.load((b, g, key, d), plan.lanes, valid=depth - d), cb.f32),
                )
            turned = transpose_lines(lines, plan.lanes)
            for c in cb.unroll(range(plan.lanes)):
                columns.store((d + c, j), turned[c])


@cb.func
def product_of(target, left, columns, row, depth, plan):
    """target[row + i, j] = left[row + i] . columns[:, j] for one register tile."""
    acc = cb.local((plan.rows, plan.lines), cb.f32, lanes=plan.lanes)
    b_lines = cb.local(plan.lines, cb.f32, lanes=plan.lanes)
    for i in range(plan.rows):
        for j in range(plan.lines):
            acc[i, j] = cb.splat(cb.f32(0.0), plan.lanes)
    for d in range(depth):
        for j in range(plan.lines):
            b_lines[j] = columns.load((d, j * plan.lanes), plan.lanes)
        for i in range(plan.rows):
            x = cb.splat(left[row + i, d], plan.lanes)
            for j in range(plan.lines):
                acc[i, j] = cb.fma(x, b_lines[j], acc[i, j])
    for i in range(plan.rows):
        for j in range(plan.lines):
            target.store((row + i, j * plan.lanes), acc[i, j])


@cb.struct
class Keys:
    """`count` keys of a head from `start` on, and the mask."""

    mask: Any
    b: Any
    h: Any
    start: Any
    count: Any


@cb.func
def slopes_of(weights, slopes, lse, delta, keys, i, query, scale, plan):
    """Row i: scores become weights, and gradients by weights become gradients by scores."""
    lanes = plan.lanes
    mask, b, h, start, count = keys.mask, keys.b, keys.h, keys.start, keys.count
    limit = count
    if plan.causal:
        limit = cb.min(count, query + 1 - start)
    found = lse[b, h, query]
    base = found if found != -float("inf") else cb.f32(0.0)
    less = delta[b, h, query]
    for j in cb.unroll(range(plan.lines)):
        score = weights.load((i, j * lanes), lanes) * scale
        allowed = cb.iota(lanes) < limit - j * lanes
        if plan.mask == "float":
            score = score + cb.cast(
                mask.load((b, h, query, start + j * lanes), lanes, valid=count - j * lanes), cb.f32
            )
        if plan.mask == "bool":
            allowed = allowed & mask.load(
                (b, h, query, start + j * lanes), lanes, valid=count - j * lanes
            )
        weight = cb.select(allowed, cb.exp(score - base), cb.splat(cb.f32(0.0), lanes))
        weights.store((i, j * lanes), weight)
        slope = weight * (slopes.load((i, j * lanes), lanes) - less) * scale
        slopes.store((i, j * lanes), cb.select(allowed, slope, cb.splat(cb.f32(0.0), lanes)))


@cb.func
def add_turned(sums, factors, rows, here, lines_of_row: cb.Comptime, plan):
    """sums[j] += sum over i of factors[i, j] * rows[i], for all keys j of the block."""
    lanes = plan.lanes
    for group in cb.unroll(range(0, lines_of_row, plan.lines)):
        lines = min(plan.lines, lines_of_row - group)
        acc = cb.local((SIDE, lines), cb.f32, lanes=lanes)
        b_lines = cb.local(lines, cb.f32, lanes=lanes)
        for j in range(0, plan.keys, SIDE):
            for c in range(SIDE):
                for d in range(lines):
                    acc[c, d] = sums.load((j + c, (group + d) * lanes), lanes)
            for i in range(here):
                for d in range(lines):
                    b_lines[d] = rows.load((i, (group + d) * lanes), lanes)
                for c in range(SIDE):
                    x = cb.splat(factors[i, j + c], lanes)
                    for d in range(lines):
                        acc[c, d] = cb.fma(x, b_lines[d], acc[c, d])
            for c in range(SIDE):
                for d in range(lines):
                    sums.store((j + c, (group + d) * lanes), acc[c, d])


@cb.func
def add_to_queries(dq, at, slopes, row, here, own, count, depth, plan):
    """dq[first + row + i] += slopes[row + i] @ keys of the block, for one register tile; `at`: the
    part, batch, head and first query.
    """
    part, b, h, first = at
    lanes = plan.lanes
    for group in cb.unroll(range(0, plan.depth_lines, plan.lines)):
        lines = min(plan.lines, plan.depth_lines - group)
        acc = cb.local((plan.rows, lines), cb.f32, lanes=lanes)
        b_lines = cb.local(lines, cb.f32, lanes=lanes)
        for i in range(plan.rows):
            for d in range(lines):
                acc[i, d] = cb.splat(cb.f32(0.0), lanes)
        for r in range(count):
            for d in range(lines):
                b_lines[d] = own.load((r, (group + d) * lanes), lanes)
            for i in range(plan.rows):
                x = cb.splat(slopes[row + i, r], lanes)
                for d in range(lines):
                    acc[i, d] = cb.fma(x, b_lines[d], acc[i, d])
        for i in cb.unroll(range(plan.rows)):
            if row + i < here:
                for d in cb.unroll(range(lines)):
                    to = (part, b, h, first + row + i, (group + d) * lanes)
                    left = depth - (group + d) * lanes
                    dq.store(to, dq.load(to, lanes, valid=left) + acc[i, d], valid=left)


@cb.kernel
def line_dots(
    a: cb.Array, b: cb.Array, dots: cb.Array, rows: cb.Comptime[int], lanes: cb.Comptime[int]
):
    """dots[n, h, i] = sum of a[n, h, i] * b[n, h, i]; a cube does `rows` rows of a head."""
    heads, length, width = a.shape[1], a.shape[2], a.shape[3]
    blocks = (length + rows - 1) // rows
    h = cb.CUBE_POS // blocks % heads
    n = cb.CUBE_POS // (blocks * heads)
    first = cb.CUBE_POS % blocks * rows
    for i in range(first, cb.min(first + rows, length)):
        total = cb.splat(cb.f32(0.0), lanes)
        for d in range(0, width, lanes):
            left = cb.cast(a.load((n, h, i, d), lanes, valid=width - d), cb.f32)
            total = cb.fma(
                left, cb.cast(b.load((n, h, i, d), lanes, valid=width - d), cb.f32), total
            )
        dots[n, h, i] = total.sum()


def gradients(p: AttentionGradients, properties: cb.DeviceProperties) -> tuple[Any, Any, Any]:
    """The gradients by queries, keys and values, and beside them memory like the queries for each
    part of the keys.

    Few heads on many cores are divided into parts of their keys.
    """
    q, k, v, lse = p.query, p.key, p.value, p.lse
    lanes = properties.register_bytes // 4
    rows, lines = (6, 4) if properties.vector_registers >= 32 else (6, 2)
    seen, heads = k.shape[2], k.shape[0] * k.shape[1]
    wanted = PARTS if config.deterministic else 2 * properties.cores
    parts = 1 if heads >= wanted else min(PARTS, -(-wanted // heads), -(-seen // (lines * lanes)))
    depth_lines, width_lines = -(-q.shape[3] // lanes), -(-v.shape[3] // lanes)
    plan = Blueprint(rows, lines, lanes, 8, depth_lines, width_lines, p.causal, p.kind)
    grad, q, k, v, out = (
        a if a.strides[3] == a.itemsize else copy(a) for a in (p.grad, q, k, v, p.result)
    )
    delta = memory.empty(lse.shape, F32)
    line_dots[math.prod(lse.shape[:2]) * -(-lse.shape[2] // 64), 1](
        grad, out, delta, 64, lanes, mode="unchecked"
    )
    sums = memory.empty((parts, *q.shape), F32)
    dk, dv = memory.empty(k.shape, k.dtype), memory.empty(v.shape, v.dtype)
    inputs, found = (grad, q, k, v, lse, delta), (sums, dk, dv)
    numbers = (float(p.scale), q.shape[1] // k.shape[1], parts)
    attend_back[heads * parts, 1](inputs, p.mask, found, *numbers, plan, mode="unchecked")
    dq = sums[0] if parts == 1 else total_of(sums, 0)
    return (dq if dq.dtype == q.dtype else map(identity, dq, dtype=q.dtype)), dk, dv
