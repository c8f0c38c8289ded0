"""Weights as bytes with a scale for each group of neighbours: how blocks become them, and how a GPU
reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.epilogue import LineEpilogue
from cubepy.models.packed.codes import ZERO, large_codes, large_scales, small_codes
from cubepy.models.packed.kernels import half_at

LINE = 16
"""Codes that a unit loads at once; no group is shorter."""
TOGETHER = 4
"""Rows of the weight of a plane."""
PLANES = 4


@dataclass(frozen=True)
class Blueprint:
    """What changes the code of a product.

    Attributes:
        rows: of activations.
        group: numbers of a weight that share a scale.
        activation: a func of the result, or None.
    """

    rows: int
    group: int
    activation: Any = None


@cb.kernel
def regroup(
    raw: cb.Array, halves: cb.Array, codes: cb.Array, scales: cb.Array, minimums, plan: cb.Comptime
):
    """A row of blocks (N, bytes) as codes (N, K) i8, scales and minimums f16 (N, K / 32), of blocks
    of 256, whose scales are products, f32 (N, K / 16); a cube does one.
    """
    n = cb.CUBE_POS
    zero = cb.comptime(ZERO.get(plan.kind, 0))
    for block in range(codes.shape[1] // plan.elements):
        base, half = block * plan.nbytes, block * (plan.nbytes // 2)
        if plan.elements == 32:
            line = cb.cast(small_codes(raw, n, base, plan), cb.i32) - zero
            codes.store((n, block * 32), cb.cast(line, cb.i8))
            scales[n, block] = cb.cast(half_at(halves, n, half), cb.f16)
            if minimums is not None:
                minimums[n, block] = cb.cast(half_at(halves, n, half + 1), cb.f16)
        else:
            scale, least = large_scales(raw, halves, n, base, half, plan)
            scales.store((n, block * 16), scale)
            if minimums is not None:
                minimums.store((n, block * 16), 0.0 - least)
            for group in cb.unroll(range(8)):
                part = cb.cast(large_codes(raw, n, base, group, plan), cb.i32) - zero
                codes.store((n, block * 256 + group * 32), cb.cast(part, cb.i8))


@cb.func
def codes_at(words, n, k):
    """LINE codes of a row from k on, f32; `words` are four of them each."""
    return cb.cast(cb.bitcast(words.load((n, k // 4), LINE // 4), cb.i8), cb.f32)


@cb.func
def numbers_at(x, m, k):
    """LINE numbers of a row of activations, f32, in loads of 16 bytes and less."""
    half = LINE // 2
    return cb.cast(cb.concat(x.load((m, k), half), x.load((m, k + half), half)), cb.f32)


@cb.kernel(fast_math=("contract", "afn", "nsz"))
def grouped_product(
    x: cb.Array,
    words: cb.Array,
    scales: cb.Array,
    minimums,
    bias,
    residual,
    out: cb.Array,
    plan: cb.Comptime,
):
    """out[0, m] = activation(x[m] @ weight.T + bias) + residual[0, m] for a few rows x (rows, K);
    a plane does TOGETHER rows of the weight, its units share K. words (N, K / 4) u32: four codes
    each.
    """
    epilogue = LineEpilogue(out, plan.activation, bias, residual)
    rows, count, depth = plan.rows, words.shape[0], x.shape[1]
    lane = cb.UNIT_POS_PLANE
    first = (cb.CUBE_POS * PLANES + cb.PLANE_POS) * TOGETHER
    n = tuple(cb.min(first + r, count - 1) for r in cb.unroll(range(TOGETHER)))
    acc = cb.local((rows, TOGETHER), cb.f32)
    line = cb.local(rows, cb.f32, lanes=LINE)
    for m in cb.unroll(range(rows)):
        for r in cb.unroll(range(TOGETHER)):
            acc[m, r] = cb.f32(0.0)
    for k in range(lane * LINE, depth, LINE * cb.PLANE_DIM):
        for m in cb.unroll(range(rows)):
            line[m] = numbers_at(x, m, k)
        for r in cb.unroll(range(TOGETHER)):
            weights = codes_at(words, n[r], k)
            scale = cb.cast(scales[n[r], k // plan.group], cb.f32)
            for m in cb.unroll(range(rows)):
                acc[m, r] = cb.fma((weights * line[m]).sum(), scale, acc[m, r])
                if minimums is not None:
                    least = cb.cast(minimums[n[r], k // plan.group], cb.f32)
                    acc[m, r] = cb.fma(line[m].sum(), least, acc[m, r])
    for m in cb.unroll(range(rows)):
        for r in cb.unroll(range(TOGETHER)):
            total = cb.plane_sum(acc[m, r])
            if lane == 0 and first + r < count:
                epilogue.finish_inside(cb.splat(total, 1), 0, m, first + r)


@cb.func
def line_of(words, scales, minimums, n, k, group: cb.Comptime[int]):
    """LINE numbers of a row from k on, f32."""
    weights = codes_at(words, n, k) * cb.cast(scales[n, k // group], cb.f32)
    if minimums is not None:
        weights = weights + cb.cast(minimums[n, k // group], cb.f32)
    return weights


@cb.kernel
def take_grouped(
    indices, words: cb.Array, scales: cb.Array, minimums, out: cb.Array, group: cb.Comptime[int]
):
    """out[i] = row indices[i] of the weight, zeros where there is none; without indices row i. A
    unit makes LINE neighbours.
    """
    lines = out.shape[1] // LINE
    i, k = cb.ABSOLUTE_POS // lines, cb.ABSOLUTE_POS % lines * LINE
    if i < out.shape[0]:
        n = cb.cast(i, cb.i64)
        if indices is not None:
            n = cb.cast(indices[i], cb.i64)
        found = cb.splat(cb.f32(0.0), LINE)
        if n >= 0 and n < words.shape[0]:
            found = line_of(words, scales, minimums, n, k, group)
        out.store((i, k), cb.cast(found, out.dtype))
