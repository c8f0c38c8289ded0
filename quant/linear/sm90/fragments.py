"""Packed codes as fragments of weights, the operand of `wgmma` that lies in registers."""

from __future__ import annotations

import cubepy as cb


@cb.func
def pairs_of(facts, g: cb.Comptime[int], dtype, plan):
    """The scales and minimums of a lane's two channels as pairs, in the order of a fragment.

    With bf16, codes are read as subnormal numbers: n in the low four bits is n * 2**-133, and in
    the four above 16 times that. Scales times 2**111 and 2**107, with minimums times 2**-22, give
    weights times 2**-22.
    """
    kinds = 1 if plan.symmetric else 2
    scale = cb.unpack(cb.slice_line(facts, kinds * g, 1), cb.f16)
    least = scale * cb.f32(-8.0)
    if not plan.symmetric:
        least = cb.unpack(cb.slice_line(facts, kinds * g + 1, 1), cb.f16)
    low, high = scale[0], scale[1]
    if dtype == cb.bf16:
        low, high = low * cb.f32(2.0**111), high * cb.f32(2.0**107)
        least = least * cb.f32(2.0**-22)
    scales = cb.pack(cb.line(low, low, high, high), dtype)
    leasts = cb.pack(cb.line(least[0], least[0], least[1], least[1]), dtype)
    return cb.concat(scales, scales), cb.concat(leasts, leasts)


@cb.func
def weights_of(word, high_word, scales, leasts, magic, dtype, plan):
    """Eight codes as a fragment of weights.

    f16 has no exponents to spare for scales of subnormal numbers: there a code becomes 1024 + n by
    its bits (`magic` is 0x64006400, in a register so that `(w & m) | magic` is one instruction),
    then n, and then a weight.
    """
    if plan.group > 0:
        low, high = cb.u32(0x000F000F), cb.u32(0x00F000F0)
        codes = cb.line(word, word, word >> 8, word >> 8) & cb.line(low, high, low, high)
        if dtype == cb.f16:
            one, sixteenth = cb.u32(0x3C003C00), cb.u32(0x2C002C00)
            a, b = cb.u32(0xE400E400), cb.u32(0xD400D400)
            codes = cb.packed_fma(
                codes | cb.splat(magic, 4),
                cb.line(one, sixteenth, one, sixteenth),
                cb.line(a, b, a, b),
                dtype,
            )
        return cb.packed_fma(codes, scales, leasts, dtype)
    lower, upper = cb.u32(0x0F0F0F0F), cb.u32(0xF0F0F0F0)
    first = (word & lower) | ((high_word << 4) & upper)
    second = ((word >> 4) & lower) | (high_word & upper)
    codes = cb.line(first, second, first >> 8, second >> 8) & cb.splat(cb.u32(0x00FF00FF), 4)
    if dtype == cb.f16:
        one, low = cb.splat(cb.u32(0x3C003C00), 4), cb.splat(cb.u32(0xE480E480), 4)
        return cb.packed_fma(codes | cb.splat(magic, 4), one, low, dtype)
    # b * 2**-133 times 2**127, less 2: exactly the code, b - 128, times 2**-6.
    return cb.packed_fma(
        codes, cb.splat(cb.u32(0x7F007F00), 4), cb.splat(cb.u32(0xC000C000), 4), dtype
    )


@cb.func
def fragments(a, buffer, slot, panel, q: cb.Comptime[int], b: cb.Comptime[int], magic, dtype, plan):
    """The fragments of 32 inputs of a panel: of two products."""
    lane = cb.UNIT_POS_PLANE
    at = slot * plan.slot
    words = buffer.load(at + (panel * plan.halves * 32 + lane) * 4, 4)
    above = words
    scales = words
    leasts = words
    if plan.group == 0:
        above = words
        words = buffer.load(at + (panel * 64 + 32 + lane) * 4, 4)
    else:
        facts = buffer.load(
            at + plan.code_words + (panel * 8 + lane // 4) * plan.fact_words, plan.fact_words
        )
        scales, leasts = pairs_of(facts, q if plan.group == 32 else 0, dtype, plan)
    for s in cb.unroll(range(2)):
        a[q, 2 * b + s] = weights_of(
            words[2 * q + s], above[2 * q + s], scales, leasts, magic, dtype, plan
        )
