"""A product with a packed matrix is the product with the matrix, whatever dtypes meet and whatever
is asked for.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import CubeError, DTypeError
from tests.backends.cuda.thorough import some
from tests.staging import WHERE

F32, BF16 = np.float32, ml_dtypes.bfloat16
FLOATS: list[Any] = [np.float16, BF16, F32]
ALL: list[Any] = [*FLOATS, np.float64, np.int8, np.uint8, np.int32, np.int64]


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def outcome(call: Any) -> Any:
    try:
        return call()
    except CubeError as error:
        return type(error)


def strided(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """The same numbers in order, reversed, with gaps, or the other way round in memory."""
    how = rng.integers(4)
    if how == 0:
        return x
    if how == 1:
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    if how == 2:
        return np.repeat(x, 2, -1)[..., ::2]
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


PAIRS = [(a, b) for a in ALL for b in ALL]


@pytest.mark.parametrize(
    "a, b", some(PAIRS, *range(0, len(PAIRS), 7)), ids=lambda d: np.dtype(d).name
)
def test_dtypes_are_those_of_the_matrix_itself(a: Any, b: Any) -> None:
    rng = np.random.default_rng(len(np.dtype(a).name) + 8 * len(np.dtype(b).name))
    for asked in (None, cb.f32, cb.i32, cb.f64):
        m, k, n = (int(v) for v in rng.integers(1, 40, 3))
        x, y = strided(rng, draw(rng, (2, m, k), a)), strided(rng, draw(rng, (k, n), b))
        packed = K.prepack(y)
        wanted = outcome(lambda: K.matmul(x, y, dtype=asked))
        for _ in range(3):  # later calls repeat the first ones
            found = outcome(lambda: K.matmul(x, packed, dtype=asked))
            if (
                b in FLOATS
                and isinstance(wanted, np.ndarray)
                and wanted.dtype == np.float64
                and not WHERE
            ):
                assert found is DTypeError, "panels hold f32"
            elif isinstance(wanted, np.ndarray):
                assert found.dtype == wanted.dtype
                np.testing.assert_allclose(
                    found.astype(float), wanted.astype(float), rtol=1e-2, atol=1e-1
                )
            else:
                assert found is wanted


def test_sums_of_packed_integers_and_doubles_are_exact() -> None:
    bytes_ = np.full((3, 300), 100, np.int8), np.full((300, 5), 100, np.int8)
    assert (K.matmul(bytes_[0], K.prepack(bytes_[1]), dtype=cb.i32) == 3_000_000).all()
    large = np.array([[2**40 + 1, 1]]), np.array([[1], [2]])
    assert K.matmul(large[0], K.prepack(large[1])).tolist() == [[2**40 + 3]]
    tiny = np.array([[1.0, 1e-12]]), np.array([[1.0], [1.0]])
    assert K.matmul(tiny[0], K.prepack(tiny[1])).tolist() == [[1 + 1e-12]]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_epilogues_outputs_and_empty_lengths(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    for m, k, n in ((5, 7, 9), (0, 3, 4), (3, 0, 4), (3, 4, 0)):
        x, y, bias, rest = (draw(rng, s, dtype) for s in ((m, k), (k, n), (n,), (m, n)))
        keep = rng.integers(0, 2, (m, n)).astype(bool)
        options = dict(bias=bias, residual=rest, activation="relu", alpha=0.5, mask=keep, fill=-1.0)
        for asked in (dtype, F32):
            want = K.matmul(x, y, **options, dtype=asked)
            out = np.empty((n, m), asked).T
            assert K.matmul(x, K.prepack(y), **options, dtype=asked, out=out) is out
            np.testing.assert_allclose(out.astype(float), want.astype(float), rtol=1e-2, atol=1e-2)
        if np.dtype(dtype).itemsize < 4:
            with pytest.raises(DTypeError, match="out has dtype float32"):
                K.matmul(x, K.prepack(y), out=np.empty((m, n), F32))
