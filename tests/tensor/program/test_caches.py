"""Attention to a cache: what it computes, and that programs write the cache where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import apply

B, H, G, C, D = 2, 4, 2, 300, 24
ATTRS: dict[str, Any] = {"scale": 0.2, "window": 0, "cap": 0.0}


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    half = cos.shape[-1]
    c, s = cos[:, None], sin[:, None]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * c - b * s, b * c + a * s, rest], -1)


def expected(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, starts: np.ndarray, **attrs: Any
) -> np.ndarray:
    """The same in f64, of caches that hold the new positions already."""
    out = np.zeros((*q.shape[:3], values.shape[3]))
    for b, h, i in np.ndindex(q.shape[:3]):
        g, last = h // (H // G), starts[b] + i + 1
        first = max(0, last - attrs["window"]) if attrs["window"] else 0
        scores = keys[b, g, first:last].astype(float) @ q[b, h, i].astype(float) * attrs["scale"]
        if attrs["cap"]:
            scores = attrs["cap"] * np.tanh(scores / attrs["cap"])
        weights = np.exp(scores - scores.max())
        out[b, h, i] = weights / weights.sum() @ values[b, g, first:last]
    return out


def given(length: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [(B, H, length, D), (B, G, length, D), (B, G, length, D)]
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def angles(starts: np.ndarray, length: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    at = (starts[:, None] + np.arange(length))[..., None] / 3.0 ** np.arange(half)
    return np.cos(at).astype(np.float32), np.sin(at).astype(np.float32)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("half", [0, 4, 12])
@pytest.mark.parametrize("attrs", [{}, {"window": 7}, {"cap": 3.0}])
def test_new_positions_are_stored_and_seen(length: int, half: int, attrs: dict) -> None:
    attrs = ATTRS | attrs
    starts = np.array([3, 200])
    rng = np.random.default_rng(1)
    keys, values = (rng.standard_normal((B, G, C, D)).astype(np.float32) for _ in range(2))
    q, k, v = given(length)
    cos, sin = angles(starts, length, half) if half else (None, None)
    held, kept = cb.tensor(keys.copy()), cb.tensor(values.copy())
    turns = [None if x is None else cb.tensor(x) for x in (cos, sin)]
    tensors = [cb.tensor(x) for x in (q, k, v)]
    out = apply("cached_attention", *tensors, held, kept, cb.tensor(starts), *turns, **attrs)
    if half:
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
    for b, start in enumerate(starts):
        keys[b, :, start : start + length], values[b, :, start : start + length] = k[b], v[b]
    np.testing.assert_allclose(held.numpy(), keys, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(kept.numpy(), values)
    right = expected(q, keys, values, starts, **attrs)
    np.testing.assert_allclose(out.numpy(), right, rtol=1e-4, atol=1e-5)


def test_a_program_writes_its_caches() -> None:
    held, kept = (cb.tensor(np.zeros((B, G, C, D), np.float32)) for _ in range(2))

    @cb.jit
    def step(q: Any, k: Any, v: Any, keys: Any, values: Any, starts: Any) -> Any:
        both = apply("cached_attention", q * 2, k, v, keys, values, starts, None, None, **ATTRS)
        return both + 1

    keys, values = (np.zeros((B, G, C, D), np.float32) for _ in range(2))
    with cb.no_grad():
        for at in range(8):
            q, k, v = given(1, at)
            starts = np.array([at, at + 3])
            out = step(*(cb.tensor(x) for x in (q, k, v)), held, kept, cb.tensor(starts))
            for b, start in enumerate(starts):
                keys[b, :, start], values[b, :, start] = k[b, :, 0], v[b, :, 0]
            right = expected(q * 2, keys, values, starts, **ATTRS) + 1
            np.testing.assert_allclose(out.numpy(), right, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(held.numpy(), keys)
    (program,) = step.explain().programs
    assert not program.planned and sum(step.traces.values()) == 1


def test_positions_beyond_a_cache_are_dropped() -> None:
    held, kept = (cb.tensor(np.zeros((B, G, 4, D), np.float32)) for _ in range(2))
    q, k, v = (cb.tensor(x) for x in given(3))
    starts = cb.tensor(np.array([2, -1]))
    apply("cached_attention", q, k, v, held, kept, starts, None, None, **ATTRS)
    np.testing.assert_array_equal(held.numpy()[0, :, 2:], k.numpy()[0, :, :2])
    np.testing.assert_array_equal(held.numpy()[1, :, :2], k.numpy()[1, :, 1:])


@pytest.mark.parametrize(
    ("at", "shape", "rule"),
    [
        (3, (B, G, C, D + 1), "a cache of keys"),
        (4, (B, G, C + 1, D), "a cache of values"),
        (5, (B + 1,), "a start for each"),
        (6, (B, 1, D), "rotations"),
    ],
)
def test_wrong_shapes(at: int, shape: tuple[int, ...], rule: str) -> None:
    arrays: list[Any] = [*given(1), *(np.zeros((B, G, C, D), np.float32) for _ in range(2))]
    arrays += [np.zeros(B, np.int64), None, None]
    arrays[at] = np.zeros(shape, np.int64 if at == 5 else np.float32)
    with pytest.raises(cb.errors.ShapeError, match=rule):
        tensors = [None if x is None else cb.tensor(x) for x in arrays]
        apply("cached_attention", *tensors, **ATTRS)


def test_what_another_program_made_of_a_cache_is_made_again() -> None:
    """Elements that were the same for every call so far are written in place."""
    held, kept = (cb.tensor([[[[0.5] * D] * C] * G] * B) for _ in range(2))
    x = cb.tensor(np.zeros((B, G, C, D), np.float32))
    total = cb.jit(lambda x: x + held.exp())

    @cb.jit
    def step(q: Any, k: Any, v: Any, starts: Any) -> Any:
        return apply("cached_attention", q, k, v, held, kept, starts, None, None, **ATTRS)

    for n in range(8):
        for _ in range(4):
            before = total(x)
        step(*map(cb.tensor, given(1, n)), cb.tensor(np.array([n, 2 * n])))
        found = total(x)  # before anybody looks at the cache
        np.testing.assert_allclose(found.numpy(), np.exp(held.numpy()), rtol=1e-6)
        assert np.abs(found.numpy() - before.numpy()).max() > 0.1
