"""Attention of short sequences with narrow heads on a CPU: nothing is kept between kernels or
blocks, and no step goes across lanes.

Queries stand in the lanes of lines, one line for each position of a head, and keys and values are
read a number at a time. The gradients are two walks, each of which computes the weights again from
the log-sum-exp (Dao et al., 2022): one with queries in the lanes gives those by queries, one with
keys in the lanes those by keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.attention.problem import empty_like_heads
from cubepy.kernels.primitives.exponentials import LOG2_E, power_of_two
from cubepy.kernels.primitives.register_transpose import transpose_lines

WIDEST = 32  # positions of a head: as many lines are held for queries, results and gradients
QUAD = 4  # positions that are read and written as a line, if there are no others
KEYS = 64  # whose scores are kept
FORWARD, BACKWARD = 1024, 512  # keys times positions from which blocks of keys are quicker (Zen 5)


@dataclass(frozen=True)
class Blueprint:
    """What changes the code: lanes of a line, depth of keys, width of values, whether a query sees
    keys up to its own position only.
    """

    lanes: int
    depth: int
    width: int
    causal: bool


@cb.func
def turned(x, at, positions: cb.Comptime[int], lanes: cb.Comptime[int], factor):
    """Lines of x[b, h, i + lane, d] * factor for each of the positions d, (b, h, i) being `at`;
    past the end stands the last row.
    """
    b, h, first = at
    last = x.shape[2] - 1
    rows = tuple(cb.min(first + r, last) for r in cb.unroll(range(lanes)))
    if positions % QUAD == 0:
        lines = ()
        for d in cb.unroll(range(0, positions, QUAD)):
            lines = lines + tuple(line * factor for line in cb.unroll(quad(x, b, h, rows, d)))
        return lines
    return tuple(
        cb.line(*tuple(cb.cast(x[b, h, i, d], cb.f32) for i in cb.unroll(rows))) * factor
        for d in cb.unroll(range(positions))
    )


def all_of(lanes: int) -> tuple[int, ...]:
    """The lanes of two lines, one line after the other."""
    return tuple(range(2 * lanes))


@cb.func
def quad(x, b, h, rows, d):
    """Lines of x[b, h, rows, d + n] for n < 4: a line of four is read for each row, and squares of
    them are transposed.
    """
    parts = ()
    for r in cb.unroll(range(0, len(rows), QUAD)):
        loaded = tuple(
            cb.cast(x.load((b, h, rows[r + n], d), QUAD), cb.f32) for n in cb.unroll(range(QUAD))
        )
        parts = parts + transpose_lines(loaded, QUAD)
    if len(rows) == QUAD:
        return parts
    pairs = side_by_side(parts, QUAD)
    return pairs if len(rows) == 2 * QUAD else side_by_side(pairs, 2 * QUAD)


@cb.func
def side_by_side(parts, lanes: cb.Comptime[int]):
    """Lines of `lanes`, each beside that of the next rows: half as many."""
    at = tuple(n // QUAD * 2 * QUAD + n % QUAD for n in cb.unroll(range(len(parts) // 2)))
    return tuple(cb.shuffle(parts[n], parts[n + QUAD], all_of(lanes)) for n in cb.unroll(at))


@cb.func
def write_quad(x, at, d, lines, lanes: cb.Comptime[int]):
    """x[b, h, i + lane, d + n] = lines[n]."""
    b, h, first = at
    for r in cb.unroll(range(0, lanes, QUAD)):
        four = tuple(range(r, r + QUAD))
        square = transpose_lines(
            tuple(cb.shuffle(line, line, four) for line in cb.unroll(lines)), QUAD
        )
        for i in cb.unroll(range(QUAD)):
            if first + r + i < x.shape[2]:
                x.store((b, h, first + r + i, d), cb.cast(square[i], x.dtype))


@cb.func
def write_turned(x, at, sums, factor, lanes: cb.Comptime[int]):
    """x[b, h, i + lane, d] = sums[d] * factor."""
    b, h, first = at
    if len(sums) % QUAD == 0:
        for d in cb.unroll(range(0, len(sums), QUAD)):
            lines = tuple(sums[d + n] * factor for n in cb.unroll(range(QUAD)))
            write_quad(x, at, d, lines, lanes)
        return
    for r in cb.unroll(range(lanes)):
        if first + r < x.shape[2]:
            for d in cb.unroll(range(len(sums))):
                x[b, h, first + r, d] = cb.cast((sums[d] * factor)[r], x.dtype)


@cb.func
def product(lines, x, b, h, i):
    """The sum over d of lines[d] * x[b, h, i, d]."""
    acc = lines[0] * cb.cast(x[b, h, i, 0], cb.f32)
    for d in cb.unroll(range(1, len(lines))):
        acc = cb.fma(cb.splat(cb.cast(x[b, h, i, d], cb.f32), acc.lanes), lines[d], acc)
    return acc


@cb.func
def add_product(sums, weight, x, b, h, i, n: cb.Comptime[int]):
    """sums[d] += weight * x[b, h, i, d]."""
    for d in cb.unroll(range(n)):
        sums[d] = cb.fma(cb.splat(cb.cast(x[b, h, i, d], cb.f32), weight.lanes), weight, sums[d])


@cb.func
def clear(sums, n: cb.Comptime[int], lanes: cb.Comptime[int]):
    """Zeros."""
    for d in cb.unroll(range(n)):
        sums[d] = cb.splat(cb.f32(0.0), lanes)


@cb.kernel
def attend(
    q: cb.Array,
    k: cb.Array,
    v: cb.Array,
    out: cb.Array,
    lse,
    scale: cb.f32,
    shared_heads,
    plan: cb.Comptime,
):
    """out[b, h, i] = sum over j of softmax(scale * q[b, h, i] . k[b, g, j]) * v[b, g, j], with g =
    h // shared_heads; a cube does a head.
    """
    lanes, depth, width = plan.lanes, plan.depth, plan.width
    b, h = cb.unravel(cb.CUBE_POS, (q.shape[0], q.shape[1]))
    g = h // shared_heads
    weights = cb.local(KEYS, cb.f32, lanes=lanes)
    sums = cb.local(width, cb.f32, lanes=lanes)
    for first in range(0, q.shape[2], lanes):
        query = turned(q, (b, h, first), depth, lanes, scale * LOG2_E)
        seen = cb.min(k.shape[2], first + lanes) if plan.causal else k.shape[2]
        top = cb.splat(-cb.f32(float("inf")), lanes)
        for j in range(seen):
            score = product(query, k, b, g, j)
            if plan.causal:
                score = cb.select(cb.iota(lanes) >= j - first, score, -float("inf"))
            weights[j] = score
            top = cb.select(top > score, top, score)
        base = cb.select(top == -float("inf"), 0.0, top)
        total = cb.splat(cb.f32(0.0), lanes)
        clear(sums, width, lanes)
        for j in range(seen):
            weight = power_of_two(weights[j] - base)
            total = total + weight
            add_product(sums, weight, v, b, g, j, width)
        if lse is not None:
            found = cb.select(total == 0.0, top, (base + cb.log2(total)) / LOG2_E)
            lse.store((b, h, first), found, valid=q.shape[2] - first)
        inverse = cb.select(total == 0.0, 0.0, 1.0 / total)
        write_turned(out, (b, h, first), sums, inverse, lanes)


@cb.kernel
def attend_back(inputs, found, scale: cb.f32, shared_heads, plan: cb.Comptime):
    """The gradients of `attend` by queries, keys and values; a cube does a head of keys and those
    of the queries that share it. `inputs`: grad, q, k, v, out, lse; `found`: dq, dk, dv.

    With weights p and s = p * (grad . v - grad . out): dq = scale * s k, dk = scale * s^T q, dv =
    p^T grad.
    """
    q, k = inputs[1], inputs[2]
    b, g = cb.unravel(cb.CUBE_POS, (k.shape[0], k.shape[1]))
    for h in range(g * shared_heads, (g + 1) * shared_heads):
        for first in range(0, q.shape[2], plan.lanes):
            by_queries(inputs, found, scale, (b, h, g), first, plan)
    for first in range(0, k.shape[2], plan.lanes):
        by_keys(inputs, found, scale, (b, g, shared_heads), first, plan)


@cb.func
def by_queries(inputs, found, scale, head, first, plan):
    """The gradients by the queries of a line."""
    grad, q, k, v, out, lse = inputs
    lanes = plan.lanes
    b, h, g = head
    query = turned(q, (b, h, first), plan.depth, lanes, scale * LOG2_E)
    wanted = turned(grad, (b, h, first), plan.width, lanes, cb.f32(1.0))
    given = turned(out, (b, h, first), plan.width, lanes, cb.f32(1.0))
    mean = wanted[0] * given[0]
    for d in cb.unroll(range(1, plan.width)):
        mean = cb.fma(wanted[d], given[d], mean)
    logs = lse.load((b, h, first), lanes, valid=q.shape[2] - first)
    logs = cb.select(logs == -float("inf"), float("inf"), logs * LOG2_E)
    sums = cb.local(plan.depth, cb.f32, lanes=lanes)
    clear(sums, plan.depth, lanes)
    seen = cb.min(k.shape[2], first + lanes) if plan.causal else k.shape[2]
    for j in range(seen):
        weight = power_of_two(product(query, k, b, g, j) - logs)
        if plan.causal:
            weight = cb.select(cb.iota(lanes) >= j - first, weight, 0.0)
        slope = weight * (product(wanted, v, b, g, j) - mean)
        add_product(sums, slope, k, b, g, j, plan.depth)
    write_turned(found[0], (b, h, first), sums, cb.splat(scale, lanes), lanes)


@cb.func
def by_keys(inputs, found, scale, head, first, plan):
    """The gradients by the keys and values of a line."""
    grad, q, k, v, out, lse = inputs
    lanes = plan.lanes
    b, g, shared_heads = head
    key = turned(k, (b, g, first), plan.depth, lanes, scale * LOG2_E)
    value = turned(v, (b, g, first), plan.width, lanes, cb.f32(1.0))
    sums = cb.local(plan.depth, cb.f32, lanes=lanes)
    values = cb.local(plan.width, cb.f32, lanes=lanes)
    clear(sums, plan.depth, lanes)
    clear(values, plan.width, lanes)
    for h in range(g * shared_heads, (g + 1) * shared_heads):
        for i in range(first if plan.causal else 0, q.shape[2]):
            mean = cb.f32(0.0)
            for d in cb.unroll(range(plan.width)):
                mean = mean + cb.cast(grad[b, h, i, d], cb.f32) * cb.cast(out[b, h, i, d], cb.f32)
            log = lse[b, h, i]
            log = float("inf") if log == -float("inf") else log * LOG2_E
            weight = power_of_two(product(key, q, b, h, i) - log)
            if plan.causal:
                weight = cb.select(cb.iota(lanes) <= i - first, weight, 0.0)
            slope = weight * (product(value, grad, b, h, i) - mean)
            add_product(sums, slope, q, b, h, i, plan.depth)
            add_product(values, weight, grad, b, h, i, plan.width)
    write_turned(found[1], (b, g, first), sums, cb.splat(scale, lanes), lanes)
    write_turned(found[2], (b, g, first), values, cb.splat(cb.f32(1.0), lanes), lanes)


def unfit(depth: int, width: int, keys: int, kind: str, most: int) -> str | None:
    """Why arrays of these lengths are not for this, or None; `most`: keys times positions."""
    if kind != "none":
        return "without a mask"
    wide = max(depth, width)
    if wide > WIDEST or keys > KEYS or wide * keys > most:
        return f"for {KEYS} keys and {WIDEST} positions at most, and {most} of both multiplied"
    return None


def plan_for(q: Any, k: Any, v: Any, causal: bool, p: cb.DeviceProperties) -> Blueprint:
    """The blueprint: shorter lines where longer ones would stay empty."""
    lanes = p.register_bytes // 4
    while lanes > 4 and 2 * max(q.shape[2], k.shape[2]) <= lanes:
        lanes //= 2
    return Blueprint(lanes, q.shape[3], v.shape[3], causal)


def launch(
    q: Any, k: Any, v: Any, out: Any, lse: Any, causal: bool, scale: float, p: cb.DeviceProperties
) -> None:
    """The attention, and its log-sum-exp if `lse` is there."""
    plan = plan_for(q, k, v, causal, p)
    shared = q.shape[1] // k.shape[1]
    attend[q.shape[0] * q.shape[1], 1](q, k, v, out, lse, scale, shared, plan, mode="unchecked")


def gradients(
    inputs: tuple[Any, ...], causal: bool, scale: float, p: cb.DeviceProperties
) -> tuple[Any, Any, Any]:
    """The gradients by queries, keys and values; `inputs`: grad, q, k, v, out, lse."""
    _, q, k, v, *_ = inputs
    plan = plan_for(q, k, v, causal, p)
    made = tuple(empty_like_heads(x, x.shape, x.dtype) for x in (q, k, v))
    attend_back[k.shape[0] * k.shape[1], 1](
        inputs, made, scale, q.shape[1] // k.shape[1], plan, mode="unchecked"
    )
    return made[0], made[1], made[2]
