"""Kernels of packed weights compile for the GPUs that are named, and spill nothing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy.models.packed import four_bits, grouped_kernels

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)


def product(rows: int, dtype: Any, minimums: bool) -> tuple[Any, int, tuple[Any, ...]]:
    x, words = np.zeros((rows, 1024), dtype), np.zeros((100, 256), np.uint32)
    scales = np.zeros((100, 64), F32)
    least = scales if minimums else None
    plan = grouped_kernels.Blueprint(rows, 16)
    out = np.zeros((1, rows, 100), dtype)
    rest = (words, scales, least, None, None, out, plan)
    return grouped_kernels.grouped_product, grouped_kernels.PLANES, (x, *rest)


def repacked(kind: str) -> tuple[Any, int, tuple[Any, ...]]:
    raw = np.zeros((100, 72), np.uint16)
    facts = np.zeros((7, 8, 16), F16)
    least = None if kind == "Q4_0" else facts
    given = (raw, raw.view(F16), np.zeros((7, 32, 16), np.uint32), facts, least, 1.0, kind)
    return four_bits.repack, 0, given


CASES = {
    "one row": product(1, BF16, False),
    "four rows": product(4, BF16, True),
    "four rows, f32": product(4, F32, False),
    **{kind: repacked(kind) for kind in four_bits.FOUR_BITS},
}


@pytest.mark.parametrize("name", CASES)
def test_code_for_nvidia_gpus(name: str) -> None:
    pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")
    from cubepy.backends.cuda.codegen.disassemble import count, usage
    from cubepy.backends.cuda.offline import compile_for
    from tests.backends.cuda.disassembler import has_disassembler

    if not has_disassembler():
        pytest.skip("reading SASS needs cuobjdump")
    kernel, planes, given = CASES[name]
    code = compile_for("sm_90a", kernel, 32 * planes or 256, *given, mode="unchecked")
    assert count(code.sass, "LDL", "STL") == {"LDL": 0, "STL": 0}
    assert usage(code.cubin).stack == 0
    if planes:
        assert count(code.sass, "LDG.E.128")["LDG.E.128"] >= grouped_kernels.TOGETHER


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("processor", ["gfx942", "gfx1100"])
def test_code_for_amd_gpus(name: str, processor: str) -> None:
    from cubepy.backends.hip.offline import compile_for

    kernel, planes, given = CASES[name]
    plane = 32 if processor.startswith("gfx1") else 64
    code = compile_for(processor, kernel, plane * planes or 256, *given, mode="unchecked")
    assert "vgpr_spill_count: 0" in code.assembly
    assert "private_segment_fixed_size: 0" in code.assembly
