"""Wide numbers that become narrow floats: rounded once, to nearest even."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from cubepy.kernels.movement.copy import convert_into

RNG = np.random.default_rng(31)
KINDS = {"bf16": (ml_dtypes.bfloat16, 8, 127), "f16": (np.float16, 11, 15)}


def rounded(value: Fraction, digits: int, top: int) -> float:
    """The nearest float of so many binary digits whose largest exponent is `top`, ties to even."""
    if not value:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    step = Fraction(2) ** (max(exponent, 1 - top) - digits + 1)
    found = round(size / step) * step  # of a fraction: to even
    number = float(found) if found < Fraction(2) ** (top + 1) else float("inf")
    return -number if value < 0 else number


def near_ties(kind: type) -> np.ndarray:
    """Numbers of f64 halfway between two narrow ones, beside these, and of any size."""
    codes = RNG.integers(0, 1 << 16, 3000).astype(np.uint16)
    with np.errstate(all="ignore"):
        low, high = (c.view(kind).astype(np.float64) for c in (codes, codes + np.uint16(1)))
        ties = (low + high) / 2
        others = RNG.standard_normal(1000) * 10.0 ** RNG.integers(-50, 45, 1000)
        beside = [
            ties,
            np.nextafter(ties, np.inf),
            np.nextafter(ties, -np.inf),
            ties * (1 + 2**-40),
        ]
    drawn = np.concatenate([*beside, low, others, [5e-324, -5e-324, 1e300, -0.0, np.nan, np.inf]])
    return drawn.astype(np.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_f64_are_rounded_once(kind: str) -> None:
    dtype, digits, top = KINDS[kind]
    x = near_ties(dtype)
    out = np.empty(x.shape, dtype)
    convert_into(out, x)
    found = out.astype(np.float64)
    finite = np.isfinite(x)
    want = [rounded(Fraction(float(v)), digits, top) for v in x[finite]]
    np.testing.assert_array_equal(found[finite], want)
    np.testing.assert_array_equal(found[~finite], x[~finite])
    np.testing.assert_array_equal(np.signbit(found[finite]), np.signbit(x[finite]))


@pytest.mark.parametrize("source", ["i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("kind", KINDS)
def test_integers_are_rounded_once(kind: str, source: str) -> None:
    dtype, digits, top = KINDS[kind]
    bits = np.iinfo(source).bits - (source[0] == "i")
    lengths = RNG.integers(1, bits + 1, 6000)
    ints = []
    for length in lengths.tolist():
        drawn = int(RNG.integers(0, 1 << 62)) << 2 | int(RNG.integers(0, 4))
        value = drawn >> (64 - length) | 1 << (length - 1)
        if RNG.random() < 0.6 and length > digits + 1:  # a tie, or beside one
            cut = length - digits
            value = (value >> cut << cut | 1 << (cut - 1)) + int(RNG.integers(-1, 2))
        ints.append(-value if source[0] == "i" and RNG.random() < 0.5 else value)
    ends = np.iinfo(source)
    x = np.array([*ints, ends.min, ends.max, 0], source)
    out = np.empty(x.shape, dtype)
    convert_into(out, x)
    want = [rounded(Fraction(int(v)), digits, top) for v in x]
    np.testing.assert_array_equal(out.astype(np.float64), want)
