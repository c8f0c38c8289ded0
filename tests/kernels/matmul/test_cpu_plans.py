"""How products on a CPU are cut: tiles of eight lanes, rows that cubes share, pieces of K."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.config import config
from cubepy.kernels.matmul.cpu import blocked, blocking
from cubepy.kernels.matmul.cpu.blocked import Tile, pack
from cubepy.kernels.matmul.cpu.blocking import TilePlan, tile_of
from cubepy.kernels.matmul.cpu.split_k import Split
from cubepy.kernels.matmul.cpu.vnni import kind_of
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.routines import MATMUL
from cubepy.kernels.primitives.functions import relu
from tests.backends.cuda.thorough import some
from tests.staging import WHERE

NARROW_TILES = [  # m, k, n, packed: rows and lines, what they share, and how b is packed
    ((32, 40, 960), 0, (4, 3), {"block_panels": 4, "wide": 4, "depth": 256, "fetched": False}),
    ((32, 40, 512), 16, (4, 2), {"block_panels": 1, "wide": 1, "fetched": True}),
    ((300, 40, 512), 0, (6, 2), {"block_panels": 4, "wide": 4, "depth": 1024, "fetched": True}),
    ((1030, 40, 70), 0, (6, 2), {"block_panels": 5, "beforehand": True, "fetched": True}),
    ((1030, 40, 70), 16, (6, 2), {"block_panels": 5, "beforehand": False, "fetched": True}),
]


@pytest.mark.skipif(bool(WHERE), reason="tiles of a CPU")
@pytest.mark.parametrize("shape, packed, tile, expected", some(NARROW_TILES, 0, 3), ids=str)
def test_tiles_of_eight_lanes(shape: Any, packed: int, tile: Any, expected: Any) -> None:
    properties = replace(
        cb.device_properties_of("cpu"),
        register_bytes=32,
        vector_registers=16,
        cores=2,
        features=frozenset(),
    )
    problem = Product("cpu", *shape, packed=packed)
    plan = next(Tile().blueprints(problem, properties))
    assert (plan.rows, plan.lines, plan.lanes) == (*tile, 8)
    assert {name: getattr(plan, name) for name in expected} == expected
    args = MATMUL.make(problem._replace(packed=0), 1)
    exact = args[0][0].astype(np.float64) @ args[1][0]
    if packed:
        args = (args[0], pack(args[1], packed // 8, 8), *args[2:])
    Tile().launch(plan, problem, args)
    np.testing.assert_allclose(args[2][0], exact, rtol=1e-4, atol=1e-3)


WIDTHS = [  # m, k, n, packed: rows and lines of a tile with 32 registers of 16 lanes
    ((512, 96, 24), 0, (12, 2)),
    ((512, 24, 96), 0, (8, 3)),
    ((512, 24, 40), 0, (8, 3)),
    ((11, 96, 24), 0, (6, 4)),
    ((24, 512, 128), 0, (6, 4)),
    ((512, 24, 768), 0, (6, 4)),
    ((512, 96, 24), 64, (6, 4)),
]


@pytest.mark.skipif(bool(WHERE), reason="tiles of a CPU")
@pytest.mark.parametrize("shape, packed, tile", WIDTHS, ids=str)
def test_tiles_of_sixteen_lanes_are_about_as_wide_as_the_result(
    shape: Any, packed: int, tile: Any
) -> None:
    properties = replace(
        cb.device_properties_of("cpu"), register_bytes=64, vector_registers=32, features=frozenset()
    )
    problem = Product("cpu", *shape, packed=packed)
    plan = next(Tile().blueprints(problem, properties))
    assert (plan.rows, plan.lines, plan.lanes) == (*tile, 16)
    args = MATMUL.make(problem._replace(packed=0), 1)
    exact = args[0][0].astype(np.float64) @ args[1][0]
    if packed:
        args = (args[0], pack(args[1], packed // 16, 16), *args[2:])
    Tile().launch(plan, problem, args)
    np.testing.assert_allclose(args[2][0], exact, rtol=1e-4, atol=1e-3)


GATHERED = [  # m, k, n, batches of a and of b, packed, layout; rows, tiles and panels of a cube; piece, b packed at once
    ((13, 40, 70), 1, 1, 0, "rows", (6, 3, 3), 16, False),
    ((1, 9, 17), 1, 1, 16, "rows", (4, 1, 1), 768, True),
    ((50, 33, 48), 2, 1, 16, "rows", (4, 2, 2), 8, True),
    ((31, 24, 33), 3, 3, 0, "rows", (6, 12, 2), 24, True),
    ((20, 27, 35), 1, 1, 0, "columns", (6, 2, 3), 8, False),
    ((7, 18, 40), 1, 1, 0, "strided", (4, 2, 1), 8, True),
]


@pytest.mark.skipif(bool(WHERE), reason="tiles of a CPU")
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize(
    "shape, batch, of_b, packed, layout, tile, depth, whole", some(GATHERED, 0, 2), ids=str
)
def test_rows_that_are_gathered(
    shape: Any, batch: int, of_b: int, packed: int, layout: Any, tile: Any, depth: int, whole: bool, more: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(blocked, "AT_ONCE", 1 << 20 if whole else 0)
    problem = Product("cpu", *shape, batch=batch, layout=layout)
    x, y, out = MATMUL.make(problem, 1)[:3]
    y = y[:of_b]
    exact = x.astype(np.float64) @ y
    bias, residual = (
        np.random.default_rng(2).standard_normal(s, np.float32) for s in (shape[2], out.shape)
    )
    mask = residual > 0
    epilogue = (bias, residual, relu, 0.5, mask, 7.0) if more else (None, None, None, 1.0)
    if more:
        exact = np.where(mask, np.maximum(0.5 * exact + bias, 0) + residual, 7.0)
    rows, tiles, panels = tile
    plan = TilePlan(
        rows, 2, 8, tiles, panels, depth, beforehand=not packed, fetched=True, packs_a=True
    )
    out[...] = np.nan
    Tile().launch(
        plan, problem._replace(packed=packed), (x, pack(y, 2, 8) if packed else y, out, *epilogue)
    )
    np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(bool(WHERE), reason="tiles of a CPU")
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_gathered_rows_of_short_floats_are_rounded_once(name: str) -> None:
    problem = Product("cpu", 20, 24, 40, a=name, b=name)
    plan = TilePlan(6, 2, 8, 2, 3, 24, beforehand=True, fetched=True, packs_a=True)
    args = MATMUL.make(problem, 1)
    Tile().launch(plan, problem, args)
    exact = (
        (args[0].astype(np.float64) @ args[1].astype(np.float64))
        .astype(args[2].dtype)
        .astype(np.float64)
    )
    unit = {"f16": 2.0**-10, "bf16": 2.0**-7}[name]
    np.testing.assert_allclose(args[2].astype(np.float64), exact, rtol=unit, atol=1e-4)


@pytest.mark.skipif(bool(WHERE), reason="tiles of a CPU")
def test_calls_that_gather_rows_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = TilePlan(6, 2, 8, 3, 5, 24, beforehand=True, fetched=True, packs_a=True)
    monkeypatch.setattr(Tile, "blueprints", lambda *_: iter([plan]))
    monkeypatch.setattr(blocked, "AT_ONCE", 0)  # b is packed in three parts
    x, y = (np.random.default_rng(3).standard_normal(s, np.float32) for s in ((37, 67), (67, 301)))
    for _ in range(3):
        K.matmul(x, y)
    monkeypatch.setattr(
        sys.modules[inspect.unwrap(K.matmul).__module__], "_launch", None
    )  # the long way
    np.testing.assert_allclose(K.matmul(-x, y), -(x.astype(np.float64) @ y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cores", [1, 2, 6, 16])
def test_rows_are_gathered_for_many_columns_with_eight_lanes(cores: int) -> None:
    def first(*shape: int, width: int = 32, **more: Any) -> TilePlan:
        registers = 32 if width == 64 else 16
        given = {
            "register_bytes": width,
            "vector_registers": registers,
            "features": frozenset(),
            "cores": cores,
        }
        return next(
            Tile().blueprints(
                Product("cpu", *shape, **more), replace(cb.device_properties_of("cpu"), **given)
            )
        )

    for shape in ((512, 512, 512), (4096, 700, 256), (64, 4096, 4096), (8192, 32, 1024)):
        plan, tiles = first(*shape), -(-shape[0] // 6)
        assert plan.packs_a and plan.beforehand and plan.depth <= 768 and plan.block_rows <= 12
        assert -(-tiles // plan.block_rows) * -(-shape[2] // 16 // plan.block_panels) >= cores, (
            "all cores have work"
        )
        assert not first(*shape, width=64).packs_a
    assert first(32, 4096, 4096, packed=16).packs_a, "b is in order already"
    assert not first(32, 2048, 2048).packs_a, "packing all of b takes longer"
    assert first(12, 4096, 11008).packs_a and first(12, 4096, 11008).depth < 300, (
        "pieces of b stay in a cache"
    )
    assert not first(4096, 4096, 64).packs_a, "few panels share a row of a"
    assert not first(512, 2048, 512, a="f16", b="f16").packs_a, "sums of pieces would be rounded"


@pytest.mark.parametrize("m, k, n", [(64, 8192, 64), (128, 4096, 4096), (32, 1024, 1024)])
def test_panels_that_caches_keep_are_walked_in_long_pieces(m: int, k: int, n: int) -> None:
    properties = cb.device_properties_of("cpu")
    _, lines, lanes = tile_of(properties)
    plan = next(Tile().blueprints(Product("cpu", m, k, n, packed=lines * lanes), properties))
    assert not plan.ahead and plan.depth > blocking.DEPTH


@pytest.mark.skipif(bool(WHERE), reason="a routine for CPUs")
@pytest.mark.parametrize("name, packed", [("f32", 0), ("bf16", 0), ("i8", 0), ("bf16", 1)])
def test_few_tiles_are_split_along_k(name: str, packed: int) -> None:
    problem = Product("cpu", 13, 2048, 70, a=name, b=name, out="i32" if name == "i8" else "")
    properties = replace(cb.device_properties_of("cpu"), cores=64)
    if packed:
        _, lines, lanes = tile_of(properties, kind_of(problem, properties))
        problem = problem._replace(packed=32 if "tiles" in properties.features else lines * lanes)
        if kind_of(problem, properties) != "bf16":
            pytest.skip("no dot products of bf16")
    if Split().supports(problem, properties):
        pytest.skip("no dot products of bytes")
    plan, args = next(Split().blueprints(problem, properties)), MATMUL.make(problem, 1)
    unit, size = MATMUL.tolerance(problem)
    for fixed in (False, True):
        args[2][...] = 0
        with config.override(deterministic=fixed):
            Split().launch(plan, problem, args)
        found, exact = MATMUL.results(problem, args)[0], MATMUL.reference(problem, args)[0]
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=unit, atol=unit and size)
    assert plan.parts > 1
