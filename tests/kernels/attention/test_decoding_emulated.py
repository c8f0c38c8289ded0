"""Attention with keys split among planes and cubes gives what float64 gives, with its text for a
GPU run on the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.backend import offline
from cubepy.kernels.attention.gpu import flash_decoding as split
from cubepy.kernels.attention.gpu import flash_decoding_plan as split_plan
from cubepy.kernels.attention.online_softmax import LOG2E
from cubepy.kernels.attention.problem import Attention
from cubepy.kernels.attention.routines import ATTENTION
from cubepy.kernels.attention.routines_gpu import Split
from cubepy.runtime.device import use
from cubepy.tune.check import difference
from tests.backends.cuda.emulator.device import emulated
from tests.backends.cuda.emulator.launch import emulate
from tests.kernels.attention.test_mma_emulated import Placed, exact

RULES = split_plan.Shape()
BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)


@dataclass(frozen=True)
class Case:
    """A problem: heads of queries and of keys, lengths, widths, what may be seen, parts of the
    keys.
    """

    dtype: np.dtype
    heads: int
    key_heads: int
    length: int
    seen: int
    depth: int
    width: int
    splits: int
    shape: split_plan.Shape = RULES
    causal: bool = False
    mask: str = "none"
    architecture: str = "sm_90a"


CASES = [
    Case(BF16, 4, 2, 1, 150, 64, 64, 3, split_plan.Shape(teams=2, keys=16)),
    Case(F16, 6, 1, 1, 100, 64, 32, 1, split_plan.Shape(teams=2, keys=16, stages=2)),
    Case(
        BF16, 3, 1, 9, 70, 32, 64, 2, split_plan.Shape(2, 2, 16, 2), mask="bool"
    ),  # planes of a team meet
    Case(
        F16, 2, 1, 20, 30, 32, 32, 2, split_plan.Shape(1, 1, 16), causal=True, mask="float"
    ),  # tiles, causal
    Case(
        BF16, 2, 2, 3, 60, 33, 20, 2, split_plan.Shape(teams=2, keys=16), architecture="sm_80"
    ),  # through registers
    Case(
        F16,
        4,
        2,
        17,
        50,
        32,
        40,
        2,
        split_plan.Shape(2, 1, 16, 3),
        mask="bool",
        architecture="sm_80",
    ),  # one team
    Case(F32, 2, 1, 2, 40, 20, 33, 3, split_plan.Shape(teams=1, keys=16), mask="bool"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_of_split_keys(case: Case) -> None:
    rng = np.random.default_rng(1)
    draw = lambda *shape: rng.standard_normal(shape, F32).astype(case.dtype)
    q = draw(1, case.heads, case.length, case.depth)
    k, v = (draw(1, case.key_heads, case.seen, n) for n in (case.depth, case.width))
    mask: Any = None
    if case.mask == "bool":
        mask = rng.random((1, 1, case.length, case.seen)) < 0.6
        mask[..., -1, :] = False
    if case.mask == "float":
        mask = rng.random((1, 1, case.length, case.seen), F32) * 4
    wide = None if mask is None else np.broadcast_to(mask, (1, case.heads, case.length, case.seen))
    known = [a.view(Placed) for a in (q, k, v)]
    plan = split_plan.plan_for(
        *known, case.mask, case.causal, offline(case.architecture), case.shape
    )
    assert plan is not None
    assert plan.words == all(n % 8 == 0 for n in (case.depth, case.width)) & (case.dtype != F32)
    out = np.full((1, case.heads, case.length, case.width), np.nan, case.dtype)
    lse = np.full((1, case.heads, case.length), np.nan, F32)
    shared = case.heads // case.key_heads
    rows = shared * case.length
    blocks = -(-(min(case.seen, case.length) if case.causal else case.seen) // plan.keys)
    each = -(-blocks // case.splits)
    assert -(-blocks // each) == case.splits
    parts = np.full((case.key_heads, case.splits, rows, plan.width + split_plan.FACTS), np.nan, F32)
    inputs = [a.view(np.uint32) if plan.words else a for a in (q, k, v)]
    kernel = split.quick_parts if plan.parts == 1 else split.exact_parts
    cubes = case.key_heads * -(-rows // plan.rows) * case.splits
    emulate(
        kernel, plan.units, cubes, *inputs, wide, (out, lse, parts if case.splits > 1 else None),
        LOG2E / math.sqrt(case.depth), shared, case.splits, each, plan, architecture=case.architecture, seed=case.seen,
    )  # fmt: skip
    if case.splits > 1:
        emulate(
            split.combine_parts, 32 * split.COMBINING, case.key_heads * rows, parts, out, lse, case.key_heads,
            plan.width, plan.early, architecture=case.architecture,
        )  # fmt: skip
    right, right_lse = exact(q, k, v, mask, case.causal)
    tolerance = {BF16: 4e-3, F16: 6e-4, F32: 1e-6}[case.dtype]
    assert np.linalg.norm(out.astype(np.float64) - right) <= tolerance * np.linalg.norm(right)
    sees = np.isfinite(right_lse)
    assert np.abs(lse[sees] - right_lse[sees]).max() < 1e-5
    assert not out[~sees].any()


@pytest.mark.parametrize("splits", [0, 3])
def test_launches_of_the_library(splits: int) -> None:
    with emulated() as gpu:
        p = Attention(str(gpu), 1, 4, 1, 90, 64, groups=2, dtype="f16", units="wgmma")
        with use(gpu):
            args = ATTENTION.make(p, 1)
            Split().launch(split_plan.Shape(teams=2, keys=16, splits=splits), p, args)
        found, right = ATTENTION.results(p, args), ATTENTION.reference(p, args)
        assert difference(found, right, *ATTENTION.tolerance(p)) is None


def test_parts_of_keys_fill_the_device_and_are_not_empty() -> None:
    here = offline("sm_90a")
    rng = np.random.default_rng(3)
    for _ in range(300):
        rows, items, seen = (
            int(rng.choice([1, 4, 16, 30, 64])),
            int(rng.integers(1, 600)),
            int(rng.integers(1, 131073)),
        )
        plan = split_plan.planned(
            rows, 128, 128, 1, "bf16", False, "none", True, here, split_plan.Shape()
        )
        assert plan is not None and plan.rows >= rows
        blocks = -(-seen // plan.keys)
        parts = split_plan.splits_for(items, blocks, plan, here)
        assert 1 <= parts <= blocks
        if items < here.cores and blocks * items >= 100 * here.cores:
            assert parts * items >= here.cores / 2, "idle cores"
