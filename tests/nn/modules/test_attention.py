"""`nn.MultiheadAttention` with keys and values of their own width, and with added ones, against the
formula in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn, quant
from cubepy.nn.modules.attention import SPLIT

E, HEADS = 8, 2


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(sum(shape) + seed).standard_normal(shape).astype(np.float32)


def formula(
    m: Any, q: np.ndarray, k: np.ndarray, v: np.ndarray, hidden: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The result and the weights of attention; `hidden` (B, L, S) is true where none may look."""
    state = {name: value.numpy().astype(np.float64) for name, value in m.state_dict().items()}
    if "in_proj_weight" in state:
        weights = np.split(state["in_proj_weight"], 3)
    else:
        weights = [state[f"{name}_proj_weight"] for name in "qkv"]
    biases = np.split(state.get("in_proj_bias", np.zeros(3 * E)), 3)
    q, k, v = (x @ w.T + b for x, w, b in zip((q, k, v), weights, biases, strict=True))
    batch = len(q)
    if "bias_k" in state:
        k = np.concatenate([k, np.broadcast_to(state["bias_k"], (batch, 1, E))], 1)
        v = np.concatenate([v, np.broadcast_to(state["bias_v"], (batch, 1, E))], 1)
    if m.add_zero_attn:
        k, v = (np.concatenate([x, np.zeros((batch, 1, E))], 1) for x in (k, v))
    hidden = np.pad(hidden, ((0, 0), (0, 0), (0, k.shape[1] - hidden.shape[2])))
    q, k, v = (x.reshape(batch, -1, HEADS, E // HEADS).transpose(0, 2, 1, 3) for x in (q, k, v))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(E // HEADS)
    scores = np.where(hidden[:, None], -np.inf, scores)
    seen = np.exp(scores - scores.max(-1, keepdims=True))
    seen /= seen.sum(-1, keepdims=True)
    out = (seen @ v).transpose(0, 2, 1, 3).reshape(batch, -1, E)
    out = out @ state["out_proj.weight"].T + state.get("out_proj.bias", 0)
    return out, seen.mean(1)


OPTIONS: list[dict[str, Any]] = [
    {"kdim": 6, "vdim": 10},
    {"kdim": 6},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "kdim": 6, "vdim": 10, "bias": False},
]


@pytest.mark.parametrize("n", range(len(OPTIONS)))
@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
def test_results_are_those_of_the_formula(n: int, mask: str) -> None:
    m = nn.MultiheadAttention(E, HEADS, batch_first=True, **OPTIONS[n])
    m.load_state_dict({k: drawn(*v.shape, seed=len(k)) for k, v in m.state_dict().items()})
    q, k, v = drawn(2, 5, E), drawn(2, 5, m.kdim, seed=1), drawn(2, 5, m.vdim, seed=2)
    hidden, options = np.zeros((2, 5, 5), bool), {}
    if mask == "causal":
        hidden[:] = np.triu(np.ones((5, 5), bool), 1)
        options["is_causal"] = True
    elif mask == "padding":
        hidden[1, :, 3:] = True
        options["key_padding_mask"] = hidden[:, 0]
    want, seen = formula(m, q, k, v, hidden)
    found, weights = m(q, k, v, **options)
    np.testing.assert_allclose(found.numpy(), want, atol=2e-5)
    np.testing.assert_allclose(weights.numpy(), seen, atol=1e-5)
    alone, none = m(q, k, v, need_weights=False, **options)
    assert none is None
    np.testing.assert_allclose(alone.numpy(), want, atol=2e-5)
    found.sum().backward()
    assert all(p.grad is not None for p in m.parameters())


def test_weights_of_several_widths_are_packed() -> None:
    m = nn.MultiheadAttention(32, 4, kdim=24, vdim=40, batch_first=True).eval()
    inputs = drawn(2, 5, 32), drawn(2, 6, 24), drawn(2, 6, 40)
    right = m(*inputs)[0].numpy()
    result = quant.quantize(m, "int8", measure_speed=False, calibrate=[inputs])
    names = [layer.name for layer in result.report.quantized]
    assert names == ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj"]
    near = cb.jit(lambda *given: result.model(*given)[0])(*map(cb.tensor, inputs)).numpy()
    assert np.linalg.norm(near - right) < 0.03 * np.linalg.norm(right)


@pytest.mark.parametrize("seed", range(12))
def test_the_function_does_what_the_module_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    options = {**OPTIONS[seed % len(OPTIONS)], "dropout": 0.5} if seed % 3 else {}
    m: Any = nn.MultiheadAttention(E, HEADS, **options).double().eval()
    lengths, batch = (int(rng.integers(1, 6)), int(rng.integers(1, 6))), int(rng.integers(1, 4))
    q = cb.tensor(rng.standard_normal((lengths[0], batch, E)), requires_grad=True)
    k = cb.tensor(rng.standard_normal((lengths[1], batch, m.kdim)))
    v = cb.tensor(rng.standard_normal((lengths[1], batch, m.vdim)))
    hidden = rng.random((batch, lengths[1])) < 0.4
    hidden[:, 0] = False
    mask = rng.standard_normal(lengths) if seed % 2 else None
    if mask is not None:
        hidden = np.where(hidden, -np.inf, 0.0)
    split = m.in_proj_weight is None
    how: dict[str, Any] = {
        "training": False,
        "key_padding_mask": cb.tensor(hidden),
        "attn_mask": None if mask is None else cb.tensor(mask),
        "average_attn_weights": bool(seed % 4),
        "need_weights": seed % 5 != 0,
    }
    given = {name: getattr(m, name) for name in SPLIT} if split else {}
    found, weights = nn.functional.multi_head_attention_forward(
        q, k, v, E, HEADS, m.in_proj_weight, m.in_proj_bias, m.bias_k, m.bias_v, m.add_zero_attn,
        0.5, m.out_proj.weight, m.out_proj.bias, use_separate_proj_weight=split, **given, **how,
    )  # fmt: skip
    del how["training"]
    wanted, mean = m(q, k, v, **how)
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), 1e-12, 1e-13)
    assert (weights is None) == (mean is None)
    if weights is not None:
        np.testing.assert_allclose(weights.detach().numpy(), mean.detach().numpy(), 1e-12, 1e-13)
    (found * found).sum().backward()
    gradient, q.grad = q.grad.numpy(), None
    (wanted * wanted).sum().backward()
    np.testing.assert_allclose(gradient, q.grad.numpy(), 1e-10, 1e-11)
