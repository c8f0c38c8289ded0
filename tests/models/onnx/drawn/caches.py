"""Caches of `GroupQueryAttention`, drawn: codes, windows, keys that another layer wrote."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.onnx.drawn.attention import angles
from tests.models.onnx.drawn.node import Drawn, floats, yes


def held(count: Any, room: int, window: int) -> Any:
    """How many positions a cache of a window has after `count`."""
    step = room - window + 1
    return count - np.where(count > room, -(-(count - room) // step) * step, 0)


def codes_of(rng: Any, bits: int, *shape: int) -> Any:
    """Codes of 8 bits, or of 4 in pairs."""
    if bits == 4:
        return rng.integers(0, 256, (*shape[:-1], shape[-1] // 2)).astype(np.uint8)
    return rng.integers(-128, 128, shape).astype(np.int8)


def scale_of(rng: Any, kind: str, groups: int, depth: int, bits: int) -> Any:
    """Scales with which most numbers of one deviation have codes."""
    shape = (1,) if kind == "PER_TENSOR" else (1, groups, 1, depth)
    return ((0.5 + rng.random(shape)) * (0.02 if bits == 8 else 0.3)).astype(np.float32)


def cached_attention(rng: Any) -> Drawn:
    """Caches of windows and whole ones, of floats and of codes; prompts, chunks and steps."""
    groups, times = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    heads, depth = groups * times, int(rng.choice([16, 32]))
    bits = int(rng.choice([0, 4, 8]))
    rolling = yes(rng, 0.8 if bits == 0 else 0.4)
    depth = 32 if rolling and bits == 4 else depth
    shared = not rolling and yes(rng, 0.3)
    batch = int(rng.integers(1, 4))
    count = int(rng.choice([1, rng.integers(2, 9)]))
    padding = yes(rng, 0.4) and not shared
    if count > 1 and not padding:
        batch = 1
    added = rng.integers(0 if yes(rng, 0.3) else 1, count + 1, batch) if padding else count
    added = np.broadcast_to(added, (batch,))
    past = rng.integers(1, 24, batch)
    if padding and yes(rng, 0.2):
        past = np.maximum(rng.integers(0, 3, batch), added == 0)
    after = past + added
    total = int(after.max()) if rolling else max(int(after.max()), count)
    how: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
    window = int(rng.integers(1, 9))
    if rolling:
        room = window + int(rng.choice([0, rng.integers(0, 6)]))
        how |= {"local_window_size": window, "sliding_window_cache": 1}
    else:
        room = total + (count if padding else 0) + int(rng.integers(0, 5))
        if batch == 1 and not padding and not shared and yes(rng):
            room = int(past[0])
        if yes(rng, 0.3):
            how["local_window_size"] = window
    q, k, v = (floats(rng, batch, count, n * depth) for n in (heads, groups, groups))
    given: list[Any] = [("q", q), ("k", k), ("v", v)]
    if shared:
        past, after = np.maximum(past - count, 0), np.maximum(past, count)
        total = int(after.max())
        room = total + int(rng.integers(0, 3))
        given[1:] = [(n, np.zeros((batch, 0, groups * depth), np.float32)) for n in "kv"]
    elif yes(rng, 0.25):
        given = [("q", np.concatenate([q, k, v], axis=2)), None, None]
    shape = (batch, groups, room, depth)
    given += [
        (n, codes_of(rng, bits, *shape) if bits else floats(rng, *shape)) for n in ("pk", "pv")
    ]
    given += [("last", (after - 1).astype(np.int32)), ("=total", np.array(total, np.int32))]
    extra: list[Any] = [None] * 10  # cos, sin, positions, bias, sink, scales, norms, lengths
    if yes(rng):
        how["do_rotary"] = 1
        if yes(rng, 0.4):
            how["rotary_interleaved"] = 1
        half = depth // 2 if yes(rng) else 8
        extra[:2] = [(n, t) for n, t in zip(("=cos", "=sin"), angles(total + count + 3, half))]
    if yes(rng, 0.3):
        shape = (batch if yes(rng) else 1, heads if yes(rng) else 1, count, total)
        extra[3] = ("bias", floats(rng, *shape))
    if yes(rng, 0.25):
        extra[4] = ("=sink", floats(rng, heads))
    if yes(rng, 0.2):
        how["softcap"] = 5.0
    kept: Any = np.float32
    if bits:
        kind = str(rng.choice(["PER_TENSOR", "PER_CHANNEL"]))
        how |= {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
        extra[5:7] = [(f"={n}s", scale_of(rng, kind, groups, depth, bits)) for n in "kv"]
        kept = np.int8 if bits == 8 else np.uint8
    if padding:
        extra[9] = ("added", added.astype(np.int32))
    drawn = Drawn("GroupQueryAttention", how, given + extra, [np.float32, kept, kept])
    drawn.seen[0] = np.arange(count)[None] < added[:, None]
    size = room if rolling or room >= total else total
    there = held(after, room, window) if rolling else after
    rows = np.broadcast_to(
        np.arange(size)[None, None] < there[:, None, None], (batch, groups, size)
    )
    drawn.seen[1] = drawn.seen[2] = rows
    return drawn
