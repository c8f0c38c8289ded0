"""Scans against NumPy in float64 or 64-bit integers: any axis, odd sizes, strides, NaN, empty
arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from tests.backends.cuda.thorough import some

F = np.float32
RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=F)


def close(got: np.ndarray, x: np.ndarray, axis: Any, exclusive: bool = False) -> None:
    """Errors are measured against the sum of magnitudes, which is what rounding is proportional to."""
    d = x.astype(np.float64)
    want, size = d.cumsum(axis), np.abs(d).cumsum(axis)
    if exclusive:
        want = want - (d if axis is not None else d.reshape(-1))
    assert got.shape == want.shape
    assert (np.abs(got - want) <= 2e-6 * size + 1e-30).all()


SHAPES = [
    (1,),
    (17,),
    (40000,),
    (3, 33),
    (70, 100),
    (2, 300, 40),
    (2, 5, 3),
    (1, 1000, 64),
    (5, 1, 2),
]


@pytest.mark.parametrize(
    ("shape", "exclusive"),
    [*((s, False) for s in SHAPES), *((s, True) for s in some(SHAPES, 1, 2, 5, 7))],
    ids=str,
)
def test_cumsum_along_every_axis(shape: tuple[int, ...], exclusive: bool) -> None:
    x = draw(*shape)
    for axis in (None, *range(-1, len(shape))):
        close(K.cumsum(x, axis, exclusive=exclusive), x, axis, exclusive)


def test_strided_input_and_output() -> None:
    x = draw(60, 80)
    for view in (x.T, x[::-1, ::2], x[:, ::-1], np.broadcast_to(x[:1], x.shape)):
        close(K.cumsum(view, 0), view, 0)
        close(K.cumsum(view, 1), view, 1)
    out = np.zeros((80, 60), F).T
    assert K.cumsum(x, 1, out=out) is out
    close(out, x, 1)
    y = x.copy()
    K.cumsum(y, 0, out=y)
    close(y, x, 0)


def test_integers_and_bools_sum_in_64_bits() -> None:
    x = RNG.integers(-100, 100, (7, 50)).astype(np.int8)
    got = K.cumsum(x, 1)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, x.cumsum(1))
    u = RNG.integers(0, 2**32, 100, dtype=np.uint32)
    np.testing.assert_array_equal(K.cumsum(u), u.cumsum())
    np.testing.assert_array_equal(K.cumsum(x > 0, 0), (x > 0).cumsum(0))
    np.testing.assert_array_equal(K.cumsum(np.arange(50000)), np.arange(50000).cumsum())


def test_narrow_floats_are_summed_in_f32() -> None:
    x = np.full(3000, 0.1, np.float16)
    got = K.cumsum(x)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype(float), x.astype(float).cumsum(), rtol=1e-3)


def test_cumprod() -> None:
    x = (1 + 0.1 * draw(5, 100)).astype(F)
    want = x.astype(np.float64).cumprod(1)
    np.testing.assert_allclose(K.cumprod(x, 1), want, rtol=2e-5)
    np.testing.assert_allclose(K.cumprod(x, 1, exclusive=True)[:, 1:], want[:, :-1], rtol=2e-5)
    assert (K.cumprod(x, 1, exclusive=True)[:, 0] == 1).all()
    wide = np.ones(40001, F)
    wide[[5, 30000]] = 2
    np.testing.assert_array_equal(K.cumprod(wide), wide.cumprod())


def test_nan_and_infinity_spread_forward_only() -> None:
    x = np.ones(100, F)
    x[40] = np.nan
    got = K.cumsum(x)
    assert np.isfinite(got[:40]).all() and np.isnan(got[40:]).all()
    x[40] = np.inf
    got = K.cumsum(np.stack([x, np.ones(100, F)], 1), 0)
    assert (
        np.isfinite(got[:40]).all() and np.isinf(got[40:, 0]).all() and np.isfinite(got[:, 1]).all()
    )


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = draw(3, 50000)
    with cb.config.override(serial_elements=0):
        parallel = K.cumsum(x, 1), K.cumsum(x.T, 0)
    with cb.config.override(serial_elements=1 << 40):
        serial = K.cumsum(x, 1), K.cumsum(x.T, 0)
    assert all(np.array_equal(a, b) for a, b in zip(parallel, serial, strict=True))


def test_empty_arrays_and_errors() -> None:
    assert K.cumsum(np.zeros((0, 3), F), 0).shape == (0, 3) and K.cumsum(
        np.zeros((2, 0), F), 1
    ).shape == (2, 0)
    with pytest.raises(errors.ShapeError, match="out of range"):
        K.cumsum(draw(3), 1)
