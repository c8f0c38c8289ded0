"""Philox4x32-10: blocks of random words from a counter (Salmon et al., SC 2011)."""

from __future__ import annotations

import cubepy as cb


@cb.func
def multiply_wide(a, factor):
    """The high and low words of a line of words times a constant."""
    product = cb.cast(a, cb.u64) * cb.cast(factor, cb.u64)
    return cb.cast(product >> 32, cb.u32), cb.cast(product, cb.u32)


@cb.func
def philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds over lines of counters under one key."""
    for _ in cb.unroll(range(10)):
        high0, low0 = multiply_wide(c0, 0xD2511F53)
        high1, low1 = multiply_wide(c2, 0xCD9E8D57)
        c0 = high1 ^ c1 ^ k0
        c1 = low1
        c2 = high0 ^ c3 ^ k1
        c3 = low0
        k0 = k0 + cb.u32(0x9E3779B9)
        k1 = k1 + cb.u32(0xBB67AE85)
    return c0, c1, c2, c3


@cb.func
def weave(a, b, c, d):
    """a[0], b[0], c[0], d[0], a[1], ..."""
    return cb.interleave(cb.interleave(a, c), cb.interleave(b, d))


@cb.func
def counters(first, lanes: cb.Comptime[int]):
    """The line first, first + 1, ..."""
    line = cb.splat(cb.cast(0, cb.u64), lanes)
    for j in cb.unroll(range(1, lanes)):
        number = cb.splat(cb.cast(j, cb.u64), lanes)
        line = cb.shuffle(line, number, tuple(range(j)) + tuple(range(lanes + j, 2 * lanes)))
    return line + first
