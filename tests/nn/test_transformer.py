"""Attention and transformer layers against NumPy, with masks, weights and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import nn
from cubepy.errors import LaunchError
from cubepy.nn import functional as F
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(4)
B, L, E, H = 2, 5, 8, 2


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(layer: Any, x: np.ndarray, add: Any = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """(B, L, E) -> the result and the weights (B, H, L, L); `add` is added to the scores."""
    w, b = layer.in_proj_weight.detach().numpy(), layer.in_proj_bias.detach().numpy()
    q, k, v = np.split(x @ w.T + b, 3, -1)
    heads = [t.reshape(len(x), -1, H, E // H).transpose(0, 2, 1, 3) for t in (q, k, v)]
    weights = softmax(heads[0] @ heads[1].swapaxes(-1, -2) / np.sqrt(E // H) + add)
    out = (weights @ heads[2]).transpose(0, 2, 1, 3).reshape(x.shape)
    return linear(layer.out_proj, out), weights


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def norm(layer: Any, x: np.ndarray) -> np.ndarray:
    h = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + layer.eps)
    return h * layer.weight.detach().numpy() + layer.bias.detach().numpy()


def causal() -> np.ndarray:
    return np.triu(np.ones((L, L), bool), 1)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_masks_are_torchs(batch_first: bool, need_weights: bool) -> None:
    layer = nn.MultiheadAttention(E, H, batch_first=batch_first).to("f64").eval()
    x = RNG.standard_normal((B, L, E))
    padding = np.zeros((B, L), bool)
    padding[1, 3:] = True
    hidden = np.where(causal(), -np.inf, 0) + np.where(padding, -np.inf, 0)[:, None, None]
    given = x if batch_first else x.transpose(1, 0, 2)
    y, weights = layer(given, given, given, padding, need_weights=need_weights, attn_mask=causal())
    want, each = attention(layer, x, hidden)
    y = y.detach().numpy()
    np.testing.assert_allclose(y if batch_first else y.transpose(1, 0, 2), want, rtol=1e-9)
    assert (weights is None) != need_weights
    if weights is not None:
        np.testing.assert_allclose(weights.detach().numpy(), each.mean(1), rtol=1e-9, atol=1e-12)


def test_masks_of_each_head_and_weights_of_each_head() -> None:
    layer = nn.MultiheadAttention(E, H, batch_first=True).to("f64")
    x, add = RNG.standard_normal((B, L, E)), RNG.standard_normal((B * H, L, L))
    y, weights = layer(x, x, x, attn_mask=add, average_attn_weights=False)
    want, each = attention(layer, x, add.reshape(B, H, L, L))
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=1e-9)
    np.testing.assert_allclose(weights.detach().numpy(), each, rtol=1e-9)


def test_attention_has_gradients() -> None:
    q, k, v, add = (
        RNG.standard_normal(s) for s in ((1, 4, 3, 2), (1, 2, 4, 2), (1, 2, 4, 3), (3, 4))
    )
    check_gradients(F.scaled_dot_product_attention, q, k, v, add)
    square = [RNG.standard_normal((1, 1, 3, 2)) for _ in range(3)]
    check_gradients(lambda *x: F.scaled_dot_product_attention(*x, is_causal=True), *square)


def test_dropout_of_attention_thins_the_weights() -> None:
    nn.init.manual_seed(0)
    layer = nn.MultiheadAttention(E, H, dropout=0.5, batch_first=True)
    x = RNG.standard_normal((B, L, E)).astype(np.float32)
    _, weights = layer(x, x, x, average_attn_weights=False)
    assert 0.2 < (weights.numpy() == 0).mean() < 0.8
    _, weights = layer.eval()(x, x, x)
    assert (weights.numpy() > 0).all()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", F.silu])
def test_layers_are_those_of_the_paper(activation: Any, norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(
        E, H, 16, 0.0, activation, batch_first=True, norm_first=norm_first
    ).to("f64")
    x = RNG.standard_normal((B, L, E))
    f = activation if callable(activation) else getattr(F, activation)
    hidden = np.where(causal(), -np.inf, 0)

    def attend(x: np.ndarray) -> np.ndarray:
        return attention(layer.self_attn, x, hidden)[0]

    def feed(x: np.ndarray) -> np.ndarray:
        return linear(layer.linear2, f(linear(layer.linear1, x)).numpy())

    if norm_first:
        want = x + attend(norm(layer.norm1, x))
        want = want + feed(norm(layer.norm2, want))
    else:
        want = norm(layer.norm1, x + attend(x))
        want = norm(layer.norm2, want + feed(want))
    for options in ({"src_mask": causal()}, {"is_causal": True}):
        np.testing.assert_allclose(layer(x, **options).detach().numpy(), want, rtol=1e-8, atol=1e-9)


def test_an_encoder_is_copies_that_learn_apart() -> None:
    layer = nn.TransformerEncoderLayer(E, H, 16, 0.0)
    encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(E))
    x = RNG.standard_normal((L, B, E)).astype(np.float32)
    want = encoder.norm(layer(layer(x)))
    np.testing.assert_allclose(encoder(x).numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    names = [name for name, _ in encoder.named_parameters()]
    assert len(names) == 2 * 12 + 2 and "layers.1.self_attn.in_proj_weight" in names
    optimizer = nn.optim.SGD(encoder.layers[0].parameters(), lr=1.0)
    wanted = RNG.standard_normal((L, B, E)).astype(np.float32)
    (encoder(x) * wanted).sum().backward()  # squares would be the same whatever the weights are
    assert all(p.grad is not None for p in encoder.parameters())
    before = layer.linear1.weight.numpy().copy()
    optimizer.step()
    assert (encoder.layers[0].linear1.weight.numpy() != before).any()
    np.testing.assert_array_equal(encoder.layers[1].linear1.weight.numpy(), before)


def test_a_layer_has_gradients() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 4, 0.0, "gelu", batch_first=True).to("f64")
    check_gradients(
        lambda x: layer(x, is_causal=True), RNG.standard_normal((1, 3, 4)), second=False
    )


def test_unknown_activations_are_refused() -> None:
    with pytest.raises(LaunchError, match="activation is"):
        nn.TransformerEncoderLayer(E, H, activation="sin")
