"""Few tiles, whose depth pairs of cubes share, and f32 with tiles of the copy engine: emulated and
compiled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.matmul.gpu.simt import SimtRoutine
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.sm90.cluster_split_k import (
    ClusterSplitK,
    ClusterSplitKRoutine,
    cluster_split_k_product,
)
from cubepy.kernels.matmul.sm90.tma_simt import DEPTH, LANES, WIDE, Fma, FmaRoutine, fma_product
from cubepy.kernels.matmul.sm90.tma_simt_split_k import (
    FmaPlanes,
    FmaPlanesRoutine,
    fma_planes_product,
)
from cubepy.kernels.primitives.functions_half import silu_narrow
from cubepy.kernels.primitives.pipeline import BLOCK, ROW_BYTES
from cubepy.runtime.device import device_properties

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.backend import offline
from cubepy.backends.cuda.codegen.disassemble import count, usage
from cubepy.backends.cuda.offline import compile_for
from tests.backends.cuda.disassembler import needs_sass
from tests.backends.cuda.emulator.launch import emulate
from tests.backends.cuda.thorough import some

BF16 = ml_dtypes.bfloat16


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def fma_maps(plan: Fma | FmaPlanes, a: np.ndarray, b: np.ndarray) -> tuple[Any, Any]:
    """The tensor maps that a plan takes of operands as they lie."""
    return (
        cb.tensor_map(a, (1, plan.rows, DEPTH)),
        cb.tensor_map(b, (1, plan.columns, DEPTH) if plan.b_along_k else (1, DEPTH, plan.columns)),
    )


def thin_maps(plan: ClusterSplitK, a: np.ndarray, b: np.ndarray) -> tuple[Any, Any]:
    """The same for a plan of clusters, whose operands may lie across K."""
    depth = ROW_BYTES // a.itemsize
    return (
        cb.tensor_map(a, (1, depth, BLOCK) if plan.transpose_a else (1, plan.rows, depth)),
        cb.tensor_map(b, (1, depth, BLOCK) if plan.transpose_b else (1, plan.columns, depth)),
    )


def error(
    kernel: Any, plan: Any, units: int, parts: int, depth: int, maps: Any, across: tuple[bool, bool],
    shape: tuple[int, int, int, int], dtype: Any,
) -> float:  # fmt: skip
    """The relative error of one emulated product with its epilogue."""
    batches, m, n, k = shape
    rng = np.random.default_rng(sum(shape))
    x, y, bias, residual = (
        rng.standard_normal(s).astype(dtype)
        for s in ((batches, m, k), (batches, n, k), (n,), (batches, m, n))
    )
    lie = [
        np.ascontiguousarray(v.swapaxes(1, 2)) if flip else v
        for v, flip in zip((x, y), across, strict=True)
    ]
    out = np.full((batches, m, n), np.nan, dtype)
    row_tiles, column_tiles = -(-m // plan.rows), -(-n // plan.columns)
    emulate(
        kernel, units, batches * row_tiles * column_tiles * parts, *maps(plan, *lie), out,
        bias if plan.bias else None, residual if plan.residual else None, 0.5, (row_tiles, column_tiles),
        -(-k // depth), (batches, batches), plan,
    )  # fmt: skip
    right = x.astype(np.float64) @ y.astype(np.float64).swapaxes(1, 2)
    right = right * 0.5 if plan.scaled else right
    right = right + bias.astype(np.float64) if plan.bias else right
    right = silu(right) if plan.activation is not None else right
    right = right + residual.astype(np.float64) if plan.residual else right
    return float(np.linalg.norm(out.astype(np.float64) - right) / np.linalg.norm(right))


FMAS = [Fma(64, 64, 8, 2), Fma(128, 64, 16, 3, bias=True, residual=True, scaled=True)]


@pytest.mark.parametrize("plan", some(FMAS, 0, 1), ids=lambda p: str(p.high))
def test_plain_f32(plan: Fma) -> None:
    """More steps than stages, and tiles that hang over every edge."""
    shape = (2 if plan.high == 8 else 1, plan.rows + 4, 40, 132)
    assert (
        error(fma_product, plan, plan.units, 1, DEPTH, fma_maps, (False, False), shape, np.float32)
        < 1e-6
    )


@pytest.mark.day(1, 2)
def test_planes_share_a_sum_of_plain_f32() -> None:
    """Planes with one stage more than others, more stages than fit, and tiles that hang over every
    edge.
    """
    for plan, shape in (
        (FmaPlanes(2, bias=True), (1, 36, 40, 620)), (FmaPlanes(1, 2, scaled=True), (1, 70, 20, 300)),
        (FmaPlanes(2, b_along_k=False), (2, 36, 44, 332)),
    ):  # fmt: skip
        across = (False, not plan.b_along_k)
        assert (
            error(
                fma_planes_product, plan, plan.units, 1, DEPTH, fma_maps, across, shape, np.float32
            )
            < 1e-6
        )


@needs_sass
def test_plain_f32_is_nearly_all_products() -> None:
    """Nothing is spilled at the registers of two cubes a core, and lines are read once."""
    a, plan = np.zeros((1, 256, 256), np.float32), Fma()
    code = compile_for(
        "sm_90a", fma_product, plan.units, *fma_maps(plan, a, a), a, None, None, 1.0, (2, 2), 8, (1, 1), plan,
        mode="unchecked",
    )  # fmt: skip
    held, found = usage(code.cubin), count(code.sass, "FFMA", "LDS", "LDL")
    assert held.stack == found["LDL"] == 0
    assert held.registers * plan.units * plan.cubes <= 65536
    assert found["FFMA"] >= plan.high * WIDE * LANES
    assert found["LDS"] <= plan.high + WIDE + LANES


@needs_sass
def test_planes_that_share_plain_f32_spill_nothing() -> None:
    a = np.zeros((1, 256, 256), np.float32)
    for plan in (FmaPlanes(1, 2, bias=True), FmaPlanes(1, 2, b_along_k=False)):
        code = compile_for(
            "sm_90a", fma_planes_product, plan.units, *fma_maps(plan, a, a), a, a[0, 0] if plan.bias else None, None,
            1.0, (2, 2), 8, (1, 1), plan, mode="unchecked",
        )  # fmt: skip
        held = usage(code.cubin)
        assert held.stack == 0
        assert held.registers * plan.units * plan.cubes <= 65536


def test_plain_f32_is_taken_where_tiles_fill_the_device() -> None:
    properties, problem = (
        offline("sm_90a"),
        Product("cuda", 2048, 2048, 2048, 1, "f32", "f32", "columns", aligned=True),
    )
    routine = FmaRoutine()
    assert routine.supports(problem, properties) is None
    assert list(routine.blueprints(problem, properties))
    assert not list(routine.blueprints(problem._replace(m=512), properties))
    small = FmaPlanesRoutine()
    assert list(small.blueprints(problem._replace(m=32), properties)) == [FmaPlanes(2)]
    assert list(small.blueprints(problem._replace(m=512), properties)) == [FmaPlanes(1, 2)]
    assert not list(small.blueprints(problem._replace(m=32, n=384), properties))
    assert small.supports(problem._replace(layout="rows"), properties) is None
    assert small.supports(problem._replace(layout="strided"), properties)
    assert routine.supports(problem._replace(layout="rows"), properties)
    for other in (
        problem._replace(tf32=True),
        problem._replace(aligned=False),
        problem._replace(a="f16"),
    ):
        assert routine.supports(other, properties)
    assert routine.supports(problem, offline("sm_80"))


THINS = [
    ClusterSplitK(64, 64, 2, 2), ClusterSplitK(64, 128, 3, 4, transpose_a=True, transpose_b=True), ClusterSplitK(128, 80, 2, 1),
    ClusterSplitK(64, 64, 2, 2, bias=True, residual=True, activation=silu_narrow, scaled=True),
]  # fmt: skip


@pytest.mark.parametrize(
    "plan", some(THINS, 1, 2, 3), ids=lambda p: f"{p.rows}x{p.columns}/{p.parts}"
)
def test_clusters_that_share_the_depth(plan: ClusterSplitK) -> None:
    across, depth = (plan.transpose_a, plan.transpose_b), ROW_BYTES // 2
    shape = (2 if plan.parts == 1 else 1, 72, 136, 456)
    assert (
        error(
            cluster_split_k_product,
            plan,
            plan.units,
            plan.parts,
            depth,
            thin_maps,
            across,
            shape,
            BF16,
        )
        < 3e-3
    )


def test_a_part_of_the_depth_may_be_empty() -> None:
    plan = ClusterSplitK(64, 64, 2, 4)
    assert (
        error(
            cluster_split_k_product,
            plan,
            plan.units,
            4,
            64,
            thin_maps,
            (False, False),
            (1, 24, 40, 128),
            BF16,
        )
        < 3e-3
    )


@needs_sass
@pytest.mark.parametrize("plan", some([ClusterSplitK(), ClusterSplitK(128, 112, 5, 1)], 0))
def test_clusters_spill_nothing(plan: ClusterSplitK) -> None:
    a = np.zeros((1, 256, 256), BF16)
    maps = thin_maps(plan, a, a)
    code = compile_for(
        "sm_90a",
        cluster_split_k_product,
        plan.units,
        *maps,
        a,
        None,
        None,
        1.0,
        (2, 2),
        8,
        (1, 1),
        plan,
        mode="unchecked",
    )
    assert usage(code.cubin).stack == 0
    assert count(code.sass, "HGMMA")["HGMMA"] == 4


@pytest.mark.parametrize(
    ("shape", "shared"),
    [((64, 4096, 4096), True), ((17, 4096, 4096), True), ((128, 4096, 4096), False), ((64, 14336, 4096), False),
     ((64, 4096, 1024), False)],
    ids=str,
)  # fmt: skip
def test_pairs_share_the_depth_where_tiles_are_few_and_long(
    shape: tuple[int, int, int], shared: bool
) -> None:
    m, n, k = shape
    problem = Product("cuda", m, k, n, 1, "bf16", "bf16", "columns", aligned=True)
    properties = offline("sm_90a")
    assert ClusterSplitKRoutine().supports(problem, properties) is None
    assert bool(list(ClusterSplitKRoutine().blueprints(problem, properties))) is shared
    assert ClusterSplitKRoutine().supports(problem._replace(aligned=False), properties)
    assert ClusterSplitKRoutine().supports(problem._replace(a="f32", b="f32"), properties)
    assert ClusterSplitKRoutine().supports(problem, offline("sm_80"))


@pytest.mark.parametrize("room", [48 << 10, 64 << 10, 227 << 10])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "i8"])
def test_tiles_of_plain_arithmetic_fit_into_shared_memory(dtype: str, room: int) -> None:
    rng = np.random.default_rng(room)
    properties = replace(device_properties("python"), cores=60, max_shared_memory=room)
    for m, k, n in np.exp(rng.uniform(0, 9, (40, 3))).astype(int):
        problem = Product("python", int(m), int(k), int(n), a=dtype, b=dtype)
        plans = list(SimtRoutine().blueprints(problem, properties))
        assert plans and all(p.shared * p.dtype.itemsize <= room for p in plans)
