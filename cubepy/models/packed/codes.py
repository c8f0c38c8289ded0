"""Codes and scales of blocks in registers, as products with bytes read them."""

from __future__ import annotations

import cubepy as cb
from cubepy.models.packed.kernels import half_at

GROUP = 32
"""Codes that lie beside each other, and activations that share a scale."""
ZERO = {"Q4_0": 8, "Q5_0": 16, "Q8_0": 128, "Q3_K": 4, "Q6_K": 32}
"""The code of zero; other types have minimums."""


def most_of(kind: str) -> int:
    """The largest code of a type, with its high bits."""
    return {"Q8_0": 255, "Q4_0": 15, "Q4_1": 15, "Q4_K": 15, "Q6_K": 63}.get(kind, 31)


@cb.func
def small_codes(raw, n, base, plan):
    """The 32 codes of a block, u8."""
    if plan.kind == "Q8_0":
        return raw.load((n, base + 2), 32) ^ 128
    first = base + plan.nbytes - 16
    both = raw.load((n, first), 16)
    codes = cb.concat(both & 15, both >> 4)
    if plan.kind == "Q5_0" or plan.kind == "Q5_1":
        four = raw.load((n, first - 4), 4)
        spread = cb.shuffle(four, four, tuple(i // 8 for i in range(32)))
        bit = cb.splat(cb.u8(1), 32) << (cb.iota(32, cb.u8) & 7)
        codes = cb.select((spread & bit) != 0, codes | 16, codes)
    return codes


@cb.func
def large_codes(raw, n, base, group, plan):
    """The 32 codes of a group of a block of 256, u8."""
    part, quarter = group // 4, group % 4
    if plan.kind == "Q4_K" or plan.kind == "Q5_K":
        first = base + (16 if plan.kind == "Q4_K" else 48)
        both = raw.load((n, first + 32 * (group // 2)), 32)
        codes = (both & 15) if group % 2 == 0 else (both >> 4)
        if plan.kind == "Q5_K":
            codes = codes | (((raw.load((n, base + 16), 32) >> group) & 1) << 4)
        return codes
    if plan.kind == "Q6_K":
        both = raw.load((n, base + 64 * part + 32 * (quarter % 2)), 32)
        high = (raw.load((n, base + 128 + 32 * part), 32) >> (2 * quarter)) & 3
        return ((both & 15) if quarter < 2 else (both >> 4)) | (high << 4)
    first = base + (16 if plan.kind == "Q2_K" else 32)
    codes = (raw.load((n, first + 32 * part), 32) >> (2 * quarter)) & 3
    if plan.kind == "Q3_K":
        codes = codes + (((raw.load((n, base), 32) >> group) & 1) << 2)
    return codes


@cb.func
def large_scales(raw, halves, n, base, half, plan):
    """Scales and minimums of the 16 half groups of a block of 256, f32; minimums are 0 where the
    type has none.
    """
    twice = tuple(i // 2 for i in range(16))
    none = cb.splat(cb.f32(0.0), 16)
    if plan.kind == "Q4_K" or plan.kind == "Q5_K":
        a, b, c = (raw.load((n, base + 4 + 4 * i), 4) for i in cb.unroll(range(3)))
        both = cb.cast(halves.load((n, half), 2), cb.f32)
        scales = cb.cast(cb.concat(a & 63, (c & 15) | ((a >> 6) << 4)), cb.f32) * both[0]
        least = cb.cast(cb.concat(b & 63, (c >> 4) | ((b >> 6) << 4)), cb.f32) * both[1]
        return cb.shuffle(scales, scales, twice), cb.shuffle(least, least, twice)
    if plan.kind == "Q2_K":
        packed = raw.load((n, base), 16)
        both = cb.cast(halves.load((n, half + 40), 2), cb.f32)
        return (cb.cast(packed & 15, cb.f32) * both[0], cb.cast(packed >> 4, cb.f32) * both[1])
    if plan.kind == "Q6_K":
        signed = cb.cast(cb.bitcast(raw.load((n, base + 192), 16), cb.i8), cb.f32)
        return signed * half_at(halves, n, half + 104), none
    low, high = raw.load((n, base + 96), 8), raw.load((n, base + 104), 4)
    twos = cb.concat(
        cb.concat(high & 3, (high >> 2) & 3), cb.concat((high >> 4) & 3, (high >> 6) & 3)
    )
    six = cb.concat(low & 15, low >> 4) | (twos << 4)
    return cb.cast(cb.cast(six, cb.i32) - 32, cb.f32) * half_at(halves, n, half + 54), none


@cb.func
def magnitudes(codes, plan):
    """Codes u8 without the sign that they have as distances from zero, and -1 where it is negative:
    128 at most, so that pairs of products with bytes between -127 and 127 fit in 16 bits.
    """
    if plan.kind not in ZERO:
        return codes, cb.splat(cb.i8(0), GROUP)
    signed = cb.bitcast(codes ^ 128, cb.i8)
    if plan.kind != "Q8_0":
        signed = cb.bitcast(codes, cb.i8) - ZERO[plan.kind]
    below = signed >> 7
    return cb.bitcast((signed ^ below) - below, cb.u8), below
