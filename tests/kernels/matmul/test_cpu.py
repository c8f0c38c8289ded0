"""Products on the CPU: dtypes in words, layouts, tails of tiles, and calls that repeat the launches
of earlier ones.
"""

from __future__ import annotations

import inspect
import sys
import threading
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy import kernels as K
from cubepy.config import config
from cubepy.errors import AliasError, DTypeError, ReadOnlyError, ShapeError
from cubepy.kernels.matmul.cpu import blocked, blocking
from cubepy.kernels.matmul.cpu.blocked import Tile, pack
from cubepy.kernels.matmul.cpu.blocking import TilePlan, tile_of
from cubepy.kernels.matmul.cpu.gemv import GemvPlan, GemvRoutine
from cubepy.kernels.matmul.cpu.split_k import Split
from cubepy.kernels.matmul.cpu.vnni import kind_of
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.routines import MATMUL
from cubepy.kernels.primitives.functions import relu
from tests.backends.cuda.thorough import some
from tests.staging import DEVICES, WHERE

BF16 = ml_dtypes.bfloat16
FLOATS = {"f32": (np.float32, 1e-5), "f16": (np.float16, 2e-3), "bf16": (BF16, 1e-2)}


def laid_out(rng: Any, shape: tuple[int, int], dtype: Any, layout: str) -> np.ndarray:
    """A matrix of small numbers, its rows or columns neighbours in memory, or neither."""

    def made(shape: tuple[int, ...]) -> np.ndarray:
        if np.dtype(dtype).kind in "iu":
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
        return rng.standard_normal(shape, np.float32).astype(dtype)

    m, n = shape
    return {
        "rows": lambda: made((m, n)),
        "columns": lambda: made((n, m)).T,
        "strided": lambda: made((m, 2 * n))[:, ::2],
    }[layout]()


LAYOUTS = st.sampled_from(["rows", "columns", "strided"])
LENGTHS = st.sampled_from([1, 2, 3, 5, 6, 7, 8, 13, 31, 64, 65, 130])


@settings(deadline=None, max_examples=60)
@given(
    LENGTHS, LENGTHS, LENGTHS, st.sampled_from(list(FLOATS)), LAYOUTS, LAYOUTS, st.integers(0, 99)
)
def test_products_of_floats_are_those_of_float64(
    m: int, k: int, n: int, name: str, layout_a: str, layout_b: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    dtype, tolerance = FLOATS[name]
    a, b = laid_out(rng, (m, k), dtype, layout_a), laid_out(rng, (k, n), dtype, layout_b)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for _ in range(4):  # the first call, the one that is recorded, and those that repeat it
        found = K.matmul(a, b)
        assert found.dtype == dtype
        np.testing.assert_allclose(
            found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * k**0.5
        )


@settings(deadline=None, max_examples=60)
@given(
    LENGTHS,
    LENGTHS,
    LENGTHS,
    st.sampled_from([np.int8, np.uint8]),
    LAYOUTS,
    LAYOUTS,
    st.integers(0, 99),
)
def test_products_of_bytes_are_exact(
    m: int, k: int, n: int, dtype: Any, layout_a: str, layout_b: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    a, b = laid_out(rng, (m, k), dtype, layout_a), laid_out(rng, (k, n), np.int8, layout_b)
    for _ in range(3):
        np.testing.assert_array_equal(
            K.matmul(a, b, dtype=cb.i32), a.astype(np.int32) @ b.astype(np.int32)
        )


def test_the_extremes_of_bytes_do_not_saturate() -> None:
    a, b = np.full((9, 1000), -128, np.int8), np.full((1000, 70), -128, np.int8)
    np.testing.assert_array_equal(
        K.matmul(a, b, dtype=cb.i32), np.full((9, 70), 128 * 128 * 1000, np.int32)
    )


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_a_long_k_is_summed_in_pieces(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for m, k, n in ((64, 2049, 64), (30, 1030, 600), (300, 1100, 300)):
        a, b = (laid_out(rng, s, dtype, "rows") for s in ((m, k), (k, n)))
        exact = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(K.matmul(a, b, dtype=cb.f32), exact, rtol=1e-4, atol=1e-3)
        found = K.matmul(a.astype(np.float32), K.prepack(b))
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name, layout", [("f32", "rows"), ("i8", "rows"), ("f32", "columns")])
def test_panels_are_packed_side_by_side(name: str, layout: str) -> None:
    problem = Product(
        "cpu", 13, 270, 330, a=name, b=name, layout=layout, out="i32" if name == "i8" else ""
    )
    properties = cb.device_properties_of("cpu")
    properties = replace(
        properties, features=properties.features - {"tiles"}
    )  # a matrix unit takes none side by side
    if Tile().supports(problem, properties):
        pytest.skip("no dot products of bytes")
    plan = replace(next(Tile().blueprints(problem, properties)), wide=4, block_panels=4, depth=64)
    args = MATMUL.make(problem, 1)
    Tile().launch(plan, problem, args)
    np.testing.assert_allclose(
        args[2][0], args[0][0].astype(np.float64) @ args[1][0], rtol=1e-4, atol=1e-3
    )


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


@pytest.mark.skipif(bool(WHERE), reason="for one unit")
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
@pytest.mark.parametrize(
    "shape", [(1, 100, 70), (2, 67, 256), (3, 9, 5), (4, 8, 301), (1, 3, 40), (4, 1, 9)], ids=str
)
def test_few_rows_with_the_sum_cut_apart(shape: tuple[int, int, int], dtype: Any) -> None:
    (m, k, n), rng = shape, np.random.default_rng(0)
    x, b, residual = (
        rng.standard_normal(s, np.float32).astype(dtype) for s in ((m, k), (k, n), (1, m, n))
    )
    bias, out = rng.standard_normal(n, np.float32).astype(dtype), np.full((1, m, n), np.nan, dtype)
    plan, problem = GemvPlan(False, m, 1, 8, split_k=True), Product("cpu", m, k, n)
    GemvRoutine().launch(plan, problem, (x[None], b[None], out, bias, residual, relu, 0.5))
    product = x.astype(np.float64) @ b.astype(np.float64)
    exact = np.maximum(0.5 * product + bias.astype(np.float64), 0) + residual.astype(np.float64)
    near = 1e-4 if dtype == np.float32 else 2e-2
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=near, atol=near)


def test_rows_of_large_matrices_are_summed_apart_where_that_was_quicker() -> None:
    properties = replace(
        cb.device_properties_of("cpu"), register_bytes=32, vector_registers=16, cores=2
    )
    for k, apart in ((1024, True), (1000, False)):
        assert (
            next(GemvRoutine().blueprints(Product("cpu", 2, k, 1024), properties)).split_k is apart
        )
    wide = replace(properties, register_bytes=64, cores=2, name="znver4")
    assert not next(GemvRoutine().blueprints(Product("cpu", 1, 9, 1 << 18), wide)).split_k
    assert not next(GemvRoutine().blueprints(Product("cpu", 1, 4096, 4096), wide)).split_k
    assert next(GemvRoutine().blueprints(Product("cpu", 1, 4096, 11008), wide)).split_k
    assert next(GemvRoutine().blueprints(Product("cpu", 4, 4096, 4096), wide)).split_k
    for other in (replace(wide, cores=16), replace(wide, name="znver5")):
        assert not next(GemvRoutine().blueprints(Product("cpu", 1, 4096, 11008), other)).split_k


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
def test_nan_and_infinity_stay_in_their_rows_and_columns(dtype: Any) -> None:
    a, b = np.ones((9, 33), dtype), np.ones((33, 70), dtype)
    a[4, 7], b[5, 3] = np.nan, np.inf
    found = K.matmul(a, b).astype(np.float32)
    assert np.isnan(found[4]).all() and np.isinf(np.delete(found[:, 3], 4)).all()
    assert (np.delete(np.delete(found, 4, 0), 3, 1) == 33).all()


@pytest.mark.parametrize("dtype, result", [(np.float32, None), (BF16, None), (np.int8, cb.i32)])
def test_the_python_backend_agrees(dtype: Any, result: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = laid_out(rng, (7, 5), dtype, "rows"), laid_out(rng, (5, 9), dtype, "rows")
    with cb.use("python"):
        slow = K.matmul(a, b, dtype=result)
    np.testing.assert_allclose(
        slow.astype(np.float64),
        K.matmul(a, b, dtype=result).astype(np.float64),
        rtol=1e-2,
        atol=1e-2,
    )


@pytest.mark.skipif(bool(WHERE), reason="matrices are packed for a CPU")
def test_packed_matrices_are_copies() -> None:
    rng = np.random.default_rng(2)
    width = K.prepack(np.ones((1, 1), np.float32)).panels.shape[3]
    a, b = rng.standard_normal((9, 20), np.float32), rng.standard_normal((20, width), np.float32)
    packed, before = K.prepack(b), a @ b
    b[...] = 0
    for _ in range(4):
        np.testing.assert_allclose(K.matmul(a, packed), before, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(bool(WHERE), reason="matrices are packed for a CPU")
@pytest.mark.parametrize("k, n, layout", [(21, 130, "rows"), (40, 5, "columns"), (0, 3, "rows")])
def test_packed_matrices_of_bf16(k: int, n: int, layout: str) -> None:
    rng = np.random.default_rng(3)
    for dtype, unit in (
        (BF16, 1e-2),
        (np.float32, 1e-4),
    ):  # words of pairs, and the same for an a of numbers
        for _ in range(4):
            a, b = (
                rng.standard_normal((2, 7, k), np.float32).astype(dtype),
                laid_out(rng, (k, n), BF16, layout),
            )
            found = K.matmul(a, K.prepack(b))
            assert found.dtype == dtype
            exact = a.astype(np.float64) @ b.astype(np.float64)
            np.testing.assert_allclose(found.astype(np.float64), exact, rtol=unit, atol=unit * 6)


@pytest.mark.skipif(bool(WHERE), reason="matrices are packed for a CPU")
@pytest.mark.parametrize("m", [4, 6, 13])
def test_panels_that_are_asked_for_a_piece_ahead(m: int) -> None:
    properties = cb.device_properties_of("cpu")
    _, lines, lanes = tile_of(properties)
    problem = Product("cpu", m, 70, 2 * lines * lanes - 3, packed=lines * lanes)
    plans = Tile().blueprints(problem._replace(k=4096, n=4096), properties)
    far = next(plan for plan in plans if not plan.packs_a)
    assert far.ahead, "few rows and a matrix that stays in no cache"
    args = MATMUL.make(problem, 1)
    Tile().launch(replace(far, depth=32), problem, args)
    found, exact = MATMUL.results(problem, args)[0], MATMUL.reference(problem, args)[0]
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)


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


def test_large_results_are_written_past_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "STREAMING_BYTES", 0)
    rng = np.random.default_rng(4)
    for dtype, unit in ((np.float32, 1e-5), (BF16, 1e-2)):
        a, b = (
            laid_out(rng, s, dtype, "rows") for s in ((13, 5), (5, 160))
        )  # a row of whole lines, the last panel not
        found = K.matmul(a, b).astype(np.float64)
        np.testing.assert_allclose(
            found, a.astype(np.float64) @ b.astype(np.float64), rtol=unit, atol=unit
        )


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from([1, 13]),
    st.sampled_from([0, 1, 64, 70]),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 99),
)
def test_where_the_mask_is_false_the_result_is_the_fill(
    m: int, n: int, form: int, more: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    dtype, tolerance = FLOATS["bf16" if more else "f32"]
    a, b = (laid_out(rng, s, dtype, "rows") for s in ((m, 30), (30, n)))
    bias, residual = rng.standard_normal(n).astype(dtype), rng.standard_normal((m, n)).astype(dtype)
    mask = rng.random(((m, n), (n,), (m, 1), (1, 1), (n, m))[form]) < 0.5
    if form == 4:
        mask = mask.T
    exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64) * 2 + bias.astype(np.float64), 0)
    fill = -np.inf if more else 0.0
    expected = np.where(mask, exact + more * residual.astype(np.float64), fill)
    for _ in range(3):
        found = K.matmul(
            a,
            b,
            bias=bias,
            activation="relu",
            residual=residual if more else None,
            alpha=2.0,
            mask=mask,
            fill=fill,
        )
        np.testing.assert_allclose(
            found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 30
        )


def test_masks_of_batches_vectors_integers_and_packed_matrices() -> None:
    rng = np.random.default_rng(6)
    a, b = (
        rng.standard_normal((2, 3, 9, 20), np.float32),
        rng.standard_normal((3, 20, 11), np.float32),
    )
    mask = rng.random((2, 1, 9, 11)) < 0.5
    expected = np.where(mask, a.astype(np.float64) @ b, 7)
    np.testing.assert_allclose(K.matmul(a, b, mask=mask, fill=7), expected, rtol=1e-4, atol=1e-4)
    one = b[0]
    expected = np.where(mask, a.astype(np.float64) @ one, 7)
    for weight in (one, K.prepack(one)):
        np.testing.assert_allclose(
            K.matmul(a, weight, mask=mask, fill=7), expected, rtol=1e-4, atol=1e-4
        )
    a[:, :, 0], mask[...] = np.nan, False  # sums that are masked may be anything
    assert (K.matmul(a, b, mask=mask, fill=7) == 7).all()
    row = np.arange(11) < 4
    np.testing.assert_allclose(
        K.matmul(one[:, 0], one, mask=row), np.where(row, one[:, 0] @ one, 0), rtol=1e-4, atol=1e-5
    )
    whole = rng.integers(-9, 9, (5, 6)).astype(np.int8)
    for dtype in (None, cb.i32):
        found = K.matmul(whole, whole.T, dtype=dtype, mask=np.tri(5, dtype=bool), fill=-1)
        np.testing.assert_array_equal(
            found,
            np.where(
                np.tri(5, dtype=bool), whole.astype(found.dtype) @ whole.T.astype(found.dtype), -1
            ),
        )
    with cb.use("python"):
        slow = K.matmul(one[:3, :4], one[:4, :5], mask=np.tri(3, 5, dtype=bool), fill=2.5)
    np.testing.assert_allclose(
        slow,
        np.where(np.tri(3, 5, dtype=bool), one[:3, :4] @ one[:4, :5], 2.5),
        rtol=1e-5,
        atol=1e-5,
    )


def test_masks_are_bools_that_broadcast() -> None:
    a = np.ones((4, 4), np.float32)
    with pytest.raises(DTypeError, match="bools"):
        K.matmul(a, a, mask=a)
    with pytest.raises(ShapeError, match="does not broadcast"):
        K.matmul(a, a, mask=np.ones((3, 4), bool))
    with pytest.raises(DTypeError, match="cannot be filled"):
        K.matmul(a.astype(np.int32), a.astype(np.int32), mask=a > 0, fill=0.5)


def test_a_repeated_call_reads_what_its_arrays_hold_now() -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        a, b, bias = (rng.standard_normal(s, np.float32) for s in ((7, 12), (12, 80), (80,)))
        expected = np.maximum(2.0 * a.astype(np.float64) @ b + bias, 0)
        found = K.matmul(a, b, bias=bias, activation="relu", alpha=2.0)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        out = np.full((7, 80), 9, np.float32)
        assert K.matmul(a, b, bias=bias, activation="relu", alpha=2.0, out=out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_a_call_with_one_matrix_twice_does_not_teach_calls_with_two() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((10, 10), np.float32), rng.standard_normal((10, 10), np.float32)
    for _ in range(4):
        np.testing.assert_allclose(K.matmul(a, a), a @ a, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(K.matmul(a[:5], a[5:].T), a[:5] @ a[5:].T, rtol=1e-4, atol=1e-5)
    for _ in range(4):
        np.testing.assert_allclose(K.matmul(a, b), a @ b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(K.matmul(a, a), a @ a, rtol=1e-4, atol=1e-5)


def test_a_repeated_call_refuses_what_the_first_one_refuses() -> None:
    a, b, out = (
        np.ones((9, 9), np.float32),
        np.ones((9, 9), np.float32),
        np.zeros((9, 9), np.float32),
    )
    for _ in range(4):
        K.matmul(a, b, out=out)
    with pytest.raises(AliasError):
        both = np.ones((10, 9), np.float32)
        K.matmul(both[1:], b, out=both[:9])
    out.flags.writeable = False
    with pytest.raises(ReadOnlyError):
        K.matmul(a, b, out=out)


@pytest.mark.skipif(bool(WHERE), reason="the routine is one for CPUs")
def test_a_forced_routine_is_used_though_the_call_came_before() -> None:
    a = np.ones((9, 9), np.float32)
    b = np.ones((9, 9), np.float32)
    for _ in range(4):
        K.matmul(a, b)
    with cb.tune.force("matmul", "gemv"), pytest.raises(cb.errors.TuneError):
        K.matmul(a, b)
    with cb.profile() as profile:
        K.matmul(a, b)
    assert "block_product" in profile.kernels


def test_settings_and_counters_hold_for_repeated_calls() -> None:
    a, b = np.ones((9, 9), np.float32), np.ones((9, 9), np.float32)
    for _ in range(4):
        K.matmul(a, b)
    before = cb.stats().launches
    K.matmul(a, b)
    assert cb.stats().launches > before
    with config.override(debug=1):
        assert K.matmul(a, b)[0, 0] == 9
    with cb.use("python"):
        assert K.matmul(a, b)[0, 0] == 9


def test_threads_repeat_calls_side_by_side() -> None:
    rng = np.random.default_rng(5)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        a, b = (np.random.default_rng(seed).standard_normal((40, 40), np.float32) for _ in range(2))
        for _ in range(20):
            if not np.allclose(K.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(int(s),)) for s in rng.integers(0, 100, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@cb.kernel
def pair_products(a: cb.Array, b: cb.Array, out: cb.Array, lanes: cb.Comptime[int]) -> None:
    """out = 1 + the sums of the products of pairs."""
    one = cb.splat(cb.f32(1.0), lanes)
    out.store(0, cb.dot_bf16(one, a.load(0, lanes), b.load(0, lanes)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 12, 16, 32])
def test_pairs_of_bf16_are_multiplied_and_summed(device: str, lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    a, b = (rng.standard_normal(2 * lanes).astype(BF16) for _ in range(2))
    out = np.zeros(lanes, np.float32)
    pair_products[1, 1](a.view(np.uint32), b.view(np.uint32), out, lanes, device=device)
    expected = 1 + (a.astype(np.float64) * b.astype(np.float64)).reshape(lanes, 2).sum(1)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)
