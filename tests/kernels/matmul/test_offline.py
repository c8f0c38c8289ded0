"""The GPU's matmul kernels compile to the instructions that they are written for, and spill
nothing. No GPU is needed.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.matmul.gpu.direct import STEP, WIDE_PLAN, Direct, direct_product
from cubepy.kernels.matmul.gpu.gemv import Few, FewRoutine, dot_rows, few_rows
from cubepy.kernels.matmul.gpu.gemv_rows import Across, few_across
from cubepy.kernels.matmul.gpu.mma_held import UNITS as HOLDERS
from cubepy.kernels.matmul.gpu.mma_held import mma_held, plan_of
from cubepy.kernels.matmul.gpu.mma_multistage import Mma, MmaRoutine, mma_product
from cubepy.kernels.matmul.gpu.mma_split_k import TILES, MmaSplitK, mma_split_k
from cubepy.kernels.matmul.gpu.padded_operands import PadPlan, pad_rows
from cubepy.kernels.matmul.gpu.simt import Simt, SimtRoutine, simt_product
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.sm90.epilogue import PLANE_ROWS
from cubepy.kernels.matmul.sm90.padded import PaddedRoutine
from cubepy.kernels.matmul.sm90.persistent import (
    HOPPER_TILES,
    SHARED_TILES,
    UNITS,
    Hopper,
    HopperRoutine,
    hopper_product,
)
from cubepy.kernels.primitives import functions
from cubepy.kernels.primitives.functions_half import NARROW, gelu_narrow
from cubepy.kernels.primitives.pipeline import BLOCK, ROW_BYTES

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.backend import offline
from cubepy.backends.cuda.codegen.disassemble import count, usage
from cubepy.backends.cuda.offline import compile_for
from tests.backends.cuda.disassembler import needs_sass
from tests.backends.cuda.thorough import some

BF16 = ml_dtypes.bfloat16


def zeros(dtype: Any, *shape: int) -> np.ndarray:
    return np.zeros(shape, dtype)


def check(code: Any, **least: int) -> None:
    """No spills, no stack, and at least so many of these instructions."""
    text = code.sass
    assert count(text, "LDL", "STL") == {"LDL": 0, "STL": 0}
    assert usage(code.cubin).stack == 0
    for name, n in least.items():
        assert count(text, name)[name] >= n, name


def hopper(dtype: Any, out: Any, plan: Hopper) -> Any:
    """The Hopper kernel compiled for a blueprint."""
    a, b, c = (zeros(t, 1, 256, 256) for t in (dtype, dtype, out))
    depth, width = ROW_BYTES // a.itemsize, ROW_BYTES // c.itemsize
    maps = (
        cb.tensor_map(
            a, (1, depth, BLOCK) if plan.transpose_a else (1, plan.rows // plan.across, depth)
        ),
        cb.tensor_map(
            b, (1, depth, BLOCK) if plan.transpose_b else (1, plan.columns // plan.down, depth)
        ),
        c if plan.plain else cb.tensor_map(c, (1, PLANE_ROWS, width)),
    )
    residual = cb.tensor_map(c, (1, PLANE_ROWS, width)) if plan.residual else None
    bias = zeros(out, 256) if plan.bias else None
    return compile_for(
        "sm_90a",
        hopper_product,
        UNITS,
        *maps,
        bias,
        residual,
        1.0,
        (1, 2, 2, 0, 0),
        4,
        (1, 1),
        plan,
        mode="unchecked",
    )


@needs_sass
@pytest.mark.parametrize("plan", some(HOPPER_TILES, 0, 1), ids=lambda p: f"{p.rows}x{p.columns}")
def test_every_tile_of_hopper_keeps_its_sums_in_registers(plan: Hopper) -> None:
    code = hopper(BF16, BF16, plan)
    check(code, HGMMA=4 * plan.share // BLOCK, UTMALDG=2, UTMASTG=1, USETMAXREG=2, STSM=4)
    assert code.text.shared_bytes <= offline("sm_90a").max_shared_memory


@needs_sass
@pytest.mark.parametrize(
    ("dtype", "out", "name"),
    some([(np.float16, np.float16, "HGMMA"), (np.float32, np.float32, "HGMMA"), (np.int8, np.int32, "IGMMA"),
          (BF16, np.float32, "HGMMA")], 1, 2),
    ids=str,
)  # fmt: skip
def test_every_dtype_of_hopper(dtype: Any, out: Any, name: str) -> None:
    check(hopper(dtype, out, Hopper()), **{name: 8, "USETMAXREG": 2})


@needs_sass
@pytest.mark.parametrize(
    ("dtype", "plan"),
    some([(BF16, Hopper(128, 256, 4, pingpong=False, plain=2)), (np.float32, Hopper(plain=1)),
          (np.float16, Hopper(plain=2, bias=True, residual=True, activation=gelu_narrow))], 0), ids=str,
)  # fmt: skip
def test_results_of_any_alignment_spill_nothing(dtype: Any, plan: Hopper) -> None:
    check(hopper(dtype, dtype, plan), HGMMA=4, USETMAXREG=2)


@needs_sass
@pytest.mark.parametrize(
    "plan", some([Across(rows=1), Across(rows=8, lanes=4, groups=1, parts=8)], 1), ids=str
)
def test_few_rows_and_a_matrix_along_its_columns(plan: Across) -> None:
    x, y, out = zeros(BF16, 8, 4096), zeros(BF16, 4096, 4096), zeros(BF16, 1, 8, 4096)
    code = compile_for(
        "sm_90a", few_across, 256, x, y, out, None, None, 1.0, plan, mode="unchecked"
    )
    check(code, LDG=8 * plan.groups)


@needs_sass
@pytest.mark.parametrize(
    "plan", some([{"high": 4, "wide": 4, "depth": STEP}, WIDE_PLAN], 0, 1), ids=str
)
def test_small_products_ask_for_all_of_a_step_at_once(plan: dict[str, int]) -> None:
    x, y = zeros(BF16, 1, 256, 8), zeros(BF16, 1, 8, 256)
    code = compile_for("sm_90a", direct_product, 128, x, y, zeros(BF16, 1, 256, 256), None, None, 1.0,
                       Direct(**plan), mode="unchecked")  # fmt: skip
    check(code, LDG=4 * (4 + plan.get("wide", 1)), FFMA=64)


@needs_sass
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("tile", some([*TILES], 0, 2), ids=str)
def test_fragments_straight_from_memory_spill_nothing(
    tile: tuple[int, int], architecture: str
) -> None:
    """Of rows that begin anywhere, as the routine launches it; for each step two instructions."""
    a, b, out = zeros(np.uint16, 1, 40, 1001), zeros(np.uint16, 1, 1001, 42), zeros(BF16, 1, 40, 42)
    steps = 1 if tile[1] == 4 else 2
    plan = MmaSplitK("bf16", *tile, steps=steps, across=True)
    code = compile_for(
        architecture, mma_split_k, 256, a, b, out, None, None, 1.0, plan, mode="unchecked"
    )
    check(code, HMMA=2 * steps * math.prod(tile))


@needs_sass
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(("k", "n"), some([(16, 8), (27, 32), (32, 64), (128, 48)], 0, 3))
def test_a_matrix_that_registers_hold_spills_nothing(k: int, n: int, aligned: bool) -> None:
    a, b, out = zeros(np.uint16, 1, 999, k), zeros(np.uint16, 1, n, k), zeros(BF16, 1, 999, n)
    plan = plan_of(Product("cuda", 99999, k, n, 1, "bf16", "bf16", "columns"))
    plan = replace(plan, a_lanes=8 if aligned else 1, b_lanes=1, exact=n % 16 == 0)
    code = compile_for(
        "sm_90a", mma_held, HOLDERS, a, b, out, None, None, 1.0, plan, mode="unchecked"
    )
    check(code, HMMA=2 * plan.steps * plan.wide * plan.high)


@needs_sass
def test_copies_into_aligned_rows_ask_for_all_elements_at_once() -> None:
    x = zeros(np.uint16, 1, 64, 4097)
    code = compile_for("sm_90a", pad_rows, 256, x, x, 2, PadPlan(256, 8, True), mode="unchecked")
    check(code, LDG=8, STG=8)


@needs_sass
@pytest.mark.parametrize("turns", some([True, False], 1))
def test_a_fused_epilogue_spills_nothing(turns: bool) -> None:
    tile = (128, 128, 6) if turns else (128, 256, 4)
    plan = Hopper(
        *tile,
        pingpong=turns,
        transpose_b=True,
        bias=True,
        residual=True,
        activation=gelu_narrow,
        scaled=True,
    )
    check(hopper(BF16, BF16, plan), HGMMA=4, UTMALDG=6)


@needs_sass
@pytest.mark.parametrize("architecture", ["sm_80"])
@pytest.mark.parametrize(
    ("dtype", "out", "name"), some([(BF16, BF16, "HMMA"), (np.int8, np.int32, "IMMA")], 0), ids=str
)
def test_planes_use_matrix_units_and_asynchronous_copies(
    architecture: str, dtype: Any, out: Any, name: str
) -> None:
    args = (
        zeros(dtype, 1, 256, 256),
        zeros(dtype, 1, 256, 256),
        zeros(out, 1, 256, 256),
        None,
        None,
        1.0,
        8,
    )
    code = compile_for(
        architecture, mma_product, 256, *args, Mma(a_async=True, b_async=True), mode="unchecked"
    )
    check(code, **{name: 32, "LDSM": 12, "LDGSTS": 8})


@needs_sass
def test_results_that_meet_in_shared_memory_spill_nothing() -> None:
    args = (zeros(BF16, 1, 256, 41), zeros(BF16, 1, 41, 257), zeros(BF16, 1, 256, 257))
    plan = Mma(b_along_k=False, staged=True)
    code = compile_for(
        "sm_90a", mma_product, 256, *args, None, None, 1.0, 2, plan, mode="unchecked"
    )
    check(code, HMMA=32, STS=64, STG=4)


@needs_sass
def test_plain_arithmetic_keeps_its_sums_in_registers() -> None:
    """Few enough registers for two cubes a core."""
    a = zeros(np.float32, 1, 256, 256)
    code = compile_for(
        "sm_90a", simt_product, 256, a, a, a, None, None, 1.0, 16, Simt(depth=8), mode="unchecked"
    )
    check(code, FFMA=128)
    assert usage(code.cubin).registers <= 128


@needs_sass
@pytest.mark.parametrize("rows", some([8, 16], 1))
def test_few_rows_read_16_bytes_at_a_time(rows: int) -> None:
    x, y, out = (
        zeros(np.uint32, rows, 2048),
        zeros(np.uint32, 4096, 2048),
        zeros(BF16, 1, rows, 4096),
    )
    code = compile_for(
        "sm_90a", few_rows, 256, x, y, out, None, None, 1.0, Few("bf16", rows), mode="unchecked"
    )
    check(code, HMMA=16)
    assert "LDG.E.128" in code.sass
    f = zeros(np.float32, 2, 4096)
    plan = Few("f32", 2, 2, True)
    check(
        compile_for("sm_80", dot_rows, 256, f, f, f[None], None, None, 1.0, plan, mode="unchecked"),
        FFMA=8,
    )


@pytest.mark.parametrize(
    ("problem", "routine"),
    [
        (
            Product("cuda", 4096, 4096, 4096, 1, "bf16", "bf16", "columns", aligned=True),
            HopperRoutine,
        ),
        (Product("cuda", 4096, 4096, 4096, 1, "bf16", "bf16", "columns"), PaddedRoutine),
        (
            Product("cuda", 4096, 4096, 4096, 1, "f32", "f32", "rows", aligned=True, tf32=True),
            PaddedRoutine,
        ),
        (Product("cuda", 30, 31, 33, 1, "bf16", "bf16", "columns"), MmaRoutine),
        (Product("cuda", 4096, 4096, 4096, 1, "f32", "f32", "columns", aligned=True), SimtRoutine),
        (
            Product("cuda", 4096, 4096, 4096, 1, "f32", "f32", "columns", aligned=True, tf32=True),
            HopperRoutine,
        ),
        (
            Product("cuda", 4096, 4096, 4096, 1, "i8", "i8", "columns", out="i32", aligned=True),
            HopperRoutine,
        ),
        (Product("cuda", 4096, 4096, 4096, 1, "i8", "i8", "columns", aligned=True), MmaRoutine),
        (Product("cuda", 64, 64, 64, 1, "f64", "f64"), SimtRoutine),
        (Product("cuda", 8, 4096, 4096, 1, "bf16", "bf16", "columns", aligned=True), FewRoutine),
        (Product("cuda", 2, 4096, 4096, 1, "f32", "f32", "columns"), FewRoutine),
    ],
    ids=str,
)
def test_the_routine_follows_from_dtypes_sizes_and_alignment(
    problem: Product, routine: type
) -> None:
    properties = offline("sm_90a")
    fits = [
        r
        for r in (FewRoutine(), HopperRoutine(), PaddedRoutine(), MmaRoutine(), SimtRoutine())
        if not r.supports(problem, properties)
    ]
    assert type(max(fits, key=lambda r: r.group(problem))) is routine


def test_ampere_has_no_hopper_routine() -> None:
    problem = Product("cuda", 4096, 4096, 4096, 1, "bf16", "bf16", "columns", aligned=True)
    assert HopperRoutine().supports(problem, offline("sm_80"))
    assert not MmaRoutine().supports(problem, offline("sm_80"))


@pytest.mark.parametrize(
    ("shape", "tile"),
    [((4096, 4096, 4096), (128, 256)), ((8192, 8192, 1024), (128, 128)), ((256, 4096, 4096), (64, 128)),
     ((128, 4096, 4096), (64, 64)), ((2048, 11008, 4096), (128, 128)), ((256, 11008, 4096), (128, 192)),
     ((1536, 2048, 8192), (128, 192))],
    ids=str,
)  # fmt: skip
def test_tiles_follow_from_rounds_and_depth(
    shape: tuple[int, int, int], tile: tuple[int, int]
) -> None:
    m, n, k = shape
    problem = Product("cuda", m, k, n, 1, "bf16", "bf16", "columns", aligned=True)
    plan = next(iter(HopperRoutine().blueprints(problem, offline("sm_90a"))))
    assert (plan.rows, plan.columns) == tile


@pytest.mark.parametrize(("k", "cubes"), [(3944, 2), (4096, 1)])
def test_cubes_share_tiles_where_rows_begin_between_lines(k: int, cubes: int) -> None:
    problem = Product("cuda", 3400, k, 2256, 1, "bf16", "bf16", "columns", aligned=True)
    plan = next(iter(HopperRoutine().blueprints(problem, offline("sm_90a"))))
    assert plan.cubes == cubes


def test_tiles_hang_over_only_where_a_residual_may_be_overwritten() -> None:
    plan = Hopper(128, 256, 4, pingpong=False)
    assert plan.last(264, 1000) == (136, 744)
    assert plan.last(100, 200) == (0, 0)
    assert plan.last(264, 1000, again=False) == (264, 1000)
    assert replace(plan, plain=2).last(264, 1000) == (136, 1000)
    across = replace(plan, transpose_a=True, transpose_b=True)
    assert across.last(257, 1002) == (136, 752)  # from 129 and 746 to multiples of 16 bytes


@needs_sass
@pytest.mark.parametrize("plan", some([*SHARED_TILES], 0), ids=lambda p: f"{p.rows}x{p.columns}")
@pytest.mark.parametrize("across", [False, True])
def test_clusters_bring_parts_to_all_their_cubes(plan: Hopper, across: bool) -> None:
    """Descriptors of operands across K name a distance where an address has its cube."""
    code = hopper(BF16, BF16, replace(plan, transpose_b=across))
    check(code, UTMALDG=2, USETMAXREG=2)
    assert (
        usage(code.cubin).registers == 168
    )  # what groups then pass on to each other: else it hangs
    assert "UTMALDG.3D.MULTICAST" in code.sass
    masks = re.findall(r"and\.b32 +\t?%r\d+, %r\d+, (16[23]\d\d);", code.ptx)
    assert bool(masks) == across


def test_narrow_activations_are_close_enough_for_16_bits() -> None:
    """Through the kernel language on the CPU, against float64."""
    from cubepy import kernels as K

    x = np.linspace(-6, 9, 4001, dtype=np.float32)
    wide = x.astype(np.float64)
    inner = 0.7978845608028654 * (wide + 0.044715 * wide**3)
    right = {
        functions.gelu_erf: wide * 0.5 * np.vectorize(math.erfc)(-wide / math.sqrt(2)),
        functions.gelu_tanh: wide / (1 + np.exp(-2 * inner)),
        functions.silu: wide / (1 + np.exp(-wide)),
        functions.sigmoid: 1 / (1 + np.exp(-wide)),
    }
    assert right.keys() == NARROW.keys()
    for plain, narrow in NARROW.items():
        np.testing.assert_allclose(K.map(narrow, x), right[plain], rtol=3e-4, atol=1e-6)
