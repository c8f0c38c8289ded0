"""The attention of planes gives what float64 gives, with its text for a GPU run on the host."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.backend import offline
from cubepy.kernels.attention.gpu import flash_mma as planes
from cubepy.kernels.attention.gpu import flash_mma_plan as planes_plan
from cubepy.kernels.attention.online_softmax import LOG2E
from tests.backends.cuda.emulator.launch import emulate
from tests.kernels.attention.exact import exact

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)


@dataclass(frozen=True)
class Case:
    """A problem: heads of queries and of keys, lengths, widths, and what may be seen."""

    dtype: np.dtype
    heads: int
    key_heads: int
    length: int
    seen: int
    depth: int
    width: int
    causal: bool = False
    mask: str = "none"
    tolerance: float = 4e-3


CASES = [
    Case(BF16, 1, 1, 70, 80, 64, 64, mask="bool"),  # the mask by words
    Case(BF16, 2, 1, 20, 70, 33, 33, True, "bool"),
    Case(BF16, 2, 1, 20, 40, 40, 24, True),
    Case(F16, 1, 1, 10, 40, 64, 96, mask="float", tolerance=6e-4),
    Case(F32, 1, 1, 20, 40, 33, 33, mask="float", tolerance=1e-6),
]


class Placed(np.ndarray):
    """An array that knows where it lies, as arrays of a device do."""

    @property
    def address(self) -> int:
        return int(self.__array_interface__["data"][0])


@pytest.mark.parametrize(("case", "late"), [*((c, 1.0) for c in CASES), (CASES[0], 0.5)], ids=str)
def test_attention_of_planes(case: Case, late: float) -> None:
    rng = np.random.default_rng(1)
    draw = lambda *shape: rng.standard_normal(shape, F32).astype(case.dtype)
    q = draw(1, case.heads, case.length, case.depth)
    k, v = (draw(1, case.key_heads, case.seen, n) for n in (case.depth, case.width))
    mask: Any = None
    if case.mask == "bool":
        mask = rng.random((1, 1, case.length, case.seen)) < 0.6
        mask[..., 7, :] = False
    if case.mask == "float":
        mask = rng.random((1, 1, case.length, case.seen), F32) * 4
    wide = None if mask is None else np.broadcast_to(mask, (1, case.heads, case.length, case.seen))
    known = [a.view(Placed) for a in (q, k, v)]
    seen_mask = None if wide is None else wide.view(Placed)
    plan = planes_plan.plan_for(*known, seen_mask, case.mask, case.causal, offline("sm_80"))
    assert plan is not None
    assert plan.words == all(n % 8 == 0 for n in (case.depth, case.width)) & (case.dtype != F32)
    out = np.full((1, case.heads, case.length, case.width), np.nan, case.dtype)
    lse = np.full((1, case.heads, case.length), np.nan, F32)
    inputs = [a.view(np.uint32) if plan.words else a for a in (q, k, v)]
    if plan.mask == "words":
        wide = np.broadcast_to(mask.view(np.uint32), (1, case.heads, case.length, case.seen // 4))
    scale, grouped = LOG2E / math.sqrt(case.depth), case.heads // case.key_heads
    kernel = planes.quick_attend if plan.parts == 1 else planes.exact_attend
    cubes = case.heads * -(-case.length // (16 * plan.planes))
    emulate(
        kernel, 32 * plan.planes, cubes, *inputs, wide, out, lse, scale, grouped, plan, architecture="sm_80",
        late=late, seed=case.length,
    )  # fmt: skip
    right, right_lse = exact(q, k, v, mask, case.causal)
    assert np.linalg.norm(out.astype(np.float64) - right) <= case.tolerance * np.linalg.norm(right)
    sees = np.isfinite(right_lse)
    assert np.abs(lse[sees] - right_lse[sees]).max() < 1e-5
    assert not out[~sees].any()
