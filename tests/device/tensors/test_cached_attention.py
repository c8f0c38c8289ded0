"""Attention to a cache on a GPU against float64, and texts of a small model, which are those of the
CPU.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.attention.cached import cached_attention
from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.models.architectures.rotary import rotary
from cubepy.models.generation.text_model import TextModel
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import upload

HERE = Device("cuda")
BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
TOLERANCE = {BF16: 2e-2, F16: 3e-3, F32: 2e-5}


def right_of(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, starts: np.ndarray, window: int
) -> np.ndarray:
    """In f64, of caches that hold the new positions."""
    out = np.zeros((*q.shape[:3], values.shape[3]))
    shared = q.shape[1] // keys.shape[1]
    for b, h, i in np.ndindex(q.shape[:3]):
        last = starts[b] + i + 1
        first = max(0, last - window) if window else 0
        scores = keys[b, h // shared, first:last].astype(float) @ q[b, h, i].astype(float)
        weights = np.exp((scores - scores.max()) * q.shape[3] ** -0.5)
        out[b, h, i] = weights / weights.sum() @ values[b, h // shared, first:last].astype(float)
    return out


@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize(
    ("heads", "groups", "length", "depth", "room", "window"),
    [
        (32, 8, 1, 128, 4096, 0),
        (32, 32, 1, 128, 2048, 0),
        (4, 1, 1, 256, 1024, 512),
        (9, 3, 7, 64, 600, 0),
        (6, 2, 1, 80, 300, 0),
    ],
)
def test_attention_to_a_cache(
    dtype: Any, heads: int, groups: int, length: int, depth: int, room: int, window: int
) -> None:
    rng = np.random.default_rng(heads + depth)
    shapes = [(2, heads, length, depth), *[(2, groups, length, depth)] * 2]
    shapes += [(2, groups, room, depth)] * 2
    q, k, v, keys, values = (rng.standard_normal(s, F32).astype(dtype) for s in shapes)
    starts = np.array([5, room - length])
    there = [upload(a, HERE) for a in (q, k, v, keys, values, starts)]
    found = cached_attention(*there, None, None, (depth**-0.5, window, 0.0)).numpy()
    for b, start in enumerate(starts):
        keys[b, :, start : start + length] = k[b]
        values[b, :, start : start + length] = v[b]
    np.testing.assert_array_equal(there[3].numpy(), keys)
    np.testing.assert_array_equal(there[4].numpy(), values)
    right = right_of(q, keys, values, starts, window)
    off = TOLERANCE[dtype]
    np.testing.assert_allclose(found.astype(float), right, rtol=off, atol=off)


@pytest.mark.parametrize("windows", [(), (0, 8)])
def test_texts_are_those_of_the_cpu(windows: tuple[int, ...]) -> None:
    sizes = {"width": 64, "layers": 2, "heads": 8, "groups": 2, "depth": 16, "inner": 96}
    angles = rotary(16, 10000.0)
    c = DecoderConfig(vocabulary=97, context=256, rotary=angles, windows=windows, **sizes)
    with cb.use("cpu"):
        model = TextModel(c)
        prompts = [[3, 1, 4, 1, 5], [9, 2], list(range(40))]
        right = model.generate(prompts, max_new_tokens=24)
    model.to("cuda")
    assert model.generate(prompts, max_new_tokens=24) == right
    programs = model.stepper.greedy.explain().programs
    (step,) = (p for p in programs if "on cuda" in p.kind)
    assert step.planned == ""
