"""Attention on a CPU, by strips of queries and one query at a time, against float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels import attention, attention_forward
from cubepy.kernels.attention import flash_lines
from cubepy.kernels.attention.cpu import decode
from cubepy.kernels.attention.problem import described
from cubepy.kernels.primitives.exponentials import power_of_two
from tests.backends.cuda.thorough import some

F = np.float32
INF = float("inf")


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, F)


def exact(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """The result and the log-sum-exp in float64."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], 1) for a in (k, v))
    s = scale * q @ k.swapaxes(2, 3)
    if mask is not None:
        s = np.where(mask, s, -INF) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tril(np.ones(s.shape[2:], bool)), s, -INF)
    top = np.maximum(s.max(-1, keepdims=True), -1e300)
    with np.errstate(divide="ignore"):
        total = np.exp(s - top).sum(-1, keepdims=True)
        return np.exp(s - top) / np.where(total == 0, 1, total) @ v, (top + np.log(total))[..., 0]


def both(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float, routine: Any, plan: Any
) -> Any:
    """The result and the log-sum-exp by a routine."""
    out, lse = np.empty((*q.shape[:3], v.shape[3]), q.dtype), np.empty(q.shape[:3], F)
    kind = "none" if mask is None else "bool" if mask.dtype == bool else "float"
    wide = None if mask is None else np.broadcast_to(mask, (*q.shape[:3], k.shape[2]))
    here, shared = cb.device_properties_of(), q.shape[1] // k.shape[1]
    if routine is decode:
        problem = described(q, k, v, wide, kind, causal, scale)
        decode.launch(problem, (q, k, v, wide, out, lse, scale))
    else:
        plan, (usual, tiles) = dict(plan), flash_lines.plan_for(q, k, v, causal, kind, here)
        tiles = plan.pop("tiles", tiles)
        plan = replace(usual, room=max(usual.room, tiles), **plan)
        cubes = math.prod(q.shape[:2]) * -(-q.shape[2] // (plan.block_rows * tiles))
        flash_lines.attend[cubes, 1](
            q, k, v, wide, out, lse, scale, shared, tiles, plan, mode="unchecked"
        )
    return out, lse


KINDS = [(mask, causal) for causal in (False, True) for mask in ("none", "bool", "float")]
ROUTINES = [
    *((decode, {}, *kind) for kind in KINDS),
    *((flash_lines, {}, *kind) for kind in KINDS),
    *((flash_lines, {"tiles": 3, "keys": 12, "lanes": 4}, *kind) for kind in some(KINDS, 1, 3, 5)),
    *((flash_lines, {"rows": 12, "lanes": 16, "keys": 24}, *kind) for kind in some(KINDS)),
]


@pytest.mark.parametrize(("routine", "plan", "mask", "causal"), ROUTINES)
def test_every_routine_gives_results_and_sums(
    routine: Any, plan: Any, mask: str, causal: bool
) -> None:
    """Several strips and blocks of keys with rests; depth and width differ, neither is whole lines
    or tiles.
    """
    q, k, v = draw(1, 2, 4, 70, 19), draw(2, 2, 2, 150, 19), draw(3, 2, 2, 150, 26)
    given = {
        "none": None,
        "bool": np.random.default_rng(4).random((1, 4, 70, 150)) < 0.5,
        "float": draw(5, 70, 150),
    }
    where = given[mask]
    if mask == "bool":
        where[0, 1, 3:5] = False
    out, lse = both(q, k, v, where, causal, -0.3, routine, plan)
    wanted, sums = exact(q, k, v, where, causal, -0.3)
    np.testing.assert_allclose(out, wanted, atol=3e-6)
    np.testing.assert_allclose(lse, sums, atol=5e-6)


@pytest.mark.parametrize("length", [1, 40])
@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFFFFFFF, 0x7FC00001])
def test_a_nan_reaches_who_sees_it_and_nobody_else(length: int, bits: int) -> None:
    """In a key; whatever else is in its bits."""
    q, k, v = draw(1, 1, 1, length, 32), draw(2, 1, 1, 200, 32), draw(3, 1, 1, 200, 32)
    want = attention(q, k, v, np.arange(200) != 130)
    k[0, 0, 130, 5] = np.array(bits, np.uint32).view(F)
    np.testing.assert_array_equal(attention(q, k, v, np.arange(200) != 130), want)
    assert np.isnan(attention(q, k, v)).all()


@pytest.mark.parametrize("length", [2, 40])
def test_scores_far_apart(length: int) -> None:
    """The first keys are forgotten when greater scores come, and the last add nothing."""
    q, k, v = np.ones((1, 1, length, 1), F), np.zeros((1, 1, 300, 1), F), draw(1, 1, 1, 300, 8)
    k[0, 0, 150:160] = 1e4
    k[0, 0, 160:] = -1e4
    want = v[:, :, 150:160].astype(np.float64).mean(2, keepdims=True)
    np.testing.assert_allclose(attention(q, k, v), np.repeat(want, length, axis=2), rtol=1e-5)


@pytest.mark.parametrize("length", [3, 40])
def test_narrow_floats_and_views(length: int) -> None:
    """Results are rounded once; rows may lie apart."""
    q, k, v = (draw(n, 1, 50, 2, 24).astype(np.float16).swapaxes(1, 2) for n in range(3))
    q, out = q[:, :, :length], np.empty((1, 2, length, 48), np.float16)[..., ::2]
    assert attention(q, k, v, out=out) is out
    wanted = exact(q, k, v, None, False, 24**-0.5)[0]
    np.testing.assert_allclose(out, wanted, atol=1e-3)


def test_few_queries_and_many_agree() -> None:
    """The routine changes with the length alone."""
    q, k, v = draw(1, 1, 2, 20, 32), draw(2, 1, 1, 70, 32), draw(3, 1, 1, 70, 32)
    many = attention_forward(q, k, v)
    for few in (1, flash_lines.FEW):
        for part, whole in zip(attention_forward(q[:, :, :few].copy(), k, v), many, strict=True):
            np.testing.assert_allclose(part, whole[:, :, :few], atol=3e-6)


@cb.kernel
def powers(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[i] = power_of_two(x[i])


def test_powers_of_two() -> None:
    x = np.concatenate([-np.linspace(0, 126, 100_001), [-126.6, -127, -1e30, -INF, 0, -1]]).astype(
        F
    )
    out = np.empty_like(x)
    powers[cb.over(x)](x, out)
    np.testing.assert_allclose(out[:-6], np.exp2(x[:-6].astype(np.float64)), rtol=2e-7)
    np.testing.assert_array_equal(out[-6:], [0, 0, 0, 0, 1, 0.5])
