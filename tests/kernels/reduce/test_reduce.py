"""Extremes and their places in every order of lines, pieces and tails: NaN, infinities of both
signs, equals.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.kernels.primitives.register_transpose import transpose_lines
from cubepy.kernels.primitives.vector_width import STREAMING_BYTES
from tests.backends.cuda.thorough import some
from tests.staging import WHERE

F = np.float32
SHAPES = ((3, 7), (300, 17), (1, 33000))
CARE = {
    "none": (),
    "nan": (np.nan,),
    "infinities": (np.inf, -np.inf),
    "both": (np.nan, np.inf, -np.inf),
}


def agree(x: np.ndarray, *names: str) -> None:
    """As NumPy finds them; it compares narrow floats in float64 here."""
    d = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    for axis in (None, *range(x.ndim)):
        for name in names or ("max", "min", "argmax", "argmin"):
            got, want = getattr(K, name)(x, axis), getattr(np, name)(d, axis)
            np.testing.assert_array_equal(
                np.asarray(got).astype(np.asarray(want).dtype), want, f"{name} {axis}"
            )


@pytest.mark.parametrize("care", CARE)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_extremes_and_their_places(shape: tuple[int, ...], care: str) -> None:
    random = np.random.default_rng(len(care) + len(shape))
    x = np.round(random.standard_normal(shape) * 3).astype(F)  # many are equal
    for value in CARE[care]:
        x.reshape(-1)[random.integers(0, x.size, 3)] = value
    agree(x)


DTYPES = (np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.uint8)


@pytest.mark.parametrize("dtype", some(DTYPES, 1, 2, 4), ids=str)
def test_extremes_in_other_dtypes(dtype: Any) -> None:
    random = np.random.default_rng(1)
    x = (random.standard_normal((5, 300)) * 50).astype(dtype)
    if np.dtype(dtype).kind not in "iu":
        x[1, 17], x[2, 250] = np.nan, -np.inf
    agree(x, "max", "argmin")


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_extremes_of_rows_of_one_value(value: float) -> None:
    agree(np.full((3, 7), value, F))


@given(st.data())
@settings(deadline=None, max_examples=15)
def test_one_element_stands_out(data: Any) -> None:
    """Wherever it is: in a line, behind the lines, in another piece."""
    m, n = data.draw(st.sampled_from([(1, 2100), (3, 1050)]))
    x = np.zeros((m, n), F)
    x[data.draw(st.integers(0, m - 1)), data.draw(st.integers(0, n - 1))] = data.draw(
        st.sampled_from([1, -1, np.nan])
    )
    for name in ("max", "argmax", "argmin"):
        np.testing.assert_array_equal(getattr(K, name)(x, 1), getattr(np, name)(x, 1))


def test_backends_agree_on_extremes_and_activations() -> None:
    x = np.array([[1.5, np.nan, -2.0, 0.25] * 5, [3.0, -np.inf, np.inf, 3.0] * 5], F)
    small = np.nan_to_num(x, posinf=9, neginf=-9)
    done = K.max(x, 1), K.min(x, 0), K.argmax(x, 1), K.argmin(x, 0)
    near = K.map(cb.tanh, small), K.gelu(small), K.gelu(small, "tanh")
    with cb.use("python"):
        same = K.max(x, 1), K.min(x, 0), K.argmax(x, 1), K.argmin(x, 0)
        others = K.map(cb.tanh, small), K.gelu(small), K.gelu(small, "tanh")
    for got, want in zip(done, same, strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(near, others, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_tanh_within_two_units_of_the_last_place() -> None:
    for dtype, wider in ((np.float32, np.float64), (np.float64, np.longdouble)):
        x = np.concatenate([np.linspace(-12, 12, 20001), np.geomspace(1e-30, 30, 2001)]).astype(
            dtype
        )
        exact = np.tanh(x.astype(wider))
        got = K.map(cb.tanh, x)
        assert (
            np.abs(got - exact) <= 2 * np.spacing(np.abs(exact).astype(dtype))
        ).all() and np.abs(got).max() == 1
    ends = K.map(cb.tanh, np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1e-45], F))
    np.testing.assert_array_equal(ends, np.array([0.0, -0.0, 1, -1, np.nan, -1e-45], F))
    assert np.signbit(ends[1])


def test_gelu_far_from_zero() -> None:
    x = np.array([np.inf, 1e30, 20, -20, -1e30, 0.0, np.nan], F)
    for form in ("none", "tanh"):
        assert K.gelu(x, form).tolist()[:6] == [np.inf, F(1e30), 20, 0, 0, 0] and np.isnan(
            K.gelu(x, form)[6]
        )


@pytest.mark.skipif(bool(WHERE), reason="GPUs have forms of their own")
def test_errors_of_activations() -> None:
    x = np.concatenate(
        [np.linspace(-9, 9, 40001), np.geomspace(1e-30, 5, 2001), -np.geomspace(1e-30, 5, 2001)]
    ).astype(F)
    d = x.astype(np.float64)
    cube = np.sqrt(2 / np.pi) * (d + 0.044715 * d**3)
    exact = {
        "gelu": d * 0.5 * np.array([math.erfc(-v / math.sqrt(2)) for v in d]), "silu": d / (1 + np.exp(-d)),
        "gelu_tanh": d / (1 + np.exp(-2 * cube)), "sigmoid": 1 / (1 + np.exp(-d)),
    }  # fmt: skip
    for name, want in exact.items():
        off = np.abs(K.map(ACTIVATIONS[name], x) - want)
        assert (off <= 8e-8 + 2.5 * np.spacing(np.abs(want).astype(F)) * (x > 0)).all(), name
        assert (off <= 6e-7 * np.abs(want))[np.abs(x) < 1].all(), name  # near zero, too


@pytest.mark.skipif(bool(WHERE), reason="GPUs have forms of their own")
def test_ends_of_activations() -> None:
    x = np.array([-np.inf, -1e38, -100, -0.0, 100, 1e38, np.inf, np.nan], F)
    sigmoid = [0, 0, 0, 0.5, 1, 1, 1, np.nan]
    np.testing.assert_array_equal(K.map(ACTIVATIONS["sigmoid"], x), np.array(sigmoid, F))
    for name in ("silu", "gelu", "gelu_tanh"):
        got = K.map(ACTIVATIONS[name], x)
        np.testing.assert_array_equal(
            got, np.array([np.nan, 0, 0, 0, 100, F(1e38), np.inf, np.nan], F), name
        )
        assert np.signbit(got[3])


@pytest.mark.parametrize("columns", [64, 100, 1024])
@pytest.mark.parametrize("rows", [65, 512, 1024])
def test_extremes_of_columns_with_nan(rows: int, columns: int) -> None:
    """Lines in registers, pairs of rows, and a row that is left."""
    x = np.random.default_rng(rows + columns).standard_normal((rows, columns)).astype(F)
    agree(x, "max", "min")
    x[0, 1], x[rows - 1, 2], x[rows // 2, columns - 1], x[1, 3], x[2, 3] = (
        np.nan,
        np.nan,
        np.nan,
        np.inf,
        -np.inf,
    )
    x[:, 5] = -np.inf
    agree(x, "max", "min")


@pytest.mark.skipif(bool(WHERE), reason="about lines on a CPU")
@pytest.mark.parametrize("dtype", [F, np.float64, np.int16, np.uint8])
def test_ragged_squares_are_turned(dtype: Any) -> None:
    for shape in ((65, 63), (2, 70, 200), (128, 256), (37, 1000)):
        x = np.random.default_rng(3).integers(0, 250, shape).astype(dtype)
        for part in (x, x[..., 1:], x[..., ::2, :]):
            np.testing.assert_array_equal(K.copy(part.swapaxes(-1, -2)), part.swapaxes(-1, -2))


@cb.kernel
def turn(x: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    lines = ()
    for r in cb.unroll(range(lanes)):
        lines = lines + (x.load((r, 0), lanes),)
    turned = transpose_lines(lines, lanes)
    for r in cb.unroll(range(lanes)):
        out.store((r, 0), turned[r])


@pytest.mark.skipif(bool(WHERE), reason="about lines on a CPU")
@pytest.mark.parametrize("dtype", [F, np.float64, np.int16, np.uint8])
def test_lines_are_turned_by_one_shuffle_for_each_line_and_round(dtype: Any) -> None:
    for lanes in (2, 4, 8, 16):
        x = (np.arange(lanes * lanes) % 251).reshape(lanes, lanes).astype(dtype)
        out = np.zeros_like(x)
        turn[1, 1](x, out, lanes)
        np.testing.assert_array_equal(out, x.T)
    x = np.zeros((8, 8), dtype)
    assert turn[1, 1].inspect(x, x.copy(), 8, mode="unchecked").llvm.count("shufflevector") <= 24


@pytest.mark.skipif(bool(WHERE), reason="about the caches of a CPU")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_places_in_short_rows(dtype: Any) -> None:
    """Equals, NaN, and rows in which nothing is better than the worst there is."""
    rng = np.random.default_rng(3)
    for n in (1, 8, 31, 33, 100, 257):
        x = rng.integers(-3, 3, (37, n)).astype(dtype)
        x[1] = -np.inf if x.dtype.kind == "f" else np.iinfo(dtype).min
        x[2] = np.inf if x.dtype.kind == "f" else np.iinfo(dtype).max
        if x.dtype.kind == "f":
            x[3:9][rng.random((6, n)) < 0.2] = np.nan
            x[9:15][rng.random((6, n)) < 0.5] = np.inf
            x[12:15][rng.random((3, n)) < 0.5] = -np.inf
        np.testing.assert_array_equal(K.argmax(x, 1), x.argmax(1))
        np.testing.assert_array_equal(K.argmin(x, 1), x.argmin(1))


def test_large_results_past_the_caches() -> None:
    n = 4096
    x = np.random.default_rng(2).standard_normal((STREAMING_BYTES // 4 // n + 1, n), dtype=F)
    d = x[-1].astype(np.float64)
    got = K.layer_norm(x, n)
    np.testing.assert_allclose(got[-1], (d - d.mean()) / np.sqrt(d.var() + 1e-5), atol=2e-5)
    e = np.exp(d - d.max())
    np.testing.assert_allclose(K.softmax(x)[-1], e / e.sum(), atol=1e-7)
    np.testing.assert_allclose(
        K.map(cb.tanh, x.reshape(-1)[:-3])[-n + 3 :], np.tanh(d[:-3]), atol=1e-6
    )
    np.testing.assert_array_equal(K.transpose(x), x.T)
    x[1, 3], x[2, 4], x[3, 5:] = np.nan, np.inf, -np.inf
    got = K.softmax(x)
    assert np.isnan(got[1:3]).any(1).all() and not np.isnan(got[[0, *range(3, len(x))]]).any()
    assert not got[3, 5:].any() and abs(got[3].sum() - 1) < 1e-6


@pytest.mark.parametrize("dtype", [F, np.float64, np.float16], ids=str)
def test_places_of_rows_with_both_infinities_do_not_depend_on_what_lies_behind(dtype: Any) -> None:
    """The sum of such a row is NaN, but no element is; the memory behind it holds NaN here."""
    for n in (32, 48, 1040, 2000, 4096):
        memory = np.full(n + 64, np.nan, dtype)
        x = memory[:n]
        x[:] = np.arange(n) % 7
        x[n // 32 * 16], x[0] = -np.inf, np.inf  # in one lane of every width
        for shaped in (x, x.reshape(1, n)):
            np.testing.assert_array_equal(K.argmin(shaped, -1), np.argmin(shaped, -1))
            np.testing.assert_array_equal(K.argmax(shaped, -1), np.argmax(shaped, -1))
