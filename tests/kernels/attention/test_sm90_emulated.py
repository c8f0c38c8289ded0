"""Hopper's attention kernels give what float64 gives, with their text run on the host: tiles,
barriers, products.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")

import cubepy as cb
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.kernels.attention.sm90.backward import hopper_gradients
from cubepy.kernels.attention.sm90.backward_256 import hopper_wide_gradients
from cubepy.kernels.attention.sm90.backward_passes import prepare_gradients, round_query_grads
from cubepy.kernels.attention.sm90.backward_steps import HopperGradients
from cubepy.kernels.attention.sm90.flash import hopper_attend, tiles_of
from cubepy.kernels.attention.sm90.plan import HopperAttention
from tests.backends.cuda.emulator.launch import emulate
from tests.backends.cuda.thorough import some

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, F32).astype(BF16)


def weights(
    q: np.ndarray, k: np.ndarray, causal: bool, hidden: slice = slice(0, 0)
) -> tuple[np.ndarray, np.ndarray]:
    """The matrix of weights and its log-sum-exp, in float64, with some keys hidden."""
    s = q.astype(np.float64) @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    s[..., hidden] = -np.inf
    if causal:
        s = np.where(np.tril(np.ones(s.shape[2:], np.bool_)), s, -np.inf)
    w = np.exp(s - s.max(-1, keepdims=True))
    total = w.sum(-1, keepdims=True)
    return w / total, (s.max(-1, keepdims=True) + np.log(total))[..., 0]


def wide(a: np.ndarray, heads: int) -> np.ndarray:
    return np.repeat(a, heads // a.shape[1], axis=1).astype(np.float64)


def close(ours: np.ndarray, right: np.ndarray, tolerance: float = 5e-3) -> None:
    assert np.linalg.norm(ours.astype(np.float64) - right) <= tolerance * np.linalg.norm(right)


@pytest.mark.parametrize(("late", "seed"), [(1.0, 0), (0.5, 1)])
@pytest.mark.parametrize(
    ("plan", "heads", "length", "seen", "width", "cubes"),
    [
        (HopperAttention(64, 3), 1, 70, 200, 64, 1),
        (HopperAttention(128, causal=True), 2, 200, 300, 96, 2),
        (HopperAttention(64, 1, 64, queries=2, resident=2), 3, 70, 80, 64, 1),
    ],
    ids=[
        "three groups",
        "causal, rounded width, grouped heads, several tiles a cube",
        "two tiles of queries",
    ],
)
def test_forward(
    plan: HopperAttention,
    heads: int,
    length: int,
    seen: int,
    width: int,
    cubes: int,
    late: float,
    seed: int,
) -> None:
    q, k, v = (
        draw(1, 1, heads, length, width),
        draw(2, 1, 1, seen, width),
        draw(3, 1, 1, seen, width),
    )
    out, lse = np.full(q.shape, np.nan, BF16), np.full(q.shape[:3], np.nan, F32)
    emulate(
        hopper_attend, plan.units, cubes, tiles_of(q, plan.rows), tiles_of(k, plan.keys), tiles_of(v, plan.keys),
        out.view(np.uint32), lse, (heads, heads, 1, length, seen), LOG2E / math.sqrt(width), plan, late=late, seed=seed,
    )  # fmt: skip
    w, right_lse = weights(q, wide(k, heads), plan.causal)
    close(out, w @ wide(v, heads))
    assert np.abs(lse - right_lse).max() < 1e-5


@pytest.mark.parametrize(
    ("plan", "length"),
    some(
        [
            (HopperGradients(64, 3, 3, True, True, 128, "keys"), 150),
            (HopperGradients(256, 2, 2, True, True, 64, "keys"), 70),
            (HopperGradients(128, 3, 3, True, True), 70),
        ],
        0,
        1,
    ),
    ids=str,
)
def test_backward(plan: HopperGradients, length: int) -> None:
    heads, seen, width = 2, 140, 40
    q, grad = draw(1, 1, heads, length, width), draw(4, 1, heads, length, width)
    k, v = draw(2, 1, 1, seen, width), draw(3, 1, 1, seen, width)
    blocks = -(-seen // plan.keys)
    hidden = (
        slice(120, 300) if plan.mask == "keys" else slice(0, 0)
    )  # all of the last block of keys
    w, lse = weights(q, wide(k, heads), True, hidden)
    padding = None
    if plan.mask == "keys":
        numbers = np.full((1, blocks * plan.keys), np.inf, F32)
        numbers[:, hidden] = -np.inf
        padding = (numbers, np.array([[2] * (blocks - 1) + [0]], np.uint8), 0)
    do, keys = grad.astype(np.float64), wide(k, heads)
    dp = do @ wide(v, heads).swapaxes(2, 3)
    delta = (w * dp).sum(-1)
    ds = w * (dp - delta[..., None]) / math.sqrt(width)
    rows = -(-length // plan.queries) * plan.queries
    tops, deltas = np.full((heads, rows), np.nan, F32), np.full((heads, rows), np.nan, F32)
    sums = np.zeros(heads * rows * plan.depth, F32)
    out, lse = (w @ wide(v, heads)).astype(BF16), lse.astype(F32)
    emulate(
        prepare_gradients,
        64,
        heads * rows // 2,
        out,
        grad,
        lse,
        tops,
        deltas,
        lanes=plan.depth // 32,
    )
    assert np.isposinf(tops[:, length:]).all() and not deltas[:, length:].any()
    assert np.abs(deltas[:, :length] - delta[0]).max() < 0.1
    dq, dk, dv = (np.full(a.shape, np.nan, BF16) for a in (q, k, v))
    vectors = [cb.tensor_map(a, (1, plan.queries), swizzle=0) for a in (tops, deltas)]
    scale = 1 / math.sqrt(width)
    emulate(
        hopper_wide_gradients if plan.wide else hopper_gradients, plan.units, blocks,
        (tiles_of(q, plan.queries), tiles_of(k, plan.keys), tiles_of(v, plan.keys), tiles_of(grad, plan.queries),
         *vectors), sums, dk.view(np.uint32), dv.view(np.uint32), (heads, 1, 1, length, seen, 1), scale * LOG2E, plan,
        padding,
    )  # fmt: skip
    emulate(
        round_query_grads, 128, 2 * heads * rows // plan.queries, sums, dq.view(np.uint32), scale, heads,
        rows // plan.queries, dtype=cb.bf16, plan=plan,
    )  # fmt: skip
    close(dq, ds @ keys)
    close(dk, (ds.swapaxes(2, 3) @ q.astype(np.float64)).sum(1, keepdims=True))
    close(dv, (w.swapaxes(2, 3) @ do).sum(1, keepdims=True))
