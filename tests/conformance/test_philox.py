"""Random numbers in kernels: the words of Random123, the same on every backend, and those of the
library.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K

KNOWN = [  # Random123's known answers of philox4x32 with 10 rounds: counter, key, words
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@cb.kernel
def blocks(counter: cb.Array, key: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    c, k = counter, key
    words = cb.philox((c[i, 0], c[i, 1], c[i, 2], c[i, 3]), (k[i, 0], k[i, 1]))
    for n in cb.unroll(range(4)):
        out[i, n] = words[n]


def test_philox_gives_the_known_answers(device: str) -> None:
    counter, key, words = (np.array([row[k] for row in KNOWN], np.uint32) for k in range(3))
    out = np.zeros((3, 4), np.uint32)
    blocks[1, 3](counter, key, out, device=device)
    np.testing.assert_array_equal(out, words)


@cb.kernel
def lines(counter: cb.Array, high, out: cb.Array, *, lanes: cb.Comptime[int]):
    words = cb.philox((counter.load(0, lanes), high), (7,))
    for n in cb.unroll(range(4)):
        out.store((n, 0), words[n])
    for i in range(lanes):
        alone = cb.philox((counter[i], high, 0, 0), (7, 0))
        for n in cb.unroll(range(4)):
            out[n, lanes + i] = alone[n]


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
def test_lines_of_counters_give_what_scalars_give(device: str, dtype: type) -> None:
    out = np.zeros((4, 16), np.uint32)
    lines[1, 1](np.arange(8, dtype=dtype) * 5, 3, out, lanes=8, device=device)
    np.testing.assert_array_equal(out[:, :8], out[:, 8:])
    assert np.unique(out).size == 32


@cb.kernel
def numbers(seed: cb.Array, uniform: cb.Array, normal: cb.Array):
    i = cb.ABSOLUTE_POS
    key = (cb.cast(seed[0], cb.u32), cb.cast(seed[0] >> 32, cb.u32))
    words = cb.philox((i,), key)
    for n in cb.unroll(range(4)):
        uniform[4 * i + n] = cb.to_uniform(words[n])
    normal[4 * i], normal[4 * i + 1] = cb.to_normal(words[0], words[1])
    normal[4 * i + 2], normal[4 * i + 3] = cb.to_normal(words[2], words[3])


def test_a_kernel_draws_the_numbers_of_the_library(device: str) -> None:
    seed = 0x123456789ABCDEF
    uniform, normal = np.zeros((2, 400), np.float32)
    numbers[100, 1](np.array([seed], np.uint64), uniform, normal, device=device)
    np.testing.assert_array_equal(uniform, K.uniform(size=400, generator=K.Generator(seed)))
    np.testing.assert_array_equal(normal, K.normal(size=400, generator=K.Generator(seed)))


@cb.kernel
def crowded(out: cb.Array):
    out[0] = cb.philox((1, 2, 3, 4, 5), (1,))[0]


@cb.kernel
def keyless(out: cb.Array):
    out[0] = cb.philox((1,), ())[0]


@cb.kernel
def plain(out: cb.Array):
    out[0] = cb.philox((1,), 7)[0]


@pytest.mark.parametrize(
    ("kernel", "rule"),
    [
        (crowded, "the counter of cb.philox is 1 to 4 words, not 5"),
        (keyless, "the key of cb.philox is 1 to 2 words, not 0"),
        (plain, "7 has no length"),
    ],
)
def test_wrong_counters_and_keys_are_named(device: str, kernel: Any, rule: str) -> None:
    with pytest.raises(errors.KernelTypeError, match=rule):
        kernel[1, 1](np.zeros(1, np.uint32), device=device)


@cb.kernel
def spaced(words: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i, 0] = cb.to_uniform(words[i])
    out[i, 1] = cb.to_uniform(words[i], cb.f16)
    out[i, 2] = cb.to_uniform(words[i], cb.bf16)


def test_uniform_numbers_lie_below_1_in_every_dtype(device: str) -> None:
    out = np.zeros((2, 3), np.float32)
    spaced[1, 2](np.array([0, 0xFFFFFFFF], np.uint32), out, device=device)
    np.testing.assert_array_equal(out, [[0, 0, 0], [1 - 2.0**-24, 1 - 2.0**-11, 1 - 2.0**-8]])
