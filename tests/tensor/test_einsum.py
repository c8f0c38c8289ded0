"""`einsum` is NumPy's, with gradients."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, ShapeError
from tests.tensor.finite import check_gradients

LENGTHS = dict(zip("abcdefghij", (2, 3, 4, 1, 5, 2, 3, 2, 4, 3), strict=True))

SUMS = [
    "ab,bc->ac",
    "ab,bc",
    "ab,ab->",
    "a,b->ab",
    "abc->cab",
    "abc->b",
    "abc,abd->acd",
    "ab->ba",
    "aab->b",
    "aa",
    "aa->a",
    "abab->ab",
    "ab,bc,ce->ae",
    "ab,ac,ae->bce",
    "abc,bce,ea,c->",
    "ab,ab,ab->ab",
    "abc,c,b->a",
    "abe,ce->abc",
]


def arrays(subscripts: str) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    terms = subscripts.partition("->")[0].split(",")
    return [rng.uniform(-1, 1, tuple(LENGTHS[c] for c in term)) for term in terms]


@pytest.mark.parametrize("subscripts", SUMS)
def test_sums_are_numpys(subscripts: str) -> None:
    xs = arrays(subscripts)
    want = np.einsum(subscripts, *xs)
    got = cb.tensor.einsum(subscripts, *map(cb.tensor, xs))
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


def test_axes_without_letters_broadcast() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.uniform(size=(2, 1, 3, 4)), rng.uniform(size=(5, 4, 2))
    for subscripts in (
        "...ij,...jk->...ik",
        "...ij,...jk",
        "...ij,...jk->ik...",
        "...ij,...jk->...",
    ):
        want = np.einsum(subscripts, a, b)
        got = cb.tensor.einsum(subscripts, cb.tensor(a), cb.tensor(b))
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    ones = rng.uniform(size=(1, 3))
    np.testing.assert_allclose(
        cb.tensor.einsum("ij,ij->ij", cb.tensor(ones), cb.tensor(a[0, 0].T[:2, :3])).numpy(),
        np.einsum("ij,ij->ij", ones, a[0, 0].T[:2, :3]),
    )


@pytest.mark.parametrize("subscripts", ["ab,bc->ac", "abc,abd->acd", "aab->b", "ab,bc,ce->ae"])
def test_gradients(subscripts: str) -> None:
    check_gradients(lambda *xs: cb.tensor.einsum(subscripts, *xs), *arrays(subscripts))


def test_what_is_no_sum_is_told() -> None:
    x = cb.tensor(np.ones((2, 3)))
    with pytest.raises(ArgumentError, match="2 terms got 1"):
        cb.tensor.einsum("ij,jk", x)
    with pytest.raises(ArgumentError, match="is not of its terms"):
        cb.tensor.einsum("ij->k", x)
    with pytest.raises(ShapeError, match="has the lengths"):
        cb.tensor.einsum("ij,ij", x, x.T)
    with pytest.raises(ShapeError, match="does not go with"):
        cb.tensor.einsum("ijk", x)
