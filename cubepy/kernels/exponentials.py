"""Powers of two that are never above one, as the weights of a softmax: half the steps of `cb.exp`."""

from __future__ import annotations

import math

import cubepy as cb

LOG2_E = 1 / math.log(2)
ROUND = 1.5 * 2.0**23 + 127
"""Added to a float it leaves the nearest integer, and 127 more, in the lowest bits."""

TWO_TO = (1.0, 0.6931472028551283, 0.24022647913619588, 0.05550332471026667, 0.009618437358306076,
          0.0013398874445475356, 0.00015353361812517514)  # fmt: skip
"""2 ** r for |r| <= 1/2, lowest power first; the greatest relative error is 2e-9."""


@cb.func
def power_of_two(x):
    """2 ** x for x <= 0, within 2e-7 of it; 0 from -126.5 on; NaN stays.

    The integer next to x is made into the bits of a power of two, a polynomial does the rest.
    """
    x = cb.select(x < -127.0, -127.0, x)
    shifted = x + ROUND
    r = x - (shifted - ROUND)
    square = r * r
    low = cb.fma(r, TWO_TO[1], TWO_TO[0])
    middle = cb.fma(r, TWO_TO[3], TWO_TO[2])
    high = cb.fma(square, TWO_TO[6], cb.fma(r, TWO_TO[5], TWO_TO[4]))
    y = cb.fma(cb.fma(high, square, middle), square, low)
    return y * cb.bitcast(cb.bitcast(shifted, cb.i32) << 23, cb.f32)
