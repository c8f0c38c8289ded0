"""The machine code of quantized linear layers on a GPU: no spills, wide copies, one logical
operation for two codes.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.quant.linear.gpu.blueprint import PlaneBlueprint, Room
from cubepy.quant.linear.gpu.gemm_mma import arrange_rows, plane_product
from cubepy.quant.linear.gpu.gemm_mma_int8 import plane_product_bytes, quantize_rows_for_planes
from cubepy.quant.linear.gpu.gemm_mma_plan import plan_bytes, plan_floats
from cubepy.quant.linear.gpu.gemv import few_product
from cubepy.quant.linear.gpu.gemv_blueprint import FewBlueprint, plan_few

pytest.importorskip("numba_cuda")
from cubepy.backends.cuda.codegen.disassemble import count, usage
from cubepy.backends.cuda.offline import compile_for
from tests.backends.cuda.thorough import some

H200 = Room(132, 232448, True)
LARGE = (896, 64)  # panels and blocks of a weight (14336, 4096)
NARROW = (256, 224)  # of a weight (4096, 14336)


def words(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.uint32)


def floats_code(plan: PlaneBlueprint, dtype: Any) -> Any:
    factors = words(32) if plan.raw else np.zeros(64, np.float16)
    return compile_for(
        "sm_90a", plane_product, plan.units, words(2, 128), factors, words(2, 16), words(4096), words(4096),
        np.zeros(64, np.float32), None, None, np.zeros((1, 64), dtype), 1.0, np.uint32(1), 4, 4, plan, mode="unchecked",
    )  # fmt: skip


def few_code(plan: FewBlueprint, dtype: Any) -> Any:
    rows = np.zeros((plan.rows, 64), dtype)
    return compile_for(
        "sm_90a", few_product, plan.units, rows, np.zeros(64, np.float16), words(4096), words(4096),
        np.zeros(64, np.float32), None, None, rows, 1.0, 4, 4, plan, mode="unchecked",
    )  # fmt: skip


def bytes_code(plan: PlaneBlueprint) -> Any:
    sums = np.zeros(64, np.float32 if plan.group else np.int32)
    return compile_for(
        "sm_90a", plane_product_bytes, plan.units, words(2, 128), np.zeros((1, 2), np.float32), words(4096), words(4096),
        np.zeros(64, np.float32), sums, None, None, np.zeros((1, 64), np.float32), 4, 4, plan, mode="unchecked",
    )  # fmt: skip


FLOATS = [
    (LARGE, 16, 32, False, ml_dtypes.bfloat16), (NARROW, 16, 32, False, ml_dtypes.bfloat16),
    (LARGE, 16, 0, True, ml_dtypes.bfloat16), ((896, 32), 32, 128, False, ml_dtypes.bfloat16),
    ((896, 16), 16, 256, True, ml_dtypes.bfloat16), (LARGE, 64, 32, True, ml_dtypes.bfloat16),
    ((256, 64), 16, 32, False, ml_dtypes.bfloat16), ((256, 32), 16, 128, True, ml_dtypes.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize(("size", "rows", "group", "symmetric", "dtype"), some(FLOATS, 0, 3, 6))
def test_float_activations_stay_in_registers(
    size: tuple[int, int], rows: int, group: int, symmetric: bool, dtype: Any
) -> None:
    target = H200._replace(cluster=True)
    plan, _ = plan_floats(
        *size,
        rows,
        group,
        symmetric,
        cb.as_dtype(np.dtype(dtype)),
        target,
        False,
        False,
        None,
        True,
    )
    assert plan.splits == (2 if size[0] == 256 else 1)
    code = floats_code(plan, dtype)
    sass = code.sass
    assert usage(code.cubin).stack == 0
    assert code.text.shared_bytes <= H200.shared
    assert count(sass, "LDL", "STL") == {"LDL": 0, "STL": 0}
    assert "LDGSTS.E.BYPASS.128" in sass and "LDS.128" in sass
    if not plan.rounded:
        # Four fragments of each chunk and half, by one LOP3 for each register:
        # `(w >> s) & 0x000f000f | magic`.
        assert sass.count("0xf000f") == 16 * plan.panels * plan.loads * (
            plan.depth if plan.once else 1
        )
    products = 4 * plan.panels * plan.loads * plan.tiles
    starts = plan.block // 16 * plan.tiles if plan.raw and not plan.rounded else 0
    assert count(sass, "HMMA")["HMMA"] == (products + starts) * (plan.depth if plan.once else 1)


FEW = [
    (LARGE, 1, 32, False, ml_dtypes.bfloat16), (NARROW, 1, 32, False, ml_dtypes.bfloat16),
    (LARGE, 1, 0, True, ml_dtypes.bfloat16), ((896, 32), 1, 128, True, np.float16), (LARGE, 4, 32, False, ml_dtypes.bfloat16),
    (LARGE, 1, 64, False, np.float32), ((256, 32), 1, 128, True, ml_dtypes.bfloat16),
]  # fmt: skip


@pytest.mark.parametrize(("size", "rows", "group", "symmetric", "dtype"), some(FEW, 0, 3))
def test_few_rows_stay_in_registers(
    size: tuple[int, int], rows: int, group: int, symmetric: bool, dtype: Any
) -> None:
    few = plan_few(
        *size, rows, group, symmetric, cb.as_dtype(np.dtype(dtype)), H200, False, False, None, True
    )
    assert few is not None
    plan = few[0]
    code = few_code(plan, dtype)
    assert usage(code.cubin).stack == 0
    assert code.text.shared_bytes <= H200.shared
    # One product for 16 channels x 32 inputs, of whole bytes and those with only their low halves;
    # passes are written out.
    blocks = (
        min(plan.step_blocks * -(-plan.depth // plan.step_blocks), plan.each)
        if plan.once
        else plan.step_blocks * plan.passes
    )
    product = "IMMA.16832.U8.S8" if group else "IMMA.16832.S8.S8"
    assert code.sass.count(product) == plan.block // 32 * plan.panels * blocks


def test_two_cubes_share_the_registers_and_the_memory_of_a_core() -> None:
    target = H200._replace(cluster=True)
    plan, _ = plan_floats(256, 64, 16, 32, False, cb.bf16, target, False, False, None, True)
    assert plan.ahead and 2 * (plan.shared_bytes + 1024) <= 228 << 10
    used = usage(floats_code(plan, ml_dtypes.bfloat16).cubin)
    assert used.stack == 0 and 2 * plan.units * used.registers <= 65536


def test_codes_behind_a_row_are_asked_for_before_it_is_rounded_unless_it_is_long() -> None:
    shape = (False, cb.bf16, H200, False, False, None, True)
    short, long = plan_few(*LARGE, 4, 32, *shape), plan_few(*NARROW, 1, 32, *shape)
    assert short is not None and short[0].passes == 1 and short[0].soon and not short[0].once
    assert long is not None and long[0].passes > 1 and not long[0].soon
    assert (long[0].depth, long[0].ahead) == (4, 2)


@pytest.mark.parametrize(("panels", "blocks", "group", "planes"), [
    (256, 224, 32, 28), (256, 112, 128, 28), (256, 172, 32, 22), (256, 64, 32, 16), (896, 224, 32, 16), (256, 512, 32, 16),
])  # fmt: skip
def test_more_planes_share_a_long_row_where_they_are_full_and_have_registers(
    panels: int, blocks: int, group: int, planes: int
) -> None:
    few = plan_few(panels, blocks, 1, group, group == 128, cb.bf16, H200, False, False, None, True)
    assert few is not None and few[0].planes == planes
    several = plan_few(
        panels, blocks, 2, group, group == 128, cb.bf16, H200, False, False, None, True
    )
    assert several is None or several[0].planes <= 16


@pytest.mark.parametrize(("size", "rows", "group", "symmetric"), some([
    (LARGE, 1, 0, True), (LARGE, 16, 0, True), (LARGE, 1, 32, False), (NARROW, 16, 32, True), ((896, 16), 16, 256, False),
], 1, 2))  # fmt: skip
def test_bytes_stay_in_registers(
    size: tuple[int, int], rows: int, group: int, symmetric: bool
) -> None:
    plan, _ = plan_bytes(*size, rows, group, symmetric, H200, False, False, None)
    code = bytes_code(plan)
    assert usage(code.cubin).stack == 0
    assert code.text.shared_bytes <= H200.shared
    assert count(code.sass, "IMMA")["IMMA"] >= 2 * plan.panels * plan.loads * plan.tiles
    assert (
        count(code.sass, "I2F")["I2F"] == 0 or not group
    )  # sums of groups are floats by their bits


def test_rows_are_read_sixteen_bytes_at_a_time() -> None:
    x, factors = np.zeros((4, 64), ml_dtypes.bfloat16), np.zeros(64, np.float16)
    arranged = compile_for(
        "sm_90a",
        arrange_rows,
        256,
        x,
        factors,
        words(2, 128),
        words(2, 8),
        -128.0,
        32,
        1,
        mode="unchecked",
    )
    quantized = compile_for(
        "sm_90a", quantize_rows_for_planes, 256, x, factors, words(1, 128), np.zeros((4, 2), np.float32), 1.0, True,
        mode="unchecked",
    )  # fmt: skip
    for code in (arranged, quantized):
        assert "LDG.E.128" in code.sass
        assert usage(code.cubin).stack == 0


@pytest.mark.parametrize("rows", [1, 2, 5, 16, 33, 100])
@pytest.mark.parametrize("group", [0, 32, 64, 128, 256])
@pytest.mark.parametrize(
    ("panels", "inputs"), [(1, 64), (3, 384), (256, 4096), (896, 14336), (2, 65536)]
)
def test_every_plan_fits(rows: int, group: int, panels: int, inputs: int) -> None:
    blocks = -(-inputs // max(64, group))
    for room in (H200, H200._replace(cluster=True), Room(108, 166912), Room(84, 101376)):
        for dtype in (cb.bf16, cb.f16, cb.f32):
            few = plan_few(panels, blocks, rows, group, True, dtype, room, False, False, None, True)
            if few is not None:
                assert few[0].shared_bytes <= room.shared and few[0].planes * few[0].each >= blocks
                assert few[0].units <= 1024 and few[1] * few[0].panels >= panels
            plan, grid = plan_floats(
                panels, blocks, rows, group, True, dtype, room, False, False, None, True
            )
            assert plan.shared_bytes <= room.shared and plan.units <= 1024
            assert grid[0] // plan.splits * plan.panels >= panels and grid[0] % plan.splits == 0
            assert grid[1] * plan.tiles * 8 >= rows * plan.parts
        plan, grid = plan_bytes(panels, blocks, rows, group, True, room, False, False, None)
        assert plan.shared_bytes <= room.shared and grid[1] * plan.tiles * 8 >= rows
