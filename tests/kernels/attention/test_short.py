"""Attention of short sequences with narrow heads on a CPU, and its gradients, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels import attention, attention_forward, attention_gradients
from cubepy.kernels.attention.cpu import short
from cubepy.kernels.attention.gradients import GRADIENTS
from cubepy.kernels.attention.problem import AttentionGradients, described
from cubepy.kernels.attention.routines import guess
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="the routine is the CPU's")


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def exact(q: Any, k: Any, v: Any, grad: Any, causal: bool, scale: float) -> list[np.ndarray]:
    """Result, log-sum-exp, and the three gradients."""
    q, k, v, grad = (a.astype(np.float64) for a in (q, k, v, grad))
    (batch, groups, keys, _), each = k.shape, q.shape[1] // k.shape[1]
    wide_k, wide_v = (np.repeat(a, each, 1) for a in (k, v))
    s = q @ wide_k.swapaxes(2, 3) * scale
    if causal:
        s = np.where(np.tri(q.shape[2], keys, dtype=bool), s, -np.inf)
    top = s.max(-1, keepdims=True)
    total = np.exp(s - top).sum(-1, keepdims=True)
    w = np.exp(s - top) / total
    out, lse = w @ wide_v, (top + np.log(total))[..., 0]
    slope = w * (grad @ wide_v.swapaxes(2, 3) - (grad * out).sum(-1, keepdims=True)) * scale
    together = [slope.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ grad]
    sums = [a.reshape(batch, groups, each, keys, -1).sum(2) for a in together]
    return [out, lse, slope @ wide_k, *sums]


SHAPES = [
    (2, 6, 6, 8, 8, 4, 4),
    (1, 4, 2, 17, 33, 8, 5),
    (1, 2, 1, 37, 16, 32, 30),
    (2, 1, 1, 3, 1, 1, 2),
]
"""Batch, heads, heads of keys, queries, keys, depth, width."""


CASES = [(s, c, d) for s in SHAPES for c in (False, True) for d in (np.float32, np.float16)]


@pytest.mark.turns(6)  # every shape in one dtype, with or without a triangle
@pytest.mark.parametrize(("shape", "causal", "dtype"), CASES)
def test_results_sums_and_gradients(shape: tuple[int, ...], causal: bool, dtype: Any) -> None:
    batch, heads, groups, length, keys, depth, width = shape
    q, grad = draw(1, batch, heads, length, depth), draw(2, batch, heads, length, width)
    k, v = draw(3, batch, groups, keys, depth), draw(4, batch, groups, keys, width)
    q, k, v, grad = (a.astype(dtype) for a in (q, k, v, grad))
    assert guess(described(q, k, v, None, "none", causal, 0.3)) == "short"
    out, lse = attention_forward(q, k, v, causal, 0.3)
    problem = AttentionGradients(grad, q, k, v, None, "none", out, lse, 0.3, causal)
    (chosen,) = [
        r for r in GRADIENTS.routines if r.supports(problem, cb.device_properties_of()) is None
    ][:1]
    assert chosen.name == "short"
    found = [out, lse, *attention_gradients(grad, q, k, v, out, lse, causal, 0.3)]
    tolerance = 3e-6 if dtype is np.float32 else 2e-2
    for ours, right in zip(found, exact(q, k, v, grad, causal, 0.3), strict=True):
        np.testing.assert_allclose(ours, right, rtol=tolerance, atol=tolerance)


def test_rows_may_lie_apart() -> None:
    """Heads side by side, as projections give them."""
    whole = draw(5, 3, 8, 3, 6, 4).transpose(2, 0, 3, 1, 4)
    q, k, v = whole
    grad = draw(6, 3, 8, 6, 4).swapaxes(1, 2)
    out, lse = attention_forward(q, k, v, True)
    found = [out, lse, *attention_gradients(grad, q, k, v, out, lse, True)]
    for ours, right in zip(found, exact(q, k, v, grad, True, 0.5), strict=True):
        np.testing.assert_allclose(ours, right, atol=3e-6)


def test_a_nan_reaches_who_sees_it_and_nobody_else() -> None:
    q, k, v = draw(1, 1, 2, 12, 4), draw(2, 1, 2, 12, 4), draw(3, 1, 2, 12, 4)
    clean = attention(q, k, v, is_causal=True)
    k[0, 1, 7, 2] = np.nan
    found = attention(q, k, v, is_causal=True)
    np.testing.assert_array_equal(found[0, 0], clean[0, 0])
    np.testing.assert_array_equal(found[0, 1, :7], clean[0, 1, :7])
    assert np.isnan(found[0, 1, 7:]).all()


def test_scores_far_apart() -> None:
    """No sum of exponentials is beyond what a float holds."""
    q, k, v = (
        np.ones((1, 1, 9, 1), np.float32),
        np.zeros((1, 1, 20, 1), np.float32),
        draw(1, 1, 1, 20, 8),
    )
    k[0, 0, 10:12], k[0, 0, 12:] = 1e4, -1e4
    want = v[:, :, 10:12].astype(np.float64).mean(2, keepdims=True)
    np.testing.assert_allclose(attention(q, k, v), np.repeat(want, 9, axis=2), rtol=1e-5)


def test_longer_and_wider_ones_and_masks_are_not_for_it() -> None:
    assert short.unfit(4, 4, 8, "none", short.FORWARD) is None
    assert short.unfit(4, 4, 8, "bool", short.FORWARD)
    assert short.unfit(4, 33, 8, "none", short.FORWARD)
    assert short.unfit(4, 4, 65, "none", short.FORWARD)
    assert short.unfit(16, 16, 64, "none", short.BACKWARD)


def test_results_lie_as_the_queries_and_are_repeated() -> None:
    """Heads inside of positions stay there, so joining them is a view; also when the call comes
    again and is replayed.
    """
    whole = draw(7, 2, 8, 3, 6, 4).transpose(2, 0, 3, 1, 4)
    grad = draw(8, 2, 8, 6, 4).swapaxes(1, 2)
    first: list[np.ndarray] = []
    for _ in range(5):
        q, k, v = whole.copy(order="K")
        out, lse = attention_forward(q, k, v, True)
        found = [out, *attention_gradients(grad, q, k, v, out, lse, True)]
        assert all(a.swapaxes(1, 2).flags.c_contiguous for a in found)
        for one, other in zip(found, first or found, strict=True):
            np.testing.assert_array_equal(one, other)
        first = found
    front = attention_forward  # a front keeps plans by the key of the arguments
    before = cb.stats().launches
    front(q, k, v, True)
    assert cb.stats().launches - before == 1
