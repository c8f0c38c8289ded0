"""Random numbers in kernels, from a counter: Philox4x32-10, and what makes floats of its words.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A block of four words
depends on its number (the counter) and the key only, so that every unit computes its own, and all
backends give the same bits.
"""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import KernelTypeError
from cubepy.lang.builtins import BUILTINS
from cubepy.lang.declare import func
from cubepy.lang.dtypes import bf16, f16, f32, i32, u32, u64

LN_2 = math.log(2)

bitcast, cast, fma, sqrt, unroll = (
    BUILTINS[name] for name in ("bitcast", "cast", "fma", "sqrt", "unroll")
)


def zeros(what: str, given: int, words: int) -> tuple[int, ...]:
    """The words that a counter or key was not given.

    Raises:
        KernelTypeError: it was given none, or too many.
    """
    if not 1 <= given <= words:
        raise KernelTypeError(
            f"the {what} of cb.philox is 1 to {words} words, not {given}",
            hint="give a tuple of integers, the lowest word first",
        )
    return (0,) * (words - given)


@func
def multiply_wide(a: Any, factor: Any) -> Any:
    """The high and low words of a word, or of a line of them, times a constant."""
    product = cast(a, u64) * cast(factor, u64)
    return cast(product >> 32, u32), cast(product, u32)


@func
def mixed(words: Any, keys: Any) -> Any:
    """One round."""
    high0, low0 = multiply_wide(words[0], 0xD2511F53)
    high1, low1 = multiply_wide(words[2], 0xCD9E8D57)
    return high1 ^ words[1] ^ keys[0], low1, high0 ^ words[3] ^ keys[1], low0


@func
def bumped(keys: Any, times: Any) -> Any:
    """The keys of a later round."""
    low, high = (0x9E3779B9 * times) % 2**32, (0xBB67AE85 * times) % 2**32
    return keys[0] + u32(low), keys[1] + u32(high)


@func
def philox(counter: Any, key: Any) -> Any:
    """Four random u32 from a counter and a key: Philox4x32-10.

    Args:
        counter: tuple of 1 to 4 integers or lines of integers, the lowest word first; words that
            are not given are 0.
        key: tuple of 1 or 2 integers, likewise: the seed.

    Returns:
        A tuple of four u32, or of lines of them.

    Raises:
        KernelTypeError: a counter or key that is no tuple, or has too many words.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.kernel
        ... def draw(out: cb.Array):
        ...     i = cb.ABSOLUTE_POS
        ...     for word in cb.unroll(range(4)):
        ...         out[i, word] = cb.philox((i,), (7,))[word]
        >>> out = np.zeros((2, 4), np.uint32)
        >>> draw[cb.over(2)](out)
        >>> print(out)
        [[4099963437 3221879260  490388034  367897730]
         [1747881627 3415718931  737869675 4113952422]]
    """
    c0, c1, c2, c3 = counter + zeros("counter", len(counter), 4)
    k0, k1 = key + zeros("key", len(key), 2)
    words = (cast(c0, u32), cast(c1, u32), cast(c2, u32), cast(c3, u32))
    keys = (cast(k0, u32), cast(k1, u32))
    # after three rounds each word depends on every other one: if one is a line, all are
    first = mixed(mixed(mixed(words, keys), bumped(keys, 1)), bumped(keys, 2))
    for times in unroll(range(3, 10)):
        first = mixed(first, bumped(keys, times))
    return first


@func
def to_uniform(word: Any, dtype: Any = f32) -> Any:
    """A random u32 as an f32 of [0, 1), evenly spaced by what `dtype` (f32, f16 or bf16) holds
    exactly.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.kernel
        ... def draw(words: cb.Array, out: cb.Array):
        ...     out[cb.ABSOLUTE_POS] = cb.to_uniform(words[cb.ABSOLUTE_POS])
        >>> out = np.zeros(2, np.float32)
        >>> draw[cb.over(2)](np.array([1 << 31, 0], np.uint32), out)
        >>> print(out)
        [0.5 0. ]
    """
    bits = 11 if dtype == f16 else (8 if dtype == bf16 else 24)
    return cast(word >> (32 - bits), f32) * (2.0**-bits)


@func
def radius(words: Any) -> Any:
    """sqrt(-2 log(u)) for u = (word + 1/2) / 2^32, by steps that round alike everywhere.

    The polynomial is our own fit of -2 log(1 + f) / f on sqrt(1/2) - 1 to sqrt(2) - 1, within 2e-7
    of its value.
    """
    u = fma(cast(words, f32), 2.0**-32, 2.0**-33)
    bits = bitcast(u, u32)
    exponent = (bits - u32(0x3F3504F3)) & u32(
        0xFF800000
    )  # such that the rest is sqrt(1/2) to sqrt(2)
    f = bitcast(bits - exponent, f32) - 1.0
    p = fma(f, 0.20211611688137054, -0.32444265484809875)
    for c in unroll(
        (
            0.34501978754997253,
            -0.39800456166267395,
            0.49939805269241333,
            -0.6667011380195618,
            1.0000072717666626,
            -1.9999998807907104,
        )
    ):
        p = fma(p, f, c)
    exponents = cast(bitcast(exponent, i32), f32)
    return sqrt(fma(exponents, -2 * LN_2 * 2.0**-23, p * f))


@func
def sine_cosine(words: Any) -> Any:
    """sin and cos of a turn in 2^32 steps: of half a turn around 0, mirrored by the highest bit
    (own fits, 5e-8).
    """
    x = cast(bitcast(words << 1, i32), f32) * 2.0**-31
    s = x * x
    sine = fma(s, 0.00015082051686476916, -0.004672227893024683)
    for c in unroll((0.07968848198652267, -0.6459633708000183, 1.570796251296997)):
        sine = fma(sine, s, c)
    cosine = fma(s, 0.0008581904694437981, -0.020810626447200775)
    for c in unroll((0.2536507546901703, -1.2336982488632202, 0.9999999403953552)):
        cosine = fma(cosine, s, c)
    return sine * x, bitcast(bitcast(cosine, u32) ^ (words & u32(1 << 31)), f32)


@func
def to_normal(first: Any, second: Any) -> Any:
    """Two f32 of the standard normal distribution, from two random u32 (Box and Muller, 1958).

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.kernel
        ... def draw(out: cb.Array):
        ...     i = cb.ABSOLUTE_POS
        ...     a, b, c, d = cb.philox((i,), (0,))
        ...     out[2 * i], out[2 * i + 1] = cb.to_normal(a, b)
        >>> out = np.zeros(512, np.float32)
        >>> draw[cb.over(256)](out)
        >>> print(abs(out.mean()) < 0.1, abs(out.std() - 1) < 0.1)
        True True
    """
    r = radius(first)
    sine, cosine = sine_cosine(second)
    return r * cosine, r * sine
