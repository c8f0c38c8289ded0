"""Operators of attention, drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.onnx.drawn.node import Drawn, floats, yes

FAR_HIDDEN = 5e-4
"""How far attention may be where a row may be hidden whole: all of its scores are near -10,000."""


def angles(length: int, half: int) -> tuple[Any, Any]:
    """Cosines and sines of positions."""
    turns = np.outer(np.arange(length), 100.0 ** (-np.arange(half) / max(half, 1)))
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


def group_query_attention(rng: Any) -> Drawn:
    """Prompts, further ones and single steps; caches with room and without; padded rows."""
    groups, times = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    heads, depth = groups * times, int(rng.choice([16, 32]))
    batch, kind = int(rng.integers(1, 4)), str(rng.choice(["prompt", "step", "more", "chunk"]))
    count = 1 if kind == "step" else int(rng.integers(1 if kind == "prompt" else 2, 9))
    batch = 1 if kind == "more" else batch
    past = 0 if kind == "prompt" else int(rng.integers(1, 9))
    total = past + count
    room = total + int(rng.integers(0, 5)) if yes(rng, 0.4) or kind == "chunk" else past
    valid = rng.integers(0, count + 1, batch)
    if kind == "prompt":
        lengths = rng.integers(1, count + 1, batch) if yes(rng, 0.4) else np.full(batch, count)
    else:
        lengths = rng.integers(count, total + 1, batch) if kind == "step" else np.full(batch, total)
    if kind == "chunk":
        lengths = np.maximum(rng.integers(1, total + 1, batch), valid)
    else:
        lengths[int(rng.integers(batch))] = total
    how: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups}
    given: list[Any] = []
    q, k, v = (floats(rng, batch, count, n * depth) for n in (heads, groups, groups))
    if yes(rng, 0.3):
        given += [("q", np.concatenate([q, k, v], axis=2)), None, None]
    else:
        given += [("q", q), ("k", k), ("v", v)]
    if kind == "prompt" and room == 0 and yes(rng, 0.3):
        given += [None, None]
    else:
        given += [(n, floats(rng, batch, groups, room, depth)) for n in ("pk", "pv")]
    given += [
        ("last", (lengths - 1).astype(np.int32)),
        ("total" if yes(rng, 0.3) and room == past else "=total", np.array(total, np.int32)),
    ]
    extra: list[Any] = [None] * 5  # cos, sin, positions, bias, sink
    if yes(rng):
        how["do_rotary"] = 1
        if yes(rng, 0.3):
            how["rotary_interleaved"] = 1
        half = depth // 2 if yes(rng, 0.7) else 8 if depth == 32 else depth // 2
        cos, sin = angles(max(total, room) + 3, half)
        extra[:2] = [("=cos", cos), ("=sin", sin)]
        if yes(rng, 0.25):
            first = np.array(lengths)[:, None] - (valid[:, None] if kind == "chunk" else count)
            first = 0 if kind == "prompt" else first
            at = np.maximum(np.arange(count)[None] + first, 0) * np.ones((batch, 1), int)
            extra[2] = ("at", at.astype(np.int64))
    if yes(rng, 0.3):
        shape = (batch if yes(rng) else 1, heads if yes(rng) else 1, count, total)
        extra[3] = ("bias", floats(rng, *shape))
    if yes(rng, 0.25):
        extra[4] = ("=sink", floats(rng, heads))
    elif yes(rng, 0.2):
        how["smooth_softmax"] = 1
    if yes(rng, 0.3):
        how["local_window_size"] = int(rng.integers(1, 6))
    elif yes(rng, 0.15):
        how["causal"] = 0
    if yes(rng, 0.3):
        how["softcap"] = 5.0
    if yes(rng, 0.2):
        how["scale"] = 0.3
    outputs: list[Any] = [np.float32] * 3
    if yes(rng, 0.15):
        how["qk_output"] = int(rng.integers(1, 3))
        outputs.append(np.float32)
    if kind == "chunk":
        extra += [None] * 4 + [("valid", valid.astype(np.int32))]
    drawn = Drawn("GroupQueryAttention", how, given + extra, outputs)
    there = np.arange(count)[None] < (lengths if kind == "prompt" else lengths + count)[:, None]
    if kind == "chunk":
        there = np.arange(count)[None] < valid[:, None]
    if kind in ("prompt", "chunk"):
        drawn.seen[0] = there  # rows of padding are not defined
    held = np.arange(max(total, room))[None] < lengths[:, None]
    if len(outputs) > 3:
        within = np.arange(total)[None] < lengths[:, None]
        pairs = there[:, None, :, None] & within[:, None, None]
        drawn.seen[3] = np.broadcast_to(pairs, (batch, heads, count, total))
    for k in (1, 2):
        drawn.seen[k] = np.broadcast_to(held[:, None], (batch, groups, max(total, room)))
    return drawn


def multi_head_attention(rng: Any) -> Drawn:
    """Separate, joined and split projections, caches, masks and what is added."""
    heads, depth = int(rng.integers(1, 5)), int(rng.choice([8, 16, 24]))
    deep = depth if yes(rng, 0.7) else int(rng.choice([8, 40]))
    batch, count = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    keys = count if yes(rng) else int(rng.integers(1, 9))
    how: dict[str, Any] = {"num_heads": heads}
    kind = str(rng.choice(["separate", "separate", "heads", "past", "past"]))
    wide = heads * depth
    given: list[Any]
    past = 0
    outputs: list[Any] = [np.float32]
    deep = depth if kind in ("past", "heads") else deep
    if kind == "heads":
        given = [("q", floats(rng, batch, count, wide))]
        given += [
            ("k", floats(rng, batch, heads, keys, depth)),
            ("v", floats(rng, batch, heads, keys, deep)),
        ]
    else:
        keys = count if kind == "past" else keys
        given = [("q", floats(rng, batch, count, wide)), ("k", floats(rng, batch, keys, wide))]
        given += [("v", floats(rng, batch, keys, heads * deep))]
    bias = yes(rng, 0.4) and kind in ("separate", "past")
    given.append(("=b", floats(rng, 2 * wide + heads * deep)) if bias else None)
    if kind == "past":
        past = int(rng.integers(1, 6))
        outputs += [np.float32] * 2
    elif kind == "separate" and yes(rng, 0.3):
        outputs += [np.float32] * 2
    total = past + keys
    form = str(rng.choice(["none", "keys", "lengths", "all"]))
    if form == "keys":
        mask = (rng.random((batch, total)) < 0.7).astype(np.int32)
        mask[:, 0] |= int(yes(rng, 0.8))
        given.append(("mask", mask))
    elif form == "lengths" and not past:
        given.append(("mask", rng.integers(1, total + 1, batch).astype(np.int32)))
    elif form == "all":
        mask = (rng.random((batch, count, total)) < 0.7).astype(np.int32)
        mask[:, :, 0] |= int(yes(rng, 0.8))
        given.append(("mask", mask))
    else:
        given.append(None)
    if yes(rng, 0.35):
        shape = (batch if yes(rng) else 1, heads if yes(rng) else 1, count, total)
        given.append(("added", floats(rng, *shape)))
    else:
        given.append(None)
    if past:
        given += [
            ("pk", floats(rng, batch, heads, past, depth)),
            ("pv", floats(rng, batch, heads, past, deep)),
        ]
    if yes(rng, 0.3) and keys <= count:  # onnxruntime's last query sees all keys
        how["unidirectional"] = 1
    if yes(rng, 0.2):
        how["scale"] = 0.3
    if len(outputs) == 3 and yes(rng, 0.2):
        outputs.append(np.float32)
    return Drawn("MultiHeadAttention", how, given, outputs, far=FAR_HIDDEN)


def joined_attention(rng: Any) -> Drawn:
    """`Attention` of com.microsoft: masks of all forms, caches, values of another width."""
    heads, depth = int(rng.integers(1, 5)), int(rng.choice([8, 16, 32]))
    batch, count, given_width = (int(rng.integers(1, n)) for n in (4, 8, 20))
    how: dict[str, Any] = {"num_heads": heads}
    wide = heads * depth
    deep = wide
    past = int(rng.integers(1, 5)) if yes(rng, 0.3) else 0
    if not past and yes(rng, 0.25):
        deep = heads * int(rng.choice([4, 24]))
        how["qkv_hidden_sizes"] = [wide, wide, deep]
    elif yes(rng, 0.2):
        how["qkv_hidden_sizes"] = [wide, wide, wide]
    x = floats(rng, batch, count, given_width)
    weight = floats(rng, given_width, 2 * wide + deep, by=given_width**-0.5)
    given: list[Any] = [("x", x), ("=w", weight)]
    given.append(("=b", floats(rng, 2 * wide + deep)) if yes(rng, 0.7) else None)
    total = past + count
    form = str(rng.choice(["none", "keys", "lengths", "both", "all"]))
    if form == "keys":
        mask = (rng.random((batch, total)) < 0.7).astype(np.int32)
        mask[:, 0] |= int(yes(rng, 0.8))
        given.append(("mask", mask))
    elif form == "lengths":
        given.append(("mask", rng.integers(1, total + 1, batch).astype(np.int32)))
    elif form == "both":
        ends = rng.integers(1, total + 1, batch)
        starts = [int(rng.integers(0, e)) for e in ends]
        given.append(("mask", np.array([*ends, *starts], np.int32)))
    elif form == "all":
        mask = (rng.random((batch, count, total)) < 0.7).astype(np.int32)
        mask[:, :, 0] |= int(yes(rng, 0.8))
        given.append(("mask", mask))
    else:
        given.append(None)
    given.append(("past", floats(rng, 2, batch, heads, past, depth)) if past else None)
    if yes(rng, 0.3) and not past:
        shape = (batch if yes(rng) else 1, heads if yes(rng) else 1, count, total)
        given.append(("added", floats(rng, *shape)))
    if yes(rng, 0.3) and form != "both":
        how["unidirectional"] = 1
    if yes(rng, 0.2):
        how["scale"] = 0.3
    outputs: list[Any] = [np.float32]
    if past or deep == wide and yes(rng, 0.3):
        outputs.append(np.float32)
    return Drawn("Attention", how, given, outputs, far=FAR_HIDDEN)


def quantized_attention(rng: Any) -> Drawn:
    """`QAttention` of 8 bits with signs and without, scales by column and of all."""
    heads, depth = int(rng.integers(1, 5)), int(rng.choice([8, 16]))
    batch, count, given_width = (int(rng.integers(1, n)) for n in (4, 8, 40))
    wide = heads * depth
    signed = bool(yes(rng))
    how: dict[str, Any] = {"num_heads": heads}
    w = rng.integers(-100, 100, (given_width, 3 * wide))
    w = (w if signed else w + 128).astype(np.int8 if signed else np.uint8)
    n = 3 * wide if yes(rng, 0.4) else 1
    scale = (rng.random(n) * 0.01 + 0.001).astype(np.float32)
    shape = scale if n > 1 else scale.reshape(())
    given: list[Any] = [
        ("x", rng.integers(0, 256, (batch, count, given_width)).astype(np.uint8)),
        ("=w", w),
        ("=b", floats(rng, 3 * wide)),
        ("=xs", np.float32(0.02)),
        ("=ws", shape),
    ]
    past = int(rng.integers(1, 4)) if yes(rng, 0.25) else 0
    given.append(
        ("mask", rng.integers(1, count + 1, batch).astype(np.int32))
        if yes(rng) and not past
        else None
    )
    given.append(("=xz", np.uint8(rng.integers(0, 256))) if yes(rng, 0.7) else None)
    zero = w.dtype.type(0 if signed else 128)
    if yes(rng, 0.7):
        given.append(("=wz", np.full(n, zero, w.dtype) if n > 1 else np.asarray(zero)))
    else:
        given.append(None)
    outputs: list[Any] = [np.float32]
    if past:
        given.append(("past", floats(rng, 2, batch, heads, past, depth)))
        how["unidirectional"] = 1
        outputs.append(np.float32)
    elif yes(rng, 0.3):
        how["unidirectional"] = 1
    return Drawn("QAttention", how, given, outputs)


def rotary(rng: Any, standard: bool = False) -> Drawn:
    """Whole heads and parts, halves and neighbours, of three axes and four."""
    heads, depth = int(rng.integers(1, 5)), int(rng.choice([8, 16, 32]))
    batch, count = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    part = yes(rng, 0.4)
    width = int(rng.choice([n for n in (4, 8, 16) if n < depth])) if part else depth
    four = yes(rng)
    how: dict[str, Any] = {"interleaved": int(yes(rng))}
    if part:
        how["rotary_embedding_dim"] = width
    if (part or standard) and not four or yes(rng, 0.3):
        how["num_heads"] = heads
    cos, sin = angles(count + 12, width // 2)
    if not standard and yes(rng, 0.4):
        at = np.array([rng.integers(0, 10)])
    else:
        at = rng.integers(0, count + 12, (batch, count))
    shape = (batch, heads, count, depth) if four else (batch, count, heads * depth)
    x = ("x", floats(rng, *shape))
    if not standard:
        given = [x, ("at", at.astype(np.int64)), ("=cos", cos), ("=sin", sin)]
        if yes(rng, 0.1):
            how["scale"] = 1.0
        return Drawn("RotaryEmbedding", how, given, [np.float32])
    if yes(rng):
        given = [x, ("cos", cos), ("sin", sin), ("at", at.astype(np.int64))]
    else:
        given = [x, *((n, t[at]) for n, t in (("cos", cos), ("sin", sin)))]
    return Drawn("RotaryEmbedding", how, given, [np.float32], "", opset=23)


def standard_attention(rng: Any, opset: int = 23) -> Drawn:
    """`Attention` of ONNX: groups, caches, masks, caps, scores; from opset 24 on lengths."""
    groups, times = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    heads, depth, deep = groups * times, int(rng.choice([8, 16])), int(rng.choice([8, 16]))
    batch, count = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    keys = count if yes(rng) else int(rng.integers(1, 8))
    past = int(rng.integers(1, 5)) if yes(rng, 0.3) else 0
    four = yes(rng)
    how: dict[str, Any] = {}
    if four:
        shapes = [
            (batch, heads, count, depth),
            (batch, groups, keys, depth),
            (batch, groups, keys, deep),
        ]
    else:
        how |= {"q_num_heads": heads, "kv_num_heads": groups}
        shapes = [
            (batch, count, heads * depth),
            (batch, keys, groups * depth),
            (batch, keys, groups * deep),
        ]
    given: list[Any] = [(n, floats(rng, *s)) for n, s in zip("qkv", shapes, strict=True)]
    total = past + keys
    form = str(rng.choice(["none", "bools", "floats"]))
    shape = [(count, total), (batch if yes(rng) else 1, 1 if yes(rng) else heads, count, total)][
        int(rng.integers(2))
    ]
    if form == "bools":
        mask = rng.random(shape) < 0.7
        mask[..., 0] = True
        given.append(("mask", mask))
    else:
        given.append(("mask", floats(rng, *shape)) if form == "floats" else None)
    outputs: list[Any] = [np.float32]
    if past:
        given += [
            ("pk", floats(rng, batch, groups, past, depth)),
            ("pv", floats(rng, batch, groups, past, deep)),
        ]
        outputs += [np.float32] * 2
    elif opset > 23 and yes(rng, 0.4):
        given += [None, None, ("there", rng.integers(1, total + 1, batch).astype(np.int64))]
    if yes(rng, 0.35) and not (past and count == 1 < keys):  # onnxruntime's query sees all keys
        how["is_causal"] = 1
    if yes(rng, 0.2):
        how["scale"] = 0.3
    if yes(rng, 0.2):
        how["softcap"] = 4.0
    if past and yes(rng, 0.3):
        how["qk_matmul_output_mode"] = int(rng.integers(0, 4))
        outputs.append(np.float32)
    return Drawn("Attention", how, given, outputs, "", opset=opset)
