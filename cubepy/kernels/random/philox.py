"""Lines of the counters that `cb.philox` takes, and of the words that it gives, in their order."""

from __future__ import annotations

import cubepy as cb


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
