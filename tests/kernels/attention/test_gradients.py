"""The gradients of attention against float64, where no matrix units are used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.attention.gpu import unfused_backward as matrices
from cubepy.kernels.attention.gradients import attention_forward, attention_gradients
from cubepy.kernels.attention.problem import AttentionGradients
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import upload
from tests.backends.cuda.thorough import some
from tests.pretend import pretend


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "groups", "scale"), [(2, 2, None), (6, 2, 0.3)])
def test_gradients(
    heads: int, groups: int, scale: Any, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By blocks (several of queries and of keys), and by matrices of scores of which a head's rows
    are made in turn.
    """
    q, grad = draw(1, 2, heads, 110, 5), draw(2, 2, heads, 110, 7)
    k, v = draw(3, 2, groups, 150, 5), draw(4, 2, groups, 150, 7)
    out, lse = attention_forward(q, k, v, causal, scale)
    found = [attention_gradients(grad, q, k, v, out, lse, causal, scale)]
    factor = 1 / math.sqrt(5) if scale is None else scale
    each = heads // groups
    wide_k, wide_v = (np.repeat(a.astype(np.float64), each, axis=1) for a in (k, v))
    s = q @ wide_k.swapaxes(2, 3) * factor
    if causal:
        s = np.where(np.tril(np.ones(s.shape[2:], np.bool_)), s, -np.inf)
    total = np.exp(s).sum(-1, keepdims=True)
    w = np.exp(s) / total
    dp = grad @ wide_v.swapaxes(2, 3)
    ds = w * (dp - (w * dp).sum(-1, keepdims=True)) * factor
    together = lambda a: a.reshape(2, groups, each, *a.shape[2:]).sum(2)
    right = (ds @ wide_k, together(ds.swapaxes(2, 3) @ q), together(w.swapaxes(2, 3) @ grad))
    np.testing.assert_allclose(lse, np.log(total)[..., 0], atol=1e-5)
    np.testing.assert_allclose(out, w @ wide_v, atol=1e-5)
    for most in (150 * 40, 150 * 110 * heads):
        monkeypatch.setattr(matrices, "MOST", most)
        found.append(
            matrices.gradients(
                AttentionGradients(grad, q, k, v, None, "none", out, lse, factor, causal)
            )
        )
        matrices.log_sums(q, k, None, "none", (sums := np.empty_like(lse)), factor, causal)
        np.testing.assert_allclose(sums, lse, atol=1e-5)
    for triple in found:
        for ours, exact in zip(triple, right, strict=True):
            np.testing.assert_allclose(ours, exact, atol=3e-5)


@pytest.mark.parametrize("added", some([False, True], 0))
def test_gradients_with_a_mask(added: bool) -> None:
    q, k, v, grad = (draw(n, 2, 2, 7, 5) for n in range(4))
    shown = np.random.default_rng(5).random((2, 1, 7, 7)) < 0.6
    shown[1, 0, 2] = False
    mask = np.where(shown, draw(6, 2, 1, 7, 7), np.float32(-np.inf)) if added else shown
    out, lse = attention_forward(q, k, v, attn_mask=mask)
    found = attention_gradients(grad, q, k, v, out, lse, attn_mask=mask)
    factor = 1 / math.sqrt(5)
    s = q.astype(np.float64) @ k.swapaxes(2, 3) * factor + (
        mask if added else np.where(shown, 0, -np.inf)
    )
    w = np.exp(s)
    total = w.sum(-1, keepdims=True)
    w = w / np.where(total == 0, 1, total)
    dp = grad @ v.swapaxes(2, 3)
    ds = w * (dp - (w * dp).sum(-1, keepdims=True)) * factor
    assert np.isneginf(lse[1, :, 2]).all() and not out[1, :, 2].any()
    for ours, exact in zip(
        (out, *found), (w @ v, ds @ k, ds.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ grad), strict=True
    ):
        np.testing.assert_allclose(ours, exact, atol=1e-5)


def test_arrays_of_any_strides_and_halves() -> None:
    q, k, v, grad = (draw(n, 1, 6, 2, 4).astype(np.float16).transpose(0, 2, 1, 3) for n in range(4))
    out, lse = attention_forward(q, k, v)
    plain = [np.ascontiguousarray(a) for a in (grad, q, k, v, out, lse)]
    for ours, same in zip(
        attention_gradients(grad, q, k, v, out, lse), attention_gradients(*plain), strict=True
    ):
        assert ours.dtype == np.float16
        np.testing.assert_array_equal(ours, same)


def test_a_gradient_of_another_shape_is_refused() -> None:
    q = draw(1, 1, 1, 4, 4)
    out, lse = attention_forward(q, q, q)
    with pytest.raises(ShapeError, match="does not go with a result"):
        attention_gradients(draw(2, 1, 1, 4, 5), q, q, q, out, lse)


def test_tensors_give_tensors() -> None:
    q = cb.tensor(draw(1, 1, 1, 4, 4))
    out, lse = attention_forward(q, q, q)
    assert all(type(a) is type(q) for a in (out, lse, *attention_gradients(q, q, q, q, out, lse)))


def test_arrays_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, grad = draw(1, 1, 4, 5, 8), draw(2, 1, 2, 6, 8), draw(3, 1, 4, 5, 8)
    out, lse = attention_forward(q, k, k, True)
    right = attention_gradients(grad, q, k, k, out, lse, True)
    with pretend(monkeypatch):
        far_q, far_k, far_grad = (upload(a, Device("pretend")) for a in (q, k, grad))
        far_out, far_lse = attention_forward(far_q, far_k, far_k, True)
        found = attention_gradients(far_grad, far_q, far_k, far_k, far_out, far_lse, True)
        for ours, exact in zip((far_out, far_lse, *found), (out, lse, *right), strict=True):
            np.testing.assert_allclose(ours.numpy(), exact, atol=1e-6)
