"""Attention as ops: the kernel's gradients beside those of the formula, gradients of gradients,
masks, shared key heads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.nn import functional as F
from cubepy.tensor import apply
from cubepy.tensor.gradients.attention import formula
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(13)
B, H, G, L, S, D, E = 1, 4, 2, 5, 6, 4, 3
MASKS: dict[str, Any] = {
    "none": None,
    "bool": RNG.random((1, 1, L, S)) < 0.7,
    "float": RNG.standard_normal((B, H, L, S)),
    "nothing seen": np.arange(L)[:, None] > np.zeros(S),
    "infinite": np.where(RNG.random((L, S)) < 0.7, 0.5, -np.inf),
}


def some(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def given(dtype: str) -> list[Any]:
    shapes = ((B, H, L, D), (B, G, S, D), (B, G, S, E))
    return [cb.tensor(some(*s), dtype) for s in shapes]


def masked(name: str, dtype: str) -> Any:
    mask = MASKS[name]
    if mask is None:
        return None
    return cb.tensor(mask) if mask.dtype == bool else cb.tensor(mask, dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_the_formula_is_numpys(name: str, causal: bool) -> None:
    q, k, v = given("f64")
    kk, vv = (np.repeat(t.numpy(), H // G, axis=1) for t in (k, v))
    scores = np.einsum("bhld,bhsd->bhls", q.numpy(), kk) / np.sqrt(D)
    mask = MASKS[name]
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(L, S, dtype=bool), scores, -np.inf)
    top = np.maximum(scores.max(-1, keepdims=True), -1e300)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    want = np.where(total > 0, weights / np.where(total > 0, total, 1), 0) @ vv
    result, lse = formula(q, k, v, masked(name, "f64"), causal, None)
    np.testing.assert_allclose(result.numpy(), want, rtol=1e-12, atol=1e-12)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(lse.numpy(), (np.log(total) + top)[..., 0], rtol=1e-12)


@pytest.mark.turns(6)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("op", ["attention", "attention_forward"])
def test_gradients_and_theirs_are_the_formulas(op: str, name: str, causal: bool) -> None:
    inputs, weight = given("f32"), cb.tensor(some(B, H, L, E), "f32")
    along = [cb.tensor(some(*t.shape), "f32") for t in inputs]

    def kernel(q: Any, k: Any, v: Any) -> Any:
        made = apply(op, q, k, v, masked(name, "f32"), is_causal=causal, scale=None)
        return ((made[0] if op == "attention_forward" else made).sin() * weight).sum()

    def written(q: Any, k: Any, v: Any) -> Any:
        return (formula(q, k, v, masked(name, "f32"), causal, None)[0].sin() * weight).sum()

    def second(function: Any) -> Any:
        def total(*given: Any) -> Any:
            grads = cb.grad(function, (0, 1, 2))(*given)
            return sum((g * d).sum() for g, d in zip(grads, along, strict=True))

        return cb.grad(total, (0, 1, 2))(*inputs)

    for one, other in (
        (cb.grad(kernel, (0, 1, 2))(*inputs), cb.grad(written, (0, 1, 2))(*inputs)),
        (second(kernel), second(written)),
    ):
        for a, b in zip(one, other, strict=True):
            assert np.isfinite(a.numpy()).all()
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-4, atol=2e-5)


def test_gradients_of_the_formula() -> None:
    def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return formula(q, k, v, mask, True, None)[0]

    check_gradients(attend, some(1, 2, 2, 3), some(1, 1, 3, 3), some(1, 1, 3, 2), some(2, 3))


def test_masks_and_sums_have_gradients() -> None:
    q, k, v = given("f32")
    mask = cb.tensor(some(H, L, S), "f32")

    def of_mask(m: Any, use: Any) -> Any:
        result, lse = use(m)
        return (result.sin()).sum() + (lse * lse).sum()

    def kernel(m: Any) -> Any:
        return apply("attention_forward", q, k, v, m, is_causal=False, scale=0.3)

    one = cb.grad(lambda m: of_mask(m, kernel))(mask)
    other = cb.grad(lambda m: of_mask(m, lambda m: formula(q, k, v, m, False, 0.3)))(mask)
    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)


def test_third_derivatives_of_attention() -> None:
    q, k, v = given("f32")

    def third(function: Any) -> Any:
        f = lambda q: function(q).sin().sum()
        return cb.grad(lambda q: cb.grad(lambda q: cb.grad(f)(q).sin().sum())(q).sin().sum())(q)

    one = third(lambda q: apply("attention", q, k, v, None, is_causal=True, scale=None))
    other = third(lambda q: formula(q, k, v, None, True, None)[0])
    np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-4)


def test_attention_does_not_run_again_on_the_way_back() -> None:
    q, k, v = (cb.tensor(some(1, 2, 9, 8), "f32", requires_grad=True) for _ in range(3))
    with cb.profile() as p:
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    calls = {op: found.calls for op, found in p.by_op().items()}
    assert calls["attention_forward"] == 1 and calls["attention_gradients"] == 1
