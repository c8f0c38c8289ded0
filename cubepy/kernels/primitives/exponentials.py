"""Exponentials for f32 on a CPU where no subnormal result is asked for: half the steps of
`cb.exp`.
"""

from __future__ import annotations

import math

import cubepy as cb

LN_2 = math.log(2)
LOG2_E = 1 / LN_2
ROUND = 1.5 * 2.0**23 + 127
"""Added to a float it leaves the nearest integer, and 127 more, in the lowest bits."""

LOWEST, HIGHEST = -127 * LN_2, 128 * LN_2

TWO_TO = (
    1.0,
    0.6931472028551283,
    0.24022647913619588,
    0.05550332471026667,
    0.009618437358306076,
    0.0013398874445475356,
    0.00015353361812517514,
)
"""2 ** r for |r| <= 1/2, lowest power first; the greatest relative error is 2e-9."""


E_TO = tuple(c / LN_2**k for k, c in enumerate(TWO_TO))
"""e ** r for |r| <= ln 2 / 2, likewise."""


@cb.func
def power_of_two(x):
    """2 ** x for x <= 0, within 2e-7 of it; 0 from -126.5 on; NaN stays."""
    return scaled_power_of_two(cb.select(x < -127.0, -127.0, x))


@cb.func
def bounded_power_of_two(x):
    """2 ** x, within 2e-7 of it; 0 below -126.5, infinity above 127.5; NaN stays."""
    x = cb.select(x < -127.0, -127.0, x)
    return scaled_power_of_two(cb.select(x > 128.0, 128.0, x))


@cb.func
def scaled_power_of_two(x):
    """2 ** x for x from -127 (0) to 128 (infinity).

    The integer next to x is made into the bits of a power of two, a polynomial does the rest.
    """
    shifted = x + ROUND
    return scaled(powers(x - (shifted - ROUND), TWO_TO), shifted)


@cb.func
def exp_below_one(x):
    """e ** x for x <= 0, within 2e-7 of it; 0 from -87.7 on; NaN stays."""
    return scaled_exp(cb.select(x < LOWEST, LOWEST, x))


@cb.func
def bounded_exp(x):
    """e ** x, within 2e-7 of it; 0 below -87.7, infinity above 88.4; NaN stays."""
    x = cb.select(x < LOWEST, LOWEST, x)
    return scaled_exp(cb.select(x > HIGHEST, HIGHEST, x))


@cb.func
def scaled_exp(x):
    """e ** x in the same way. One product takes n * ln 2 off, whose constant is wrong by 2e-9."""
    shifted = cb.fma(x, LOG2_E, ROUND)
    return scaled(powers(cb.fma(shifted - ROUND, -LN_2, x), E_TO), shifted)


@cb.func
def scaled(y, shifted):
    """y times two to the power of the integer in the lowest bits of `shifted`."""
    return y * cb.bitcast(cb.bitcast(shifted, cb.i32) << 23, cb.f32)


@cb.func
def powers(r, coefficients: cb.Comptime[tuple]):
    """A polynomial of degree 6, by pairs."""
    square = r * r
    low = cb.fma(r, coefficients[1], coefficients[0])
    middle = cb.fma(r, coefficients[3], coefficients[2])
    high = cb.fma(square, coefficients[6], cb.fma(r, coefficients[5], coefficients[4]))
    return cb.fma(cb.fma(high, square, middle), square, low)
