"""Squares transposed in registers: of lines, and of words that neighbouring units hold."""

from __future__ import annotations

import cubepy as cb

SIDE = 8  # rows of b that are packed side by side


@cb.func
def transpose_lines(lines, lanes: cb.Comptime[int]):
    """Lines as the rows of a lanes x lanes matrix, transposed.

    First squares within the 128 bits that AVX2 shuffles by one instruction, then whole squares
    change places.
    """
    w = min(lanes, max(128 // lines[0].dtype.bits, 1))
    for _ in cb.unroll(range(w.bit_length() - 1)):
        mixed = ()
        for k in cb.unroll(range(lanes // 2)):
            a, b = (
                lines[k // (w // 2) * w + k % (w // 2)],
                lines[k // (w // 2) * w + k % (w // 2) + w // 2],
            )
            mixed = mixed + (
                cb.shuffle(a, b, interleaved_squares(lanes, w, 0)),
                cb.shuffle(a, b, interleaved_squares(lanes, w, 1)),
            )
        lines = mixed
    for n in cb.unroll(range((lanes // w).bit_length() - 1)):
        mixed = ()
        for k in cb.unroll(range(lanes)):
            first = k & ~(w << n)
            mixed = mixed + (
                cb.shuffle(
                    lines[first], lines[first + (w << n)], swapped_squares(lanes, w << n, k)
                ),
            )
        lines = mixed
    return lines


@cb.func
def whole_words(q0, q1, q2, q3):
    """A 4x4 tile of words among four units, transposed: unit k gets word k of each, 16 bytes of one
    row.
    """
    lane = cb.UNIT_POS_PLANE
    odd, high = lane % 2 == 1, lane % 4 >= 2
    a = cb.plane_shuffle_xor(cb.select(odd, q0, q1), 1)
    b = cb.plane_shuffle_xor(cb.select(odd, q2, q3), 1)
    q0, q1, q2, q3 = (
        cb.select(odd, a, q0),
        cb.select(odd, q1, a),
        cb.select(odd, b, q2),
        cb.select(odd, q3, b),
    )
    a = cb.plane_shuffle_xor(cb.select(high, q0, q2), 2)
    b = cb.plane_shuffle_xor(cb.select(high, q1, q3), 2)
    q0, q2, q1, q3 = (
        cb.select(high, a, q0),
        cb.select(high, q2, a),
        cb.select(high, b, q1),
        cb.select(high, q3, b),
    )
    return cb.line(q0, q1, q2, q3)


def interleaved_squares(lanes: int, w: int, half: int) -> tuple[int, ...]:
    """Lanes of two lines one after the other, from the lower or the upper half of every w lanes."""
    return tuple(
        e // w * w + half * (w // 2) + e % w // 2 + (lanes if e % 2 else 0) for e in range(lanes)
    )


def swapped_squares(lanes: int, s: int, k: int) -> tuple[int, ...]:
    """Of two lines that are s rows apart the even (k: an upper row, the odd) squares of s lanes
    side by side.
    """
    odd = 1 if k & s else 0
    return tuple((e & ~s) + odd * s + (lanes if e & s else 0) for e in range(lanes))
