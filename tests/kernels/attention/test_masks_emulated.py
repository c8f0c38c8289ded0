"""Masks of Hopper's attention give what float64 gives, with the text of the passes run on the host."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")

import cubepy as cb
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.kernels.attention.sm90 import masks
from cubepy.kernels.attention.sm90.flash import hopper_attend, tiles_of
from cubepy.kernels.attention.sm90.plan import HopperAttention
from tests.backends.cuda.emulator.launch import emulate
from tests.backends.cuda.thorough import some
from tests.kernels.attention.exact import exact

BF16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
DTYPES = {
    "bool": np.bool_,
    "keys": np.bool_,
    "key bias": F32,
    "f16": np.float16,
    "bf16": BF16,
    "f32": F32,
}


def mask_of(kind: str, heads: int, length: int, seen: int) -> np.ndarray:
    """A mask with blocks of which nothing, everything or something is seen, and a row that sees
    nothing.
    """
    rng = np.random.default_rng(5)
    rows = 1 if kind in masks.BY_KEY else length
    shown = rng.random((1, heads, rows, seen)) < 0.7
    shown[..., :128] = True
    shown[..., 128:256] = False
    if rows > 1:
        shown[..., 3, :] = False
    if DTYPES[kind] == np.bool_:
        return shown
    added = rng.standard_normal(shown.shape, F32)
    added[..., :128] = 0
    return np.where(shown, added, -np.inf).astype(DTYPES[kind])


CASES = [
    (HopperAttention(64, 3, 128, 2, False, "keys", True), 2, 70, 300, 1),
    (HopperAttention(128, 2, 128, 2, True, "bool", True), 1, 140, 272, 1),
    (HopperAttention(64, 2, 128, 2, False, "bf16", False), 1, 40, 144, 1),
    (HopperAttention(64, 2, 96, 2, True, "f32", False), 2, 70, 80, 2),
    (HopperAttention(128, 2, 128, 2, False, "f16", True), 1, 40, 272, 1),
    (HopperAttention(128, 2, 128, 2, True, "key bias", True), 2, 140, 300, 2),
    (HopperAttention(64, 3, 128, 2, False, "bool", False), 1, 200, 144, 1),
    (HopperAttention(256, 2, 80, 2, False, "key bias", True), 1, 20, 300, 1),
]


@pytest.mark.parametrize(
    ("plan", "heads", "length", "seen", "mask_heads"), some(CASES, 0, 1, 2), ids=str
)
def test_masks(plan: HopperAttention, heads: int, length: int, seen: int, mask_heads: int) -> None:
    width, rng = plan.depth, np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, h, n, width), F32).astype(BF16) for h, n in
               ((heads, length), (1, seen), (1, seen)))  # fmt: skip
    mask = mask_of(plan.mask, mask_heads, length, seen)
    scale, blocks, row_tiles = (
        LOG2E / math.sqrt(width),
        -(-seen // plan.keys),
        -(-length // plan.rows),
    )
    cubes = 2
    counter = np.zeros(1, np.int32)
    by_key = plan.mask in masks.BY_KEY
    bias = np.zeros((mask_heads, blocks * plan.keys), F32)
    classes = np.full(
        (mask_heads, blocks) if by_key else (mask_heads, row_tiles, blocks), 9, np.uint8
    )
    if by_key:
        emulate(
            masks.survey_keys,
            32,
            classes.size,
            mask,
            bias,
            classes,
            counter,
            cubes,
            LOG2E / scale,
            plan.keys,
        )
        tiles = cb.tensor_map(bias, (1, plan.keys), swizzle=0)
    else:
        if plan.chosen:
            lines = mask.view(np.uint32) if plan.mask == "bool" else mask
            emulate(
                masks.survey, masks.UNITS, classes.size, lines, classes, counter, cubes, LOG2E / scale, plan.rows,
                plan.keys,
            )  # fmt: skip
        box = (1, 1, plan.rows, plan.mask_columns)
        tiles = cb.tensor_map(
            mask.view(np.uint16) if plan.mask == "bool" else mask, box, swizzle=128
        )
    if plan.chosen:
        unseen = -(-128 // plan.keys)
        assert (
            (classes[..., unseen] == 0).all()
            and (classes[..., unseen + 1 :] == 2).all()
            and counter[0] == cubes
        )
        assert classes.flat[0] == (1 if by_key else 2)
    out, lse = np.full(q.shape, np.nan, BF16), np.full(q.shape[:3], np.nan, F32)
    emulate(
        hopper_attend, plan.units, cubes, tiles_of(q, plan.rows), tiles_of(k, plan.keys), tiles_of(v, plan.keys),
        out.view(np.uint32), lse, (heads, heads, 1, length, seen), scale, plan, (tiles, 0, min(mask_heads - 1, 1)),
        (classes.reshape(-1), counter) if plan.chosen else None,
    )  # fmt: skip
    right, right_lse = exact(q, k, v, mask, plan.causal)
    sees = np.isfinite(right_lse)
    assert np.linalg.norm(out.astype(np.float64) - right) <= 5e-3 * np.linalg.norm(right)
    assert np.abs(lse[sees] - right_lse[sees]).max() < 1e-5
    assert np.isneginf(lse[~sees]).all() and not out[~sees].any()
