"""What products are joined with: a residual behind the activation, one before it, a gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
import cubepy.testing
from cubepy import kernels as K
from cubepy.errors import ArgumentError, DTypeError, ShapeError
from tests.backends.cuda.thorough import THOROUGH
from tests.turns import TURN

RNG = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)
SHAPES = [(1, 64, 64), (3, 700, 40), (7, 100, 33), (64, 48, 96), (200, 300, 100), (16, 8192, 16)]
"""M, K, N: few rows with the matrix either way, tiles, tiles that gather, parts of K."""
ENDS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "residual": lambda f, sums, other: f(sums) + other,
    "add": lambda f, sums, other: f(sums + other),
    "gate": lambda f, sums, other: f(sums) * other,
}
FUNCTIONS: dict[str | None, Callable[[Any], Any]] = {
    None: lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "silu": lambda v: v / (1 + np.exp(-v)),
}


DTYPES = (np.dtype(np.float32), np.dtype(np.float16), BF16)


def joined_by(shape: tuple[int, int, int], dtype: Any) -> list[tuple[str, str | None]]:
    """What a product is joined with: every shape and every dtype meets each way and each function
    in time, a third of them at once.
    """
    turn = SHAPES.index(shape) + DTYPES.index(dtype) + TURN // 3
    found = [(i + j, way, name) for i, way in enumerate(ENDS) for j, name in enumerate(FUNCTIONS)]
    return [(way, name) for k, way, name in found if THOROUGH or k % 3 == turn % 3]


@pytest.mark.turns(3)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_way_to_a_product(shape: tuple[int, int, int], dtype: Any) -> None:
    m, k, n = shape
    x, w, b, other = (RNG.standard_normal(s) for s in ((m, k), (k, n), (n,), (m, n)))
    x, w, b, other = (v.astype(dtype) for v in (x / np.sqrt(k), w, b, other))
    sums, plus = x.astype(np.float64) @ w.astype(np.float64) + b, other.astype(np.float64)
    matrices = [w, np.ascontiguousarray(w.T).T]
    if dtype == np.float32:
        matrices.append(K.prepack(w))
    unit = {np.dtype(np.float32): 2e-5, BF16: 1e-2}.get(dtype, 2e-3)
    for joined, name in joined_by(shape, dtype):
        want = ENDS[joined](FUNCTIONS[name], sums, plus)
        for matrix in matrices:
            got = K.matmul(x, matrix, bias=b, activation=name, **{joined: other})
            assert got.dtype == dtype
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=unit, atol=5 * unit)


def test_a_mask_comes_last() -> None:
    x, w, other = (RNG.standard_normal(s, np.float32) for s in ((9, 5), (5, 7), (9, 7)))
    got = K.matmul(x, w, activation="relu", gate=other, mask=other > 0, fill=3.0)
    want = np.where(other > 0, np.maximum(x @ w, 0) * other, 3.0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_batches() -> None:
    x, w, other = (RNG.standard_normal(s, np.float32) for s in ((3, 9, 5), (3, 5, 7), (3, 9, 7)))
    got = K.matmul(x, w, add=other, activation="relu")
    np.testing.assert_allclose(got, np.maximum(x @ w + other, 0), rtol=1e-5, atol=1e-5)


def test_what_is_refused() -> None:
    x, other = np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)
    with pytest.raises(ArgumentError, match="residual and gate"):
        K.matmul(x, x, residual=other, gate=other)
    with pytest.raises(ShapeError, match="gate has shape"):
        K.matmul(x, x, gate=np.ones((3, 2), np.float32))
    with pytest.raises(DTypeError, match="epilogue"):
        K.matmul(x.astype("f8"), x.astype("f8"), add=other.astype("f8"))


def test_gradients_of_gates_and_of_what_is_added() -> None:
    x, w, other = (
        cb.tensor(RNG.standard_normal(s), requires_grad=True) for s in ((3, 4), (4, 5), (3, 5))
    )
    cb.testing.gradcheck(lambda a, b, c: K.matmul(a, b, activation="silu", gate=c), (x, w, other))
    cb.testing.gradcheck(lambda a, b, c: K.matmul(a, b, activation="silu", add=c), (x, w, other))
