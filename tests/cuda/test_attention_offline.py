"""The attention kernels compile for their GPUs with the instructions that they ask for, and spill nothing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.disassemble import count, tool, usage
from cubepy.backends.cuda.offline import compile_for
from cubepy.errors import BackendCompileError
from cubepy.kernels.attention_hopper import HopperAttention, hopper_attend
from cubepy.kernels.attention_hopper_backward import HopperGradients, hopper_gradients
from cubepy.kernels.attention_planes import PlaneAttention, quick_attend

BF16 = np.dtype(ml_dtypes.bfloat16)


def has_disassembler() -> bool:
    try:
        tool()
    except BackendCompileError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_disassembler(), reason="reading SASS needs cuobjdump")


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


@pytest.mark.parametrize("plan", [HopperAttention(128, 2, 128, 2, True), HopperAttention(64, 3, 128, 2)], ids=str)
def test_forward(plan: HopperAttention) -> None:
    words, lse = zeros(1, 2, 512, plan.depth // 2, dtype=np.uint32), zeros(1, 2, 512, dtype=np.float32)
    code = compile_for(
        "sm_90a", hopper_attend, plan.units, tiles(plan.rows, plan.depth), tiles(plan.keys, plan.depth),
        tiles(plan.keys, plan.depth), words, lse, 2, 1, 1, 512, 512, 0.1, plan, mode="unchecked",
    )  # fmt: skip
    check(code, "HGMMA", plan.depth // 16 + plan.keys // 16)
    assert count(code.sass, "USETMAXREG", "UTMALDG")["USETMAXREG"] == 2


def test_backward() -> None:
    plan = HopperGradients(128, causal=True)
    words, rows = zeros(1, 2, 512, plan.depth // 2, dtype=np.uint32), zeros(2, 512, dtype=np.float32)
    sums = zeros(2 * 512 * plan.depth, dtype=np.float32)
    code = compile_for(
        "sm_90a", hopper_gradients, plan.units, tiles(64, plan.depth), tiles(128, plan.depth),
        tiles(128, plan.depth), tiles(64, plan.depth), cb.tensor_map(rows, (1, 64), swizzle=0),
        cb.tensor_map(rows, (1, 64), swizzle=0), sums, words, words.copy(), 2, 2, 1, 512, 512, 0.1, plan,
        mode="unchecked",
    )  # fmt: skip
    check(code, "HGMMA", 2 * plan.depth // 16)


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
