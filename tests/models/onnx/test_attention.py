"""Operators of attention are the op that writes no scores, and give what a formula gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.models.onnx import load
from tests.models.onnx.writer import graph, model, node, value

Arrays = dict[str, Any]


def formula(q: Any, k: Any, v: Any, scale: float, added: Any, seen: Any) -> np.ndarray:
    """Attention of heads (B, H, L, D) in f64; rows that see nothing are zero."""
    k, v = (np.repeat(t, q.shape[1] // k.shape[1], axis=1).astype(np.float64) for t in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) * scale + added
    seen = np.broadcast_to(seen, scores.shape)
    powers = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    total = powers.sum(-1, keepdims=True)
    found: np.ndarray = powers / np.where(total == 0, 1, total) @ v
    return found


def heads(rng: np.random.Generator) -> tuple[Arrays, tuple[int, ...]]:
    """Queries, keys and values of groups of heads."""
    b, groups, many, d = (int(n) for n in rng.integers(1, 4, 4))
    length, keys = (int(n) for n in rng.integers(1, 12, 2))
    shapes = {"q": (b, groups * many, length, 8 * d), "k": (b, groups, keys, 8 * d)}
    shapes["v"] = (b, groups, keys, 5)
    given = {name: rng.standard_normal(s).astype(np.float32) for name, s in shapes.items()}
    return given, (b, groups * many, length, keys)


@pytest.mark.parametrize("kind", ["", "causal", "bools", "floats", "both", "long"])
@pytest.mark.parametrize("seed", range(4))
def test_attention_of_heads_is_one_op(kind: str, seed: int) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    given, (b, h, length, keys) = heads(rng)
    how: Arrays = {} if seed % 2 else {"scale": 0.3}
    if kind in ("causal", "both"):
        how["is_causal"] = 1
    added: Any = 0.0
    seen: Any = np.ones((length, keys), bool)
    if "is_causal" in how:
        seen = np.tri(length, keys, dtype=bool)
    if kind in ("bools", "long"):
        shape = [(length, keys), (b, 1, length, keys), (b, h, length, keys)][int(rng.integers(3))]
        given["m"] = rng.random(shape) < 0.6
        given["m"][..., 0, :] = kind != "long"  # a row that sees nothing
        seen = given["m"]
    elif kind in ("floats", "both"):
        given["m"] = added = rng.standard_normal((b, 1, length, keys)).astype(np.float32)
        hidden = rng.random(added.shape) < 0.3
        added[hidden], seen = -np.inf, seen & ~hidden
        added = np.where(hidden, 0, added)
    made = graph(
        [node("Attention", " ".join(given), "y", **how)],
        [value(k, x.dtype) for k, x in given.items()],
        ["y"],
    )
    net = load(model(made, opset=23))
    scale = how.get("scale", given["q"].shape[-1] ** -0.5)
    right = formula(given["q"], given["k"], given["v"], scale, added, seen)
    for _ in range(3):
        found = net(given)["y"].numpy()
        assert np.abs(found - right).max() <= 1e-5 * max(np.abs(right).max(), 1)
    shown = str(cb.explain(net, given))
    assert "= attention(" in shown and "softmax" not in shown


def test_scores_that_are_wanted_are_written() -> None:
    given, _ = heads(np.random.default_rng(5))
    made = graph([node("Attention", "q k v", "y nk nv s")], ["q", "k", "v"], ["y", "s"])
    found = load(model(made, opset=23))(given)
    scale = given["q"].shape[-1] ** -0.5
    right = formula(given["q"], given["k"], given["v"], scale, 0.0, True)
    np.testing.assert_allclose(found["y"].numpy(), right, atol=1e-5)
    assert found["s"].shape == (*given["q"].shape[:3], given["k"].shape[2])


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("window", [-1, 4])
@pytest.mark.parametrize("biased", [False, True])
def test_groups_of_heads_with_a_cache(before: int, window: int, biased: bool) -> None:
    rng = np.random.default_rng([before, window + 1, biased])
    b, groups, many, d, new = 2, 2, 2, 16, 1 if before else 6
    keys = before + new

    def some(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    given: Arrays = {
        "q": some(b, new, groups * many * d),
        "k": some(b, new, groups * d),
        "v": some(b, new, groups * d),
        "old_k": some(b, groups, before, d),
        "old_v": some(b, groups, before, d),
        "last": np.full(b, keys - 1, np.int32),
        "total": np.array(keys, np.int32),
    }
    names = " ".join(given) + " _ _ _"
    added: Any = 0.0
    if biased:
        given["bias"] = added = some(b, 1, new, keys)
        names += " bias"
    how = {"num_heads": groups * many, "kv_num_heads": groups, "local_window_size": window}
    made = graph(
        [node("GroupQueryAttention", names, "y nk nv", "com.microsoft", **how)],
        [value(k, x.dtype) for k, x in given.items()],
        ["y", "nk", "nv"],
    )
    net = load(model(made, com_microsoft=1))
    q, k, v = (given[n].reshape(b, new, -1, d).swapaxes(1, 2) for n in "qkv")
    k, v = (np.concatenate([given[f"old_{n}"], t], axis=2) for n, t in (("k", k), ("v", v)))
    row, column = np.arange(new)[:, None] + before, np.arange(keys)
    seen = (column <= row) & ((column > row - window) if window >= 0 else True)
    right = formula(q, k, v, d**-0.5, added, seen).swapaxes(1, 2).reshape(b, new, -1)
    for _ in range(3):
        found = net(given)
        assert np.abs(found["y"].numpy() - right).max() <= 1e-5 * np.abs(right).max()
        np.testing.assert_array_equal(found["nk"].numpy(), k)
    shown = str(cb.explain(net, given))
    assert "= attention(" in shown and "softmax" not in shown


@pytest.mark.parametrize("seed", range(6))
def test_queries_and_keys_of_groups_are_normed_before_rotation(seed: int) -> None:
    """onnxruntime has it on GPUs only, so a formula is the judge."""
    rng = np.random.default_rng([seed, 77])
    b, groups, many, d, new = 1 + seed % 2, 2, 1 + seed % 3, 16, 1 if seed % 2 else 5
    before = 4 if seed % 2 else 0
    shapes = {
        "q": (b, new, groups * many * d),
        "k": (b, new, groups * d),
        "v": (b, new, groups * d),
    }
    shapes |= {"old_k": (b, groups, before, d), "old_v": (b, groups, before, d)}
    given = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    given["last"] = np.full(b, before + new - 1, np.int32)
    given["total"] = np.array(before + new, np.int32)
    turns = np.outer(np.arange(16), 10.0 ** -np.arange(d // 2))
    given |= {"cos": np.float32(np.cos(turns)), "sin": np.float32(np.sin(turns))}
    gains = {n: rng.standard_normal(d).astype(np.float32) for n in ("qn", "kn")}
    names = " ".join(given) + " _ _ _ _ _ qn kn"
    given |= gains
    how: Arrays = {"num_heads": groups * many, "kv_num_heads": groups, "do_rotary": 1}
    if seed > 2:
        how |= {"q_norm_epsilon": 0.5, "qk_norm_epsilon": 0.1}
    made = graph(
        [node("GroupQueryAttention", names, "y nk nv", "com.microsoft", **how)],
        [value(k, x.dtype) for k, x in given.items()],
        ["y", "nk", "nv"],
    )

    def prepared(name: str, eps: float) -> np.ndarray:
        x = given[name].reshape(b, new, -1, d).swapaxes(1, 2).astype(np.float64)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gains[f"{name}n"]
        first, second = x[..., : d // 2], x[..., d // 2 :]
        cos, sin = (f(turns[before : before + new]) for f in (np.cos, np.sin))
        return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)

    q = prepared("q", how.get("q_norm_epsilon", 1e-6))
    k = np.concatenate([given["old_k"], prepared("k", how.get("qk_norm_epsilon", 1e-6))], axis=2)
    v = given["v"].reshape(b, new, -1, d).swapaxes(1, 2)
    v = np.concatenate([given["old_v"], v], axis=2)
    seen = np.arange(before + new) <= np.arange(new)[:, None] + before
    right = formula(q, k, v, d**-0.5, 0.0, seen).swapaxes(1, 2).reshape(b, new, -1)
    found = load(model(made, com_microsoft=1))(given)
    np.testing.assert_allclose(found["nk"].numpy(), k, atol=1e-5)
    assert np.abs(found["y"].numpy() - right).max() <= 1e-5 * np.abs(right).max()


def test_a_cache_of_codes_without_scales_is_refused() -> None:
    how = {"num_heads": 1, "kv_num_heads": 1, "k_quant_type": "PER_TENSOR"}
    given: Arrays = {n: np.zeros((1, 1, 8), np.float32) for n in "qkv"}
    given |= {n: np.zeros((1, 1, 2, 8), np.int8) for n in ("old_k", "old_v")}
    given |= {"last": np.array([2], np.int32), "total": np.array(3, np.int32)}
    made = graph(
        [node("GroupQueryAttention", " ".join(given), "y nk nv", "com.microsoft", **how)],
        [value(k, x.dtype) for k, x in given.items()],
        ["y"],
    )
    with pytest.raises(cb.errors.ModelError, match="codes without k_scale"):
        load(model(made, com_microsoft=1))(given)
