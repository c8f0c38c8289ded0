"""Scaled dot-product attention in one pass over keys and values, in constant extra memory.

The running maximum and sum of each row make the softmax online (Milakov and Gimelshein, 2018), as in
FlashAttention (Dao et al., 2022): no matrix of scores is ever written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels import attention_hopper as hopper
from cubepy.kernels import attention_planes as planes
from cubepy.kernels.arguments import array_of, finish, float_array, number_of, output, repeated, wrapper
from cubepy.kernels.cube_wide import lane_numbers
from cubepy.kernels.elementwise import copy
from cubepy.kernels.matmul_kernels import transpose_lines
from cubepy.runtime import memory


@dataclass(frozen=True)
class Blueprint:
    """What changes the attention's code.

    Attributes:
        rows: query rows of a register tile.
        lines: lines of keys of a register tile.
        lanes: lanes of a line.
        tiles: register tiles of a cube.
        head_lines: lines that hold one value row.
        causal: a query sees keys up to its own place (aligned at the first key and query).
        mask: "none", "bool" (true: may look) or "float" (added to the scores).
    """

    rows: int
    lines: int
    lanes: int
    tiles: int
    head_lines: int
    causal: bool
    mask: str

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return self.lines * self.lanes


@cb.kernel
def attend(q: cb.Array, k: cb.Array, v: cb.Array, mask, out: cb.Array, lse, scale, shared_heads, plan: cb.Comptime):
    """out[b, h, i] = sum over j of softmax(scale * q[b, h, i] . k[b, g, j]) * v[b, g, j], with g = h // shared_heads.

    q (B, H, L, D), k (B, G, S, D), v (B, G, S, E), out (B, H, L, E); a cube does `tiles` register tiles of rows. `lse`
    (B, H, L), if it is there, gets the log of each row's sum of exponentials.
    """
    rows, lanes, keys = plan.rows, plan.lanes, plan.keys
    length, heads, depth, width = q.shape[2], q.shape[1], q.shape[3], v.shape[3]
    blocks = (length + rows * plan.tiles - 1) // (rows * plan.tiles)
    first = (cb.CUBE_POS % blocks) * (rows * plan.tiles)
    h = (cb.CUBE_POS // blocks) % heads
    b = cb.CUBE_POS // (blocks * heads)
    g = h // shared_heads
    stop = cb.min(first + rows * plan.tiles, length)

    columns = cb.shared((plan.head_lines * lanes, keys), cb.f32)
    weights = cb.shared((rows, keys), cb.f32)
    sums = cb.local((plan.tiles * rows, plan.head_lines), cb.f32, lanes=lanes)
    top = cb.local(plan.tiles * rows, cb.f32)
    total = cb.local(plan.tiles * rows, cb.f32)
    for i in range(plan.tiles * rows):
        top[i] = -float("inf")
        total[i] = 0.0
        for j in range(plan.head_lines):
            sums[i, j] = cb.splat(0.0, lanes)

    seen = k.shape[2]
    if plan.causal:
        seen = cb.min(seen, stop)
    for start in range(0, seen, keys):
        count = cb.min(keys, k.shape[2] - start)
        transpose_keys(columns, k, b, g, start, depth, plan)
        for row in range(first, stop, rows):
            scores(weights, q, columns, b, h, row, length, depth, plan)
            for i in range(rows):
                at = row - first + i
                place = cb.min(row + i, length - 1)
                weigh(weights, top, total, sums, mask, i, at, b, h, place, start, count, scale, plan)
            add_values(sums, weights, v, b, g, row - first, start, count, width, plan)
    for i in range(stop - first):
        if lse is not None:
            lse[b, h, first + i] = top[i] + cb.log(total[i]) if total[i] > 0 else top[i]
        inverse = 1.0 / total[i] if total[i] > 0 else 0.0
        for j in range(plan.head_lines):
            value = cb.cast(sums[i, j] * inverse, out.dtype)
            out.store((b, h, first + i, j * lanes), value, valid=width - j * lanes)


@cb.func
def transpose_keys(columns, k, b, g, start, depth, plan):
    """columns[d, j] = k[b, g, start + j, d]; keys past the end repeat the last one and are masked later."""
    for j in range(0, plan.keys, plan.lanes):
        for d in range(0, depth, plan.lanes):
            lines = ()
            for r in cb.unroll(range(plan.lanes)):
                place = cb.min(start + j + r, k.shape[2] - 1)
                lines = lines + (cb.cast(k.load((b, g, place, d), plan.lanes, valid=depth - d), cb.f32),)
            turned = transpose_lines(lines, plan.lanes)
            for c in cb.unroll(range(plan.lanes)):
                columns.store((d + c, j), turned[c])


@cb.func
def scores(weights, q, columns, b, h, row, length, depth, plan):
    """weights[i, j] = q[row + i] . columns[:, j] for one register tile."""
    acc = cb.local((plan.rows, plan.lines), cb.f32, lanes=plan.lanes)
    strip = cb.local(plan.lines, cb.f32, lanes=plan.lanes)
    places = ()
    for i in cb.unroll(range(plan.rows)):
        places = places + (cb.min(row + i, length - 1),)
    for i in range(plan.rows):
        for j in range(plan.lines):
            acc[i, j] = cb.splat(0.0, plan.lanes)
    for d in range(depth):
        for j in range(plan.lines):
            strip[j] = columns.load((d, j * plan.lanes), plan.lanes)
        for i in cb.unroll(range(plan.rows)):
            x = cb.splat(cb.cast(q[b, h, places[i], d], cb.f32), plan.lanes)
            for j in range(plan.lines):
                acc[i, j] = cb.fma(x, strip[j], acc[i, j])
    for i in range(plan.rows):
        for j in range(plan.lines):
            weights.store((i, j * plan.lanes), acc[i, j])


@cb.func
def weigh(weights, top, total, sums, mask, i, at, b, h, place, start, count, scale, plan):
    """Turn row i of scores into exp(score - maximum), and rescale what was summed under an older maximum."""
    lanes = plan.lanes
    low = cb.splat(-float("inf"), lanes)
    line = cb.local(plan.lines, cb.f32, lanes=lanes)
    best = low
    limit = count
    if plan.causal:
        limit = cb.min(count, place + 1 - start)
    for j in cb.unroll(range(plan.lines)):
        score = weights.load((i, j * lanes), lanes) * scale
        if plan.mask == "float":
            score = score + cb.cast(mask.load((b, h, place, start + j * lanes), lanes, valid=count - j * lanes), cb.f32)
        if plan.mask == "bool":
            allowed = mask.load((b, h, place, start + j * lanes), lanes, valid=count - j * lanes)
            score = cb.select(allowed, score, low)
        score = cb.select(lane_numbers(cb.i32, lanes) < cb.splat(limit - j * lanes, lanes), score, low)
        line[j] = score
        best = cb.nan_max(best, score)
    newest = top[at]
    for j in cb.unroll(range(lanes)):
        newest = cb.nan_max(newest, best[j])
    base = newest if newest != -float("inf") else 0.0
    grown = cb.exp(top[at] - base)
    row_sum = cb.splat(0.0, lanes)
    for j in cb.unroll(range(plan.lines)):
        e = cb.exp(line[j] - base)
        row_sum = row_sum + e
        weights.store((i, j * lanes), e)
    total[at] = total[at] * grown + row_sum.sum()
    top[at] = newest
    for j in range(plan.head_lines):
        sums[at, j] = sums[at, j] * grown


@cb.func
def add_values(sums, weights, v, b, g, at, start, count, width, plan):
    """sums[at + i] += weights[i] @ v[start : start + count], up to four lines of v at a time."""
    lanes = plan.lanes
    for group in cb.unroll(range(0, plan.head_lines, 4)):
        lines = min(4, plan.head_lines - group)
        acc = cb.local((plan.rows, lines), cb.f32, lanes=lanes)
        strip = cb.local(lines, cb.f32, lanes=lanes)
        for i in range(plan.rows):
            for j in range(lines):
                acc[i, j] = sums[at + i, group + j]
        for r in range(count):
            for j in cb.unroll(range(lines)):
                left = width - (group + j) * lanes
                strip[j] = cb.cast(v.load((b, g, start + r, (group + j) * lanes), lanes, valid=left), cb.f32)
            for i in range(plan.rows):
                x = cb.splat(weights[i, r], lanes)
                for j in range(lines):
                    acc[i, j] = cb.fma(x, strip[j], acc[i, j])
        for i in range(plan.rows):
            for j in range(lines):
                sums[at + i, group + j] = acc[i, j]


@repeated
def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: float | None = None, *,
    enable_gqa: bool = False, out: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale * query @ key.T + mask) @ value, as `torch.nn.functional.scaled_dot_product_attention`.

    Args:
        query: (B, H, L, D) floats.
        key: (B, G, S, D); G divides H (grouped queries).
        value: (B, G, S, E).
        attn_mask: broadcastable to (B, H, L, S): bool (true: may look) or floats that are added.
        is_causal: query i sees keys 0 to i.
        scale: factor of the products, 1 / sqrt(D) by default.
        enable_gqa: taken for the sake of torch's signature; grouped queries need no permission.
        out: (B, H, L, E) to write.

    Returns:
        (B, H, L, E). A query that may look at nothing gives zeros.

    Raises:
        ShapeError: shapes that do not go together.
    """
    wrap = wrapper(query, key, value)
    q, k, v = (float_array(a, n) for a, n in ((query, "query"), (key, "key"), (value, "value")))
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4:
        raise ShapeError(f"attention needs rank 4 (batch, heads, length, depth), not {q.shape}, {k.shape}, {v.shape}")
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]) or k.shape[:3] != v.shape[:3]:
        raise ShapeError(f"query {q.shape}, key {k.shape} and value {v.shape} do not go together")
    if q.shape[1] % max(k.shape[1], 1):
        raise ShapeError(f"{k.shape[1]} key heads do not divide {q.shape[1]} query heads")
    if any(a.dtype == np.float64 for a in (q, k, v)):
        raise DTypeError("attention works on f32, f16 and bf16", hint="convert with .astype(numpy.float32)")
    length, depth, width = q.shape[2], q.shape[3], v.shape[3]
    result = output(out, (*q.shape[:3], width), q.dtype, k, v)
    if result.size == 0 or k.shape[2] == 0:
        result[...] = 0
        return finish(result, out, wrap)
    q, k, v = (a if a.strides[3] == a.itemsize else copy(a) for a in (q, k, v))
    full = (q.shape[0], q.shape[1], length, k.shape[2])
    mask, kind = stretched_mask(attn_mask, full)
    p = cb.device_properties_of()
    factor = scale_of(scale, depth)
    if by_matrix_units(q, k, v, mask, kind, result, None, bool(is_causal), factor, p):
        return finish(result, out, wrap)
    target = result if result.strides[3] == result.itemsize else memory.empty(result.shape, result.dtype)
    by_lines(q, k, v, mask, kind, target, None, bool(is_causal), factor, p)
    if target is not result:
        result[...] = target
    return finish(result, out, wrap)


def scale_of(scale: float | None, depth: int) -> float:
    """The factor of the products of queries and keys, 1 / sqrt(depth) where none is given."""
    if depth == 0:
        raise ShapeError("attention needs queries and keys of depth 1 or more, not 0")
    return 1.0 / math.sqrt(depth) if scale is None else number_of(scale, "scale")


def by_lines(
    q: Any, k: Any, v: Any, mask: Any, kind: str, out: Any, lse: Any, causal: bool, factor: float,
    p: cb.DeviceProperties,
) -> None:  # fmt: skip
    """The attention, and its log-sum-exp if `lse` is there, with tiles of lines: on any device, made for CPUs."""
    lanes, length = p.register_bytes // 4, q.shape[2]
    rows, lines = (6, 4) if p.vector_registers >= 32 else (6, 2)
    tiles = 1 if length <= rows else min(8, -(-length // rows))
    plan = Blueprint(rows, lines, lanes, tiles, -(-max(v.shape[3], q.shape[3]) // lanes), causal, kind)
    cubes = q.shape[0] * q.shape[1] * -(-length // (rows * tiles))
    attend[cubes, 1](q, k, v, mask, out, lse, factor, q.shape[1] // k.shape[1], plan, mode="unchecked")


def by_matrix_units(
    q: Any, k: Any, v: Any, mask: Any, kind: str, out: Any, lse: Any, causal: bool, factor: float,
    p: cb.DeviceProperties,
) -> bool:  # fmt: skip
    """Whether a routine of this device's matrix units took the problem; it has then been launched."""
    if "mma" not in p.features:
        return False
    width = max(q.shape[3], v.shape[3])
    # A mask is added before scores are scaled there, and hidden scores are less than others before they are.
    if (kind == "none" or factor > 0) and width % 8 == 0 and out.strides[3] == out.itemsize:
        plan = hopper.plan_for(q, k, v, causal, p, mask, kind)
        if plan is not None:
            hopper.launch(*(a if hopper.copyable(a) else copy(a) for a in (q, k, v)), out, lse, factor, plan, p, mask)
            return True
    plan_of_planes = planes.plan_for(q, k, v, mask, kind, causal, p)
    if plan_of_planes is None:
        return False
    planes.launch(q, k, v, mask, out, lse, factor, plan_of_planes)
    return True


def stretched_mask(value: Any, shape: tuple[int, ...]) -> tuple[Any, str]:
    """The mask stretched to (B, H, L, S) with unit stride at its end, and its kind."""
    if value is None:
        return None, "none"
    mask = array_of(value, "attn_mask")
    if mask.dtype != np.bool_:
        mask = float_array(mask, "attn_mask")
    if mask.ndim and mask.shape[-1] == 1 != shape[-1]:
        mask = np.broadcast_to(mask, (*mask.shape[:-1], shape[-1]))
    if mask.ndim == 0 or (mask.strides[-1] != mask.itemsize and shape[-1] > 1):
        mask = copy(mask)
    try:
        return np.broadcast_to(mask, shape), "bool" if mask.dtype == np.bool_ else "float"
    except ValueError:
        raise ShapeError(f"attn_mask of shape {mask.shape} does not broadcast to {shape}") from None
