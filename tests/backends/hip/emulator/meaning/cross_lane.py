"""Lanes that read each other's registers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.backends.hip.emulator.operands import U32, offset_of, operand, split
from tests.backends.hip.emulator.program import Step
from tests.backends.hip.emulator.wave import Wave

ROW = 15


def _source(w: Wave, modifiers: dict[str, str]) -> tuple[Any, Any]:
    """For every lane the lane that it reads, and whether that exists (DPP)."""
    lane, all_ = w.lane, np.ones(w.size, bool)
    row, at = lane & ~ROW, lane & ROW
    k = {name: int(value) for name, value in modifiers.items() if re.fullmatch(r"\d+", value)}
    if "quad_perm" in modifiers:
        order = np.array([int(x) for x in modifiers["quad_perm"].strip("[]").split(",")])
        return (lane & ~3) | order[lane & 3], all_
    if "row_shl" in k:
        return lane + k["row_shl"], at + k["row_shl"] <= ROW
    if "row_shr" in k:
        return lane - k["row_shr"], at >= k["row_shr"]
    if "row_ror" in k:
        return row | (at - k["row_ror"]) & ROW, all_
    if "row_mirror" in modifiers:
        return row | ROW - at, all_
    if "row_half_mirror" in modifiers:
        return (lane & ~7) | 7 - (lane & 7), all_
    if "row_xmask" in k:
        return row | at ^ k["row_xmask"], all_
    if "row_share" in k or "row_newbcast" in k:
        return row | k.get("row_share", k.get("row_newbcast", 0)), all_
    if k.get("row_bcast") == 15:
        return row - 1, row > 0
    if k.get("row_bcast") == 31:
        return (lane & ~31) - 1, lane >= 32
    if "wave_shr" in k:
        return lane - 1, lane > 0
    if "wave_shl" in k:
        return lane + 1, lane < w.size - 1
    raise NotImplementedError(f"lanes exchanged by {modifiers}")


def exchanged(
    w: Wave, x: np.ndarray, on: np.ndarray, modifiers: dict[str, str]
) -> tuple[np.ndarray, np.ndarray]:
    """An operand of every lane read from another one, and the lanes that are written."""
    source, exists = _source(w, modifiers)
    source = np.clip(source, 0, w.size - 1)
    x, alive = x[source], exists & w.on[source]
    if "bound_ctrl" in modifiers:
        x = np.where(alive, x, 0).astype(x.dtype)
    else:
        on = on & alive
    rows = int(modifiers.get("row_mask", "0xf"), 0)
    banks = int(modifiers.get("bank_mask", "0xf"), 0)
    on = on & (rows >> (w.lane >> 4 & 3) & 1 == 1) & (banks >> (w.lane >> 2 & 3) & 1 == 1)
    return x, on


def read_first(name: str, text: str) -> Step:
    ops = [operand(t) for t in split(text)[0]]

    def run(w: Wave) -> None:
        k = (w.running & -w.running).bit_length() - 1 if w.running else 0
        w.put_scalar(ops[0], int(w.raw(ops[1], 1)[k]), 1)

    return run


def read_lane(name: str, text: str) -> Step:
    ops = [operand(t) for t in split(text)[0]]

    def run(w: Wave) -> None:
        k = w.scalar(ops[2], 1) & w.size - 1
        w.put_scalar(ops[0], int(w.raw(ops[1], 1)[k]), 1)

    return run


def write_lane(name: str, text: str) -> Step:
    ops = [operand(t) for t in split(text)[0]]

    def run(w: Wave) -> None:
        w.bank(ops[0])[ops[0].at, w.scalar(ops[2], 1) & w.size - 1] = w.scalar(ops[1], 1)

    return run


def swap(name: str, text: str) -> Step:
    ops = [operand(t) for t in split(text)[0]]

    def run(w: Wave) -> None:
        a, b = w.raw(ops[0], 1).copy(), w.raw(ops[1], 1).copy()
        w.put(ops[0], b, "u32")
        w.put(ops[1], a, "u32")

    return run


def permute_halves(name: str, text: str) -> Step:
    """v_permlane64: the halves of a plane change places."""
    ops = [operand(t) for t in split(text)[0]]
    return lambda w: w.put(ops[0], np.roll(w.raw(ops[1], 1), 32), "u32")


def permute_row(name: str, text: str) -> Step:
    """v_permlane16, v_permlanex16: within a row of 16, or from the row beside it."""
    ops = [operand(t) for t in split(text)[0]]
    beside = 16 if "x16" in name else 0

    def run(w: Wave) -> None:
        choice = w.scalar(ops[2], 1) | w.scalar(ops[3], 1) << 32
        order = np.array([choice >> 4 * k & ROW for k in range(16)])
        w.put(ops[0], w.raw(ops[1], 1)[(order[w.lane & ROW] | w.lane & ~ROW) ^ beside], "u32")

    return run


def permute_swap(name: str, text: str) -> Step:
    """v_permlane32_swap, v_permlane16_swap: the odd rows of one register for the even ones of
    another.
    """
    ops = [operand(t) for t in split(text)[0]]
    n = 32 if "32_swap" in name else 16

    def run(w: Wave) -> None:
        a, b = w.raw(ops[0], 1).copy(), w.raw(ops[1], 1).copy()
        odd = w.lane & n != 0
        w.put(ops[0], np.where(odd, b[w.lane ^ n], a), "u32")
        w.put(ops[1], np.where(odd, b, a[w.lane ^ n]), "u32")

    return run


def count_below(name: str, text: str) -> Step:
    """v_mbcnt: bits of a mask that belong to lanes below."""
    ops = [operand(t) for t in split(text)[0]]
    start = 32 if "_hi_" in name else 0

    def run(w: Wave) -> None:
        mask, more = w.get(ops[1], "u32"), w.get(ops[2], "u32")
        below = np.clip(w.lane - start, 0, 32).tolist()
        counts = [(m & (1 << k) - 1).bit_count() for m, k in zip(mask.tolist(), below, strict=True)]
        w.put(ops[0], np.array(counts, U32) + more, "u32")

    return run


def shared_permute(name: str, text: str) -> Step:
    """ds_bpermute reads from a lane by its number times 4, ds_permute writes to one; a lane that is
    off gives 0.
    """
    texts, modifiers = split(text)
    ops, offset = [operand(t) for t in texts], offset_of(modifiers)

    def run(w: Wave) -> None:
        at = (w.get(ops[1], "u32") + U32(offset)) // U32(4) % U32(w.size)
        data = w.get(ops[2], "u32")
        if "bpermute" in name:
            out = np.where(w.on[at], data[at], U32(0))
        else:
            out = np.zeros(w.size, U32)
            out[at[w.on]] = data[w.on]
        w.put(ops[0], out, "u32")

    return run


def shared_swizzle(name: str, text: str) -> Step:
    """ds_swizzle: lanes of a group by a pattern in the offset."""
    ops = [operand(t) for t in split(text)[0][:2]]
    found = re.search(r"offset:(?:swizzle\((.*)\)|(\w+))", text)
    assert found is not None
    code = int(found[2], 0) if found[2] else _swizzle(found[1])

    def run(w: Wave) -> None:
        low = w.lane & 31
        if code & 0x8000:
            source = (w.lane & ~3) | (code >> 2 * (w.lane & 3)) & 3
        else:
            source = (w.lane & ~31) | (((low & code & 31) | code >> 5 & 31) ^ (code >> 10 & 31))
        w.put(ops[0], np.where(w.on[source], w.get(ops[1], "u32")[source], U32(0)), "u32")

    return run


def _swizzle(text: str) -> int:
    """The number of a pattern."""
    kind, *rest = (part.strip() for part in text.split(","))
    if kind == "SWAP":
        return 0x1F | int(rest[0]) << 10
    if kind == "REVERSE":
        return 0x1F | int(rest[0]) - 1 << 10
    if kind == "BROADCAST":
        return 32 - int(rest[0]) | int(rest[1]) << 5
    if kind == "QUAD_PERM":
        return 0x8000 | sum(int(p) << 2 * k for k, p in enumerate(rest))
    if kind == "BITMASK_PERM":
        keep = put = flip = 0
        for k, c in enumerate(reversed(rest[0].strip('"'))):
            keep |= (c in "pi") << k
            put |= (c == "1") << k
            flip |= (c == "i") << k
        return keep | put << 5 | flip << 10
    raise NotImplementedError(text)
