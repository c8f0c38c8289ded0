"""Adding up the sums of ranges of pixels: the end of a filter's gradient that is cut along them."""

from __future__ import annotations

from typing import Any

import cubepy as cb

FOLDERS, AHEAD = (
    128,
    8,
)  # units of a cube that adds sums, and sums that a unit reads before it adds them
TOGETHER, MANY = (
    16,
    1 << 14,
)  # taps that a unit adds, at most, and units that then keep a device busy


@cb.kernel
def fold_ranges(
    sums: cb.Array,
    out: cb.Array,
    width,
    filters,
    together,
    lanes: cb.Comptime[int],
    ahead: cb.Comptime[int],
):
    """out[f, c, tap] = sum over ranges of sums[range, f, tap * width + C * j + c] for the j-th of
    the `together` groups that make a block; a group has so many `filters`, and C channels. A unit
    does a line of channels.
    """
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    across = out.shape[1] // lanes
    c = at % across * lanes
    tap = at // across % out.shape[2]
    f = at // across // out.shape[2]
    if f < out.shape[0]:
        total = cb.cast(cb.splat(0.0, lanes), cb.f32)
        ranges = sums.shape[0]
        whole = ranges // ahead * ahead
        at = tap * width + f // filters % together * out.shape[1] + c
        for first in range(0, whole, ahead):
            lines = tuple(sums.load((first + k, f, at), lanes) for k in cb.unroll(range(ahead)))
            for k in cb.unroll(range(ahead)):
                total = total + lines[k]
        for k in range(whole, ranges):
            total = total + sums.load((k, f, at), lanes)
        for k in cb.unroll(range(lanes)):
            out[f, c + k, tap] = cb.cast(total[k], out.dtype)


@cb.kernel
def fold_taps(sums: cb.Array, out: cb.Array, width, taps: cb.Comptime[int]):
    """out[f, c * taps + tap] = sum over ranges of sums[range, f, tap * width + c]; a unit does four
    channels.
    """
    at = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS
    across = out.shape[1] // (4 * taps)
    c, f = at % across * 4, at // across
    if f < out.shape[0]:
        acc = cb.local(taps, cb.f32, lanes=4)
        for t in cb.unroll(range(taps)):
            acc[t] = sums.load((0, f, t * width + c), 4)
        for k in range(1, sums.shape[0]):
            for t in cb.unroll(range(taps)):
                acc[t] = acc[t] + sums.load((k, f, t * width + c), 4)
        flat = cb.local(4 * taps, out.dtype)
        for t in cb.unroll(range(taps)):
            line = acc[t]
            for q in cb.unroll(range(4)):
                flat[q * taps + t] = cb.cast(line[q], out.dtype)
        for t in cb.unroll(range(taps)):
            out.store((f, c * taps + 4 * t), flat.load(4 * t, 4))


def folded(sums: Any, out: Any, group: int, together: int = 1) -> None:
    """out (F, C, taps), contiguous, of sums (ranges, F, taps * (C or more)), as `fold_ranges` takes
    them from blocks of groups of so many filters.
    """
    filters, channels, taps = out.shape
    width = sums.shape[2] // taps
    lanes = 4 if channels % 4 == 0 else 1
    if together == 1 and lanes == 4 and 1 < taps <= TOGETHER and filters * channels // 4 >= MANY:
        units = filters * channels // 4
        fold_taps[-(-units // FOLDERS), FOLDERS](
            sums, out.reshape(filters, -1), width, taps, mode="unchecked"
        )
        return
    fold_ranges[-(-out.size // lanes // FOLDERS), FOLDERS](
        sums, out, width, group, together, lanes, AHEAD, mode="unchecked"
    )
