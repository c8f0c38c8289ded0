"""The Hopper matmul and the products of few rows, run by the emulator: right whatever the order of
units and copies.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.matmul.gpu.gemv import PLANES, Few, few_rows
from cubepy.kernels.matmul.gpu.gemv import UNITS as FEW_UNITS
from cubepy.kernels.matmul.gpu.simt import UNITS as SIMT_UNITS
from cubepy.kernels.matmul.gpu.simt import Simt, simt_product
from cubepy.kernels.matmul.sm90.epilogue import PLANE_ROWS
from cubepy.kernels.matmul.sm90.persistent import UNITS, Hopper, hopper_product
from cubepy.kernels.primitives.functions_half import gelu_narrow
from cubepy.kernels.primitives.pipeline import BLOCK, ROW_BYTES

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")

from tests.backends.cuda.emulator.launch import emulate
from tests.backends.cuda.thorough import some

BF16 = ml_dtypes.bfloat16


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2))


def hopper(
    plan: Hopper,
    m: int,
    n: int,
    k: int,
    cubes: int,
    dtype: Any = BF16,
    out: Any = BF16,
    batches: int = 1,
    seed: int = 0,
    late: float = 1.0,
) -> float:
    """The relative error of one emulated product; every element must have been written."""
    rng = np.random.default_rng(seed)
    integers = np.dtype(dtype).kind == "i"
    draw = (lambda *s: rng.integers(-9, 9, s)) if integers else (lambda *s: rng.standard_normal(s))
    x, y = draw(batches, m, k).astype(dtype), draw(batches, n, k).astype(dtype)
    bias, residual = draw(n).astype(out), draw(batches, m, n).astype(out)
    result = np.full((batches, m, n), -77 if integers else np.nan, out)
    depth, width = ROW_BYTES // x.itemsize, ROW_BYTES // result.itemsize
    box_a = (1, depth, BLOCK) if plan.transpose_a else (1, plan.rows // plan.across, depth)
    box_b = (1, depth, BLOCK) if plan.transpose_b else (1, plan.columns // plan.down, depth)
    box = (1, PLANE_ROWS, width)
    row_tiles, column_tiles = plan.tiles(m, n)
    lie = [np.ascontiguousarray(v.swapaxes(1, 2)) if flip else v for v, flip in
           ((x, plan.transpose_a), (y, plan.transpose_b))]  # fmt: skip
    emulate(
        hopper_product, UNITS, min(cubes, batches * row_tiles * column_tiles) * plan.cubes, cb.tensor_map(lie[0], box_a),
        cb.tensor_map(lie[1], box_b), cb.tensor_map(result, box), bias if plan.bias else None,
        cb.tensor_map(residual, box) if plan.residual else None, 0.5, (batches, row_tiles, column_tiles, *plan.last(m, n)), -(-k // depth),
        (batches, batches), plan, late=late, seed=seed,
    )  # fmt: skip
    right = x.astype(np.float64) @ y.astype(np.float64).swapaxes(1, 2)
    right = right * 0.5 if plan.scaled else right
    right = right + bias.astype(np.float64) if plan.bias else right
    other = residual.astype(np.float64)
    right = right + other if plan.joined == "add" else right
    right = gelu(right) if plan.activation is not None else right
    right = right * other if plan.joined == "gate" else right
    right = right + other if plan.residual and plan.joined == "residual" else right
    return float(np.linalg.norm(result.astype(np.float64) - right) / np.linalg.norm(right))


TILES = [
    Hopper(128, 256, 4, pingpong=False),
    Hopper(128, 128, 6),
    Hopper(64, 128, 3),
    Hopper(64, 64, 10),
    Hopper(128, 192, 4, pingpong=False),
]


WALKS = [(plan, cubes) for cubes in (1, 2) for plan in TILES]


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    ("plan", "cubes"),
    some(WALKS, 0, 1, 2, 3, 6, 9),
    ids=lambda v: v if isinstance(v, int) else f"{v.rows}x{v.columns}x{v.stages}",
)
def test_tiles_that_cubes_walk_over(plan: Hopper, cubes: int) -> None:
    """Several tiles a cube and more steps than stages: rings, turns and buffers wrap around."""
    assert hopper(plan, 200, 392, 328, cubes) < 3e-3


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    ("plan", "flips"),
    [
        (Hopper(64, 128, 3, down=2), (False, False)),
        (Hopper(128, 128, 3, across=2), (True, False)),
        (Hopper(128, 128, 3, down=2), (False, True)),
        (Hopper(128, 64, 3, pingpong=False, down=2), (False, False)),
        (Hopper(128, 256, 2, pingpong=False, across=2), (False, True)),
    ],
    ids=str,
)
@pytest.mark.parametrize("cubes", [1, 2])
def test_clusters_that_share_an_operand(plan: Hopper, flips: tuple[bool, bool], cubes: int) -> None:
    """Also where the last of a cluster has nothing to do, and with rings that wrap around."""
    plan = replace(plan, transpose_a=flips[0], transpose_b=flips[1], bias=True)
    assert hopper(plan, 136, 392, 328, cubes, seed=cubes, late=0.5) < 3e-3


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("turns", [True, False])
def test_any_order_of_units_and_copies(turns: bool, seed: int) -> None:
    plan = Hopper(64, 64, 3) if turns else Hopper(128, 64, 3, pingpong=False)
    assert hopper(plan, 264, 136, 264, 1, seed=seed, late=1 - seed % 2 / 2) < 3e-3


@pytest.mark.turns(6)
@pytest.mark.parametrize("flips", [(True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("turns", [True, False])
def test_operands_that_lie_across_the_depth(turns: bool, flips: tuple[bool, bool]) -> None:
    plan = Hopper(128, 128, 4, pingpong=turns, transpose_a=flips[0], transpose_b=flips[1])
    assert hopper(plan, 136, 200, 136, 2) < 3e-3


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    ("rows", "columns", "turns"),
    [(128, 256, False), (128, 192, False), (128, 128, True), (64, 64, True)],
)
def test_fused_epilogues(rows: int, columns: int, turns: bool) -> None:
    plan = Hopper(
        rows,
        columns,
        3,
        pingpong=turns,
        bias=True,
        residual=True,
        activation=gelu_narrow,
        scaled=True,
    )
    assert hopper(plan, 200, 392, 72, 1) < 3e-3


@pytest.mark.turns(6)
@pytest.mark.parametrize("joined", ["add", "gate"])
@pytest.mark.parametrize(("out", "turns"), [(BF16, True), (BF16, False), (np.float32, True)])
def test_residuals_before_the_activation_and_gates(out: Any, turns: bool, joined: str) -> None:
    plan = Hopper(128, 128, 3, pingpong=turns, bias=True, residual=True, activation=gelu_narrow)
    assert hopper(replace(plan, joined=joined), 136, 200, 72, 1, BF16, out) < 3e-3


@pytest.mark.turns(6)
@pytest.mark.parametrize("turns", [True, False])
@pytest.mark.parametrize(
    ("dtype", "out", "unit"), [(np.float16, np.float16, 4e-4), (BF16, np.float32, 1e-6), (np.float32, np.float32, 1e-6),
                               (np.int8, np.int32, 0.0)], ids=str,
)  # fmt: skip
def test_dtypes(dtype: Any, out: Any, unit: float, turns: bool) -> None:
    assert hopper(Hopper(128, 128, 4, pingpong=turns), 136, 208, 144, 1, dtype, out) <= unit


def test_batches() -> None:
    assert hopper(Hopper(64, 128, 4), 72, 136, 72, 2, batches=3) < 3e-3


@pytest.mark.parametrize(("m", "groups"), [(1, 2), (16, 4), (11, 1)])
def test_few_rows(m: int, groups: int) -> None:
    rng = np.random.default_rng(m)
    n, k = 72, 1208
    x, y = (rng.standard_normal((r, k)).astype(BF16) for r in (m, n))
    out, plan = np.full((1, m, n), np.nan, BF16), Few("bf16", 8 if m <= 8 else 16, groups)
    words = (x.view(np.uint32), y.view(np.uint32))
    emulate(few_rows, FEW_UNITS, -(-n // (groups * PLANES)), *words, out, None, None, 1.0, plan)
    right = x.astype(np.float64) @ y.astype(np.float64).T
    assert np.linalg.norm(out[0].astype(np.float64) - right) < 3e-3 * np.linalg.norm(right)


@pytest.mark.turns(6)
@pytest.mark.parametrize("along", [(True, True), (False, False), (True, False)], ids=str)
@pytest.mark.parametrize(
    "tile", [(128, 128, 8, 2, 2), (64, 64, 16, 1, 1), (32, 16, 128, 1, 1)], ids=str
)
def test_plain_arithmetic(tile: tuple[int, ...], along: tuple[bool, bool]) -> None:
    rows, columns, depth = tile[:3]
    rng = np.random.default_rng(rows)
    m, n, k = (140, 70, 37) if rows == 128 else (70, 40, 37) if rows == 64 else (36, 20, 150)
    batches = 1 if rows == 128 else 2  # of which the second operand has one
    x, y = (
        rng.standard_normal((batches, m, k), np.float32),
        rng.standard_normal((1, n, k), np.float32),
    )
    a, b = (
        v if flag else np.ascontiguousarray(v.swapaxes(1, 2))
        for v, flag in zip((x, y), along, strict=True)
    )
    out, plan = np.full((batches, m, n), np.nan, np.float32), Simt(cb.f32, *tile, *along)
    cubes = batches * -(-m // rows) * -(-n // columns)
    emulate(simt_product, SIMT_UNITS, cubes, a, b, out, None, None, 1.0, -(-k // depth), plan)
    right = x.astype(np.float64) @ y.astype(np.float64).swapaxes(1, 2)
    assert np.linalg.norm(out - right) < 1e-6 * np.linalg.norm(right)
