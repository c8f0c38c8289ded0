"""Products with matrices that are picked out of a stack; what they are for: `picked`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.models.packed.nbits_kernels import Blueprint as Codes
from cubepy.models.packed.nbits_kernels import weights_at

ROWS = 16
"""Rows of a matrix that a cube does."""
FLOATS, CODES, ALONE = (6, 2), (8, 1), (1, 4)
"""Rows of x and lines of weights whose products are in registers at once: of groups, and of one
row that is left.
"""


@dataclass(frozen=True)
class Blueprint:
    """What changes the code.

    Attributes:
        lanes: of a line.
        together: rows of a matrix that share a line of x.
    """

    lanes: int
    together: int = 4


@dataclass(frozen=True)
class Groups:
    """What changes the code of products by groups.

    Attributes:
        lanes: of a line of floats.
        codes: how codes lie, or None for floats.
        sorted: whether there is an order, group after group; else each pair is a group.
    """

    lanes: int
    codes: Codes | None
    sorted: bool


@cb.kernel
def product(
    x: cb.Array,
    stack: cb.Array,
    which: cb.Array,
    out: cb.Array,
    repeats: Any,
    tiles: Any,
    plan: cb.Comptime[Blueprint],
) -> None:
    """out[p, n] = x[p // repeats] . stack[which[p], n]; a cube does 16 rows n of one p.

    x (X, K) f32, stack (E, N, K) floats, which (P,) integers, out (P, N) f32.
    """
    p, first = cb.CUBE_POS // tiles, (cb.CUBE_POS % tiles) * ROWS
    count, depth = stack.shape[1], stack.shape[2]
    e = cb.min(cb.max(cb.cast(which[p], cb.i64), 0), stack.shape[0] - 1)
    row = p // repeats
    acc = cb.local(plan.together, cb.f32, lanes=plan.lanes)
    for r in range(0, ROWS, plan.together):
        for k in cb.unroll(range(plan.together)):
            acc[k] = cb.splat(cb.f32(0.0), plan.lanes)
        for at in range(0, depth, plan.lanes):
            line = x.load((row, at), plan.lanes)
            for k in cb.unroll(range(plan.together)):
                n = cb.min(first + r + k, count - 1)
                weights = cb.cast(stack.load((e, n, at), plan.lanes), cb.f32)
                acc[k] = cb.fma(weights, line, acc[k])
        for k in cb.unroll(range(plan.together)):
            if first + r + k < count:
                out[p, first + r + k] = acc[k].sum()


@cb.func
def meets(x: Any, facts: Any, lines: Any, rows: Any, acc: Any, plan: Any) -> None:
    """acc[m, k] = the products, lane by lane, of line lines[k] of the weights with row rows[m] of
    x.
    """
    stack, scales, zeros = facts
    many, beside = cb.comptime(rows.shape[0]), cb.comptime(lines.shape[0])
    weights = cb.local(beside, cb.f32, lanes=plan.lanes)
    for m in cb.unroll(range(many)):
        for k in cb.unroll(range(beside)):
            acc[m, k] = cb.splat(cb.f32(0.0), plan.lanes)
    if plan.codes is None:
        for at in range(0, stack.shape[1], plan.lanes):
            for k in cb.unroll(range(beside)):
                weights[k] = cb.cast(stack.load((lines[k], at), plan.lanes), cb.f32)
            for m in cb.unroll(range(many)):
                line = x.load((rows[m], at), plan.lanes)
                for k in cb.unroll(range(beside)):
                    acc[m, k] = cb.fma(weights[k], line, acc[m, k])
    else:
        elements, nbytes = plan.codes.elements, plan.codes.elements * plan.codes.bits // 8
        for block in range(scales.shape[1]):
            for high in cb.unroll(range(8 // plan.codes.bits)):
                for at in cb.unroll(range(0, nbytes, plan.lanes)):
                    for k in cb.unroll(range(beside)):
                        codes = weights_at(stack, zeros, lines[k], block, at, high, plan.codes)
                        weights[k] = codes * cb.splat(scales[lines[k], block], plan.lanes)
                    for m in cb.unroll(range(many)):
                        line = x.load((rows[m], block * elements + high * nbytes + at), plan.lanes)
                        for k in cb.unroll(range(beside)):
                            acc[m, k] = cb.fma(weights[k], line, acc[m, k])


@cb.func
def some_rows(
    x: Any, facts: Any, order: Any, out: Any, spot: Any, repeats: Any, tile: Any, plan: Any
) -> None:
    """The products of the pairs of a tile, from `at` of the order on, with 16 rows of matrix e from
    `first` on.
    """
    e, count, first, at, last = spot
    many, beside = cb.comptime(tile[0]), cb.comptime(tile[1])
    rows, pairs = cb.local(many, cb.i64), cb.local(many, cb.i64)
    lines = cb.local(beside, cb.i64)
    acc = cb.local((many, beside), cb.f32, lanes=plan.lanes)
    for m in cb.unroll(range(many)):
        nth = cb.cast(cb.min(at + m, last - 1), cb.i64)
        pairs[m] = cb.cast(order[nth], cb.i64) if plan.sorted else nth
        rows[m] = pairs[m] // repeats
    for r in range(0, ROWS, beside):
        if first + r < count:
            for k in cb.unroll(range(beside)):
                lines[k] = cb.cast(e * count + cb.min(first + r + k, count - 1), cb.i64)
            meets(x, facts, lines, rows, acc, plan)
            for m in cb.unroll(range(many)):
                for k in cb.unroll(range(beside)):
                    if at + m < last and first + r + k < count:
                        out[pairs[m], first + r + k] = acc[m, k].sum()


@cb.kernel
def by_groups(
    x: cb.Array,
    stack: cb.Array,
    scales: Any,
    zeros: Any,
    order: cb.Array,
    ends: Any,
    out: cb.Array,
    count: Any,
    repeats: Any,
    plan: cb.Comptime[Groups],
) -> None:
    """out[p] = x[p // repeats] @ the matrix of p's group, for 16 rows of one matrix.

    x (X, K) f32; stack (E * count, K) floats, or codes with scales and zeros by block; out (P,
    count) f32. In order: order (P,) has the pairs group after group, ends (E,) where groups end.
    Else order (P,) has the group of each pair, and a cube does one pair.
    """
    tiles = (count + ROWS - 1) // ROWS
    g, first = cb.cast(cb.CUBE_POS // tiles, cb.i64), cb.CUBE_POS % tiles * ROWS
    facts = (stack, scales, zeros)
    tile = FLOATS if plan.codes is None else CODES
    if plan.sorted:
        at = cb.cast(0, cb.i64)
        if g > 0:
            at = cb.cast(ends[g - 1], cb.i64)
        last = cb.cast(ends[g], cb.i64)
        while at + 1 < last:
            spot = (g, count, first, at, last)
            some_rows(x, facts, order, out, spot, repeats, tile, plan)
            at += tile[0]
        if at < last:
            some_rows(x, facts, order, out, (g, count, first, at, last), repeats, ALONE, plan)
    else:
        e = cb.min(cb.max(cb.cast(order[g], cb.i64), 0), stack.shape[0] // count - 1)
        some_rows(x, facts, order, out, (e, count, first, g, g + 1), repeats, ALONE, plan)
