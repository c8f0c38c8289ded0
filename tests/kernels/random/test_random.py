"""Random numbers: the published vectors, moments, the same numbers in any cut of the work,
refusals.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from cubepy.kernels.random.distributions import fill
from tests.staging import DEVICES

# Rows "philox4x32 10" of tests/kat_vectors in Random123 1.14.0
# (github.com/DEShawResearch/random123): counter (4 words), key (2 words), result (4 words).
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_philox_gives_the_published_vectors(
    counter: tuple, key: tuple, want: tuple, device: str
) -> None:
    out = np.zeros(4, np.uint32)
    low, high = counter[0] | counter[1] << 32, counter[2] | counter[3] << 32
    lanes = 2 if device == "python" else cb.device_properties_of().register_bytes // 4
    state = np.array((key[0] | key[1] << 32, high, low), np.uint64)
    fill[1, 1](out, None, state, np.zeros(2, np.float32), "words", 4, lanes, 1, device=device)
    assert tuple(out.tolist()) == want


def test_a_seed_repeats_its_numbers_and_others_give_others() -> None:
    a, b = K.Generator(5), K.Generator(5)
    first, second = K.uniform(size=100, generator=a), K.uniform(size=100, generator=a)
    np.testing.assert_array_equal(first, K.uniform(size=100, generator=b))
    np.testing.assert_array_equal(second, K.uniform(size=100, generator=b))
    assert not (first == second).any()
    assert not (K.uniform(size=100, generator=K.Generator(6)) == first).any()
    assert not (K.uniform(size=100, generator=K.Generator(5, stream=1)) == first).any()
    b.offset = 25
    np.testing.assert_array_equal(second, K.uniform(size=100, generator=b))
    K.manual_seed(5)
    np.testing.assert_array_equal(first, K.uniform(size=100))


def test_numbers_do_not_depend_on_how_the_work_is_cut() -> None:
    whole = K.normal(size=70001, generator=K.Generator(3))
    for n in (1, 3, 65, 4097):
        np.testing.assert_array_equal(K.normal(size=n, generator=K.Generator(3)), whole[:n])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16], ids=str)
def test_moments_and_ranges(dtype: type) -> None:
    g, n = K.Generator(1), 1 << 17
    u = K.uniform(-2, 3, n, generator=g, dtype=dtype).astype(np.float64)
    assert (
        u.min() >= -2
        and u.max() <= 3
        and abs(u.mean() - 0.5) < 0.02
        and abs(u.var() - 25 / 12) < 0.03
    )
    z = K.normal(1, 2, n, generator=g, dtype=dtype).astype(np.float64)
    assert abs(z.mean() - 1) < 0.03 and abs(z.std() - 2) < 0.03
    assert abs((((z - 1) / 2) ** 4).mean() - 3) < 0.15
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 0.02


def test_uniform_numbers_fill_the_unit_interval_evenly() -> None:
    counts, _ = np.histogram(K.uniform(size=1 << 18, generator=K.Generator(2)), 64, (0, 1))
    expected = (1 << 18) / 64
    assert ((counts - expected) ** 2 / expected).sum() < 110  # chi-squared with 63 degrees: 0.02 %


def test_normal_numbers_are_box_and_mullers() -> None:
    n = 4096
    words = np.zeros(n, np.uint32)
    fill[1, 1](
        words, None, np.array((9, 0, 0), np.uint64), np.zeros(2, np.float32), "words", 4, 16, 64
    )
    pairs = words.reshape(-1, 2).astype(np.float64)
    r = np.sqrt(-2 * np.log((pairs[:, 0] + 0.5) / 2**32))
    angle = np.pi / 2**31 * (words[1::2] << 1).view(np.int32) / 2
    mirror = 1.0 - 2.0 * (words[1::2] >> 31)
    want = np.stack([r * np.cos(angle) * mirror, r * np.sin(angle)], 1).reshape(-1)
    np.testing.assert_allclose(K.normal(size=n, generator=K.Generator(9)), want, rtol=0, atol=2e-6)


def test_bernoulli_follows_its_probabilities() -> None:
    g = K.Generator(4)
    assert (
        K.bernoulli(0.0, 1000, generator=g).sum() == 0
        and K.bernoulli(1.0, 1000, generator=g).sum() == 1000
    )
    p = np.linspace(0, 1, 5, dtype=np.float32)[:, None] * np.ones(20000, np.float32)
    np.testing.assert_allclose(K.bernoulli(p, generator=g).mean(1), p[:, 0], atol=0.015)
    assert K.bernoulli(p[:, ::2], generator=g).shape == (5, 10000)


def test_integers_cover_their_interval_evenly() -> None:
    g = K.Generator(8)
    x = K.randint(-3, 4, (300, 100), generator=g)
    assert x.dtype == np.int64 and x.shape == (300, 100)
    counts = np.bincount(x.reshape(-1) + 3)
    assert len(counts) == 7 and abs(counts / 30000 - 1 / 7).max() < 0.01
    assert K.randint(256, size=1000, generator=g, dtype=np.uint8).max() > 240
    wide = K.randint(-(2**63), 2**63 - 1, 1000, generator=g).astype(np.float64)
    assert wide.min() < -(2**62) and wide.max() > 2**62


def test_shapes_and_outputs() -> None:
    assert K.uniform(size=(0, 3)).shape == (0, 3) and K.normal().shape == ()
    out = np.zeros((5, 7), np.float32).T
    assert K.uniform(1, 2, out=out) is out and (out >= 1).all()
    many = np.zeros(64, np.float32)
    for mode in (
        "unchecked",
        "validate",
    ):  # the last line ends behind the output: no setting may let it
        with cb.config.override(mode=mode):
            K.uniform(1, 2, out=many[:3])
    assert (many[:3] >= 1).all() and not many[3:].any()


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(errors.ShapeError, match="std"):
        K.normal(0, -1, 3)
    with pytest.raises(errors.ShapeError, match="low < high"):
        K.randint(3, 3, 3)
    with pytest.raises(errors.DTypeError, match="does not hold"):
        K.randint(0, 300, 3, dtype=np.uint8)
    with pytest.raises(errors.ShapeError, match="between 0 and 1"):
        K.bernoulli(1.5, 3)
    with pytest.raises(errors.DTypeError, match="floats"):
        K.uniform(size=3, dtype=np.int32)
    with pytest.raises(errors.ShapeError, match="size"):
        K.uniform(size=-1)


def test_bernoulli_of_more_probabilities_than_there_is_memory_for() -> None:
    for p in (np.broadcast_to(np.float32(0.5), (1 << 44,)), np.broadcast_to(0.5, (2, 1 << 43))):
        with pytest.raises(errors.OutOfMemoryError):
            K.bernoulli(p)
