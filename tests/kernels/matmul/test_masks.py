"""Products where a mask says which results are wanted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import DTypeError, ShapeError
from tests.kernels.matmul.matrices import FLOATS, laid_out


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from([1, 13]),
    st.sampled_from([0, 1, 64, 70]),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 99),
)
def test_where_the_mask_is_false_the_result_is_the_fill(
    m: int, n: int, form: int, more: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    dtype, tolerance = FLOATS["bf16" if more else "f32"]
    a, b = (laid_out(rng, s, dtype, "rows") for s in ((m, 30), (30, n)))
    bias, residual = rng.standard_normal(n).astype(dtype), rng.standard_normal((m, n)).astype(dtype)
    mask = rng.random(((m, n), (n,), (m, 1), (1, 1), (n, m))[form]) < 0.5
    if form == 4:
        mask = mask.T
    exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64) * 2 + bias.astype(np.float64), 0)
    fill = -np.inf if more else 0.0
    expected = np.where(mask, exact + more * residual.astype(np.float64), fill)
    for _ in range(3):
        found = K.matmul(
            a,
            b,
            bias=bias,
            activation="relu",
            residual=residual if more else None,
            alpha=2.0,
            mask=mask,
            fill=fill,
        )
        np.testing.assert_allclose(
            found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 30
        )


def test_masks_of_batches_vectors_integers_and_packed_matrices() -> None:
    rng = np.random.default_rng(6)
    a, b = (
        rng.standard_normal((2, 3, 9, 20), np.float32),
        rng.standard_normal((3, 20, 11), np.float32),
    )
    mask = rng.random((2, 1, 9, 11)) < 0.5
    expected = np.where(mask, a.astype(np.float64) @ b, 7)
    np.testing.assert_allclose(K.matmul(a, b, mask=mask, fill=7), expected, rtol=1e-4, atol=1e-4)
    one = b[0]
    expected = np.where(mask, a.astype(np.float64) @ one, 7)
    for weight in (one, K.prepack(one)):
        np.testing.assert_allclose(
            K.matmul(a, weight, mask=mask, fill=7), expected, rtol=1e-4, atol=1e-4
        )
    a[:, :, 0], mask[...] = np.nan, False  # sums that are masked may be anything
    assert (K.matmul(a, b, mask=mask, fill=7) == 7).all()
    row = np.arange(11) < 4
    np.testing.assert_allclose(
        K.matmul(one[:, 0], one, mask=row), np.where(row, one[:, 0] @ one, 0), rtol=1e-4, atol=1e-5
    )
    whole = rng.integers(-9, 9, (5, 6)).astype(np.int8)
    for dtype in (None, cb.i32):
        found = K.matmul(whole, whole.T, dtype=dtype, mask=np.tri(5, dtype=bool), fill=-1)
        np.testing.assert_array_equal(
            found,
            np.where(
                np.tri(5, dtype=bool), whole.astype(found.dtype) @ whole.T.astype(found.dtype), -1
            ),
        )
    with cb.use("python"):
        slow = K.matmul(one[:3, :4], one[:4, :5], mask=np.tri(3, 5, dtype=bool), fill=2.5)
    np.testing.assert_allclose(
        slow,
        np.where(np.tri(3, 5, dtype=bool), one[:3, :4] @ one[:4, :5], 2.5),
        rtol=1e-5,
        atol=1e-5,
    )


def test_masks_are_bools_that_broadcast() -> None:
    a = np.ones((4, 4), np.float32)
    with pytest.raises(DTypeError, match="bools"):
        K.matmul(a, a, mask=a)
    with pytest.raises(ShapeError, match="does not broadcast"):
        K.matmul(a, a, mask=np.ones((3, 4), bool))
    with pytest.raises(DTypeError, match="cannot be filled"):
        K.matmul(a.astype(np.int32), a.astype(np.int32), mask=a > 0, fill=0.5)
