"""The attention kernels compile for their GPUs with the instructions that they ask for, and spill
nothing.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.codegen.disassemble import count, usage
from cubepy.backends.cuda.offline import compile_for
from cubepy.kernels.attention.gpu.flash_decoding import (
    COMBINING,
    combine_parts,
    exact_parts,
    quick_parts,
)
from cubepy.kernels.attention.gpu.flash_decoding_plan import FACTS, SplitAttention
from cubepy.kernels.attention.gpu.flash_mma import quick_attend
from cubepy.kernels.attention.gpu.flash_mma_plan import PlaneAttention
from cubepy.kernels.attention.sm90.backward import hopper_gradients
from cubepy.kernels.attention.sm90.backward_256 import hopper_wide_gradients
from cubepy.kernels.attention.sm90.backward_steps import HopperGradients
from cubepy.kernels.attention.sm90.flash import hopper_attend
from cubepy.kernels.attention.sm90.masks import UNITS, survey, survey_keys
from cubepy.kernels.attention.sm90.plan import HopperAttention
from tests.backends.cuda.disassembler import needs_sass
from tests.backends.cuda.thorough import some

BF16 = np.dtype(ml_dtypes.bfloat16)


pytestmark = needs_sass


def zeros(*shape: int, dtype: Any = BF16) -> np.ndarray:
    return np.zeros(shape, dtype)


def tiles(rows: int, depth: int) -> Any:
    return cb.tensor_map(zeros(1, 2, 512, depth), (1, 1, rows, 64))


def check(code: Any, name: str, least: int) -> None:
    """Matrix instructions are there, and nothing is spilled."""
    text = code.sass
    assert count(text, "LDL", "STL") == {"LDL": 0, "STL": 0}
    assert usage(code.cubin).stack == 0
    assert count(text, name)[name] >= least


FORWARD = [
    HopperAttention(64, 3, 128, 2, True, "bf16", True),
    HopperAttention(128, 2, 128, 2, True),
    HopperAttention(64, 3, 128, 2),
    HopperAttention(128, 2, 128, 2, True, "bool", True),
    HopperAttention(128, 2, 96, 2, False, "f32"),
    HopperAttention(64, 1, 112, 2, queries=2, resident=2),
    HopperAttention(64, 2, 128, 2, True, queries=2),
]


@pytest.mark.parametrize("plan", some(FORWARD, 0, 1, 5), ids=str)
def test_forward(plan: HopperAttention) -> None:
    words, lse = (
        zeros(1, 2, 512, plan.depth // 2, dtype=np.uint32),
        zeros(1, 2, 512, dtype=np.float32),
    )
    mask = known = None
    if plan.mask != "none":
        whole = zeros(
            1, 2, 512, 512, dtype={"bool": np.uint16, "f32": np.float32}.get(plan.mask, BF16)
        )
        mask = (cb.tensor_map(whole, (1, 1, plan.rows, plan.mask_columns)), 0, 1)
    if plan.chosen:
        known = (zeros(8, dtype=np.uint8), zeros(1, dtype=np.int32))
    code = compile_for(
        "sm_90a", hopper_attend, plan.units, tiles(plan.rows, plan.depth), tiles(plan.keys, plan.depth),
        tiles(plan.keys, plan.depth), words, lse, (2, 1, 1, 512, 512), 0.1, plan, mask, known, mode="unchecked",
    )  # fmt: skip
    check(code, "HGMMA", plan.depth // 16 + plan.keys // 16)
    assert count(code.sass, "USETMAXREG", "UTMALDG")["USETMAXREG"] == 2


BACKWARD = [
    HopperGradients(64, queries=128, causal=True),
    HopperGradients(256, 2, 2, True, True),
    HopperGradients(128, causal=True),
    HopperGradients(256, 2, 2),
]


@pytest.mark.parametrize("plan", some(BACKWARD, 0, 1), ids=str)
def test_backward(plan: HopperGradients) -> None:
    words, rows = (
        zeros(1, 2, 512, plan.depth // 2, dtype=np.uint32),
        zeros(2, 512, dtype=np.float32),
    )
    sums = zeros(2 * 512 * plan.depth, dtype=np.float32)
    code = compile_for(
        "sm_90a", hopper_wide_gradients if plan.wide else hopper_gradients, plan.units,
        (tiles(plan.queries, plan.depth), tiles(plan.keys, plan.depth), tiles(plan.keys, plan.depth),
         tiles(plan.queries, plan.depth), cb.tensor_map(rows, (1, plan.queries), swizzle=0),
         cb.tensor_map(rows, (1, plan.queries), swizzle=0)),
        sums, words, words.copy(), (2, 2, 1, 512, 512, 1), 0.1, plan,
        mode="unchecked",
    )  # fmt: skip
    check(code, "HGMMA", 2 * plan.depth // 16)
    found = count(code.sass, "USETMAXREG", "WARPGROUP.DEPBAR")
    assert found["USETMAXREG"] == (3 if plan.wide else 2)
    assert found["WARPGROUP.DEPBAR"] <= 16  # else ptxas waits after each product


# depth, width, planes of rows, teams, keys, stages, parts, dtype, causal, mask, words, early
SPLITS = [
    SplitAttention(128, 128, 1, 4, 16, 3, 1, "bf16", False, "none", True, True),
    SplitAttention(64, 64, 4, 2, 32, 3, 1, "f16", True, "bool", True, True),
    SplitAttention(256, 256, 1, 4, 16, 2, 1, "bf16", False, "float", True, True),
    SplitAttention(128, 128, 1, 4, 16, 1, 3, "bf16", False, "none", False, True),
]


@pytest.mark.parametrize("plan", some(SPLITS, 0, 1), ids=str)
def test_split_keys(plan: SplitAttention) -> None:
    dtype = np.uint32 if plan.words else np.float32
    columns = plan.depth // 2 if plan.words else plan.depth
    q, k = zeros(1, 4, 2, columns, dtype=dtype), zeros(1, 2, 100, columns, dtype=dtype)
    out, parts = zeros(1, 4, 2, plan.width), zeros(2, 3, 4, plan.width + FACTS, dtype=np.float32)
    mask = {
        "none": None,
        "bool": zeros(1, 4, 2, 100, dtype=np.bool_),
        "float": zeros(1, 4, 2, 100),
    }[plan.mask]
    kernel = quick_parts if plan.parts == 1 else exact_parts
    code = compile_for(
        "sm_90a",
        kernel,
        plan.units,
        q,
        k,
        k,
        mask,
        (out, None, parts),
        0.1,
        2,
        3,
        2,
        plan,
        mode="unchecked",
    )
    check(code, "HMMA", plan.depth // 8)
    assert count(code.sass, "LDGSTS")["LDGSTS"] > 0 or not plan.words
    code = compile_for(
        "sm_90a",
        combine_parts,
        32 * COMBINING,
        parts,
        out,
        None,
        2,
        plan.width,
        True,
        mode="unchecked",
    )
    assert usage(code.cubin).stack == 0


def test_surveys_of_masks() -> None:
    known, counter = zeros(1, 4, 4, dtype=np.uint8), zeros(1, dtype=np.int32)
    for kernel, units, mask, rest in (
        (
            survey_keys,
            32,
            zeros(1, 1, 1, 512, dtype=np.bool_),
            (zeros(1, 512, dtype=np.float32), known[0]),
        ),
        (survey, UNITS, zeros(1, 1, 512, 128, dtype=np.uint32), (known,)),
    ):
        sizes = (128,) if kernel is survey_keys else (128, 128)
        code = compile_for(
            "sm_90a", kernel, units, mask, *rest, counter, 4, 0.1, *sizes, mode="unchecked"
        )
        assert usage(code.cubin).stack == 0


def test_planes() -> None:
    plan = PlaneAttention(64, 64, 4, 64, 1, "bf16", True, "bool", words=True)
    q, mask = zeros(1, 2, 100, 32, dtype=np.uint32), zeros(1, 2, 100, 100, dtype=np.bool_)
    code = compile_for(
        "sm_80",
        quick_attend,
        32 * plan.planes,
        q,
        q,
        q,
        mask,
        zeros(1, 2, 100, 64),
        None,
        0.1,
        1,
        plan,
        mode="unchecked",
    )
    check(code, "HMMA", 32)
