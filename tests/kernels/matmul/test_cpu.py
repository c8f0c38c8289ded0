"""Products on the CPU: dtypes in words, layouts, tails of tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy import kernels as K
from cubepy import tune
from cubepy.kernels.matmul.cpu import blocked
from cubepy.kernels.matmul.cpu.blocked import Tile
from cubepy.kernels.matmul.cpu.blocking import tile_of
from cubepy.kernels.matmul.cpu.gemv import GemvPlan, GemvRoutine
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.routines import MATMUL
from cubepy.kernels.primitives.functions import relu
from tests.kernels.matmul.matrices import BF16, FLOATS, laid_out
from tests.staging import DEVICES, WHERE

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
    for m, k, n, apart in (
        (3, 1024, 1024, True),
        (3, 1000, 1024, False),
        (2, 300, 700, True),
        (2, 200, 400, False),
        (1, 200, 400, True),
        (1, 200, 200, False),
        (1, 60, 3000, False),
    ):
        plan = next(GemvRoutine().blueprints(Product("cpu", m, k, n), properties))
        assert plan.split_k is apart, (m, k, n)
    wide = replace(properties, register_bytes=64, cores=2, name="znver4")
    assert not next(GemvRoutine().blueprints(Product("cpu", 1, 9, 1 << 18), wide)).split_k
    assert not next(GemvRoutine().blueprints(Product("cpu", 1, 4096, 4096), wide)).split_k
    assert next(GemvRoutine().blueprints(Product("cpu", 1, 4096, 11008), wide)).split_k
    assert next(GemvRoutine().blueprints(Product("cpu", 4, 4096, 4096), wide)).split_k
    for m, k, n, apart in (
        (1, 539, 585, True),  # smaller ones of one row
        (1, 300, 300, False),
        (1, 64, 8192, False),  # of a short K
        (2, 539, 585, False),
        (2, 1024, 1024, True),
    ):
        assert next(GemvRoutine().blueprints(Product("cpu", m, k, n), wide)).split_k is apart
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


@pytest.mark.skipif(bool(WHERE), reason="tiles of a CPU")
@pytest.mark.parametrize("seed", range(6))
def test_rows_that_are_read_across_give_the_bits_of_rows_that_are_copied(seed: int) -> None:
    """Of a transposed view with neighbours along M, as in the gradient by a weight."""
    rng = np.random.default_rng(seed)
    for _ in range(8):
        m, k, n = (int(v) for v in rng.integers(1, (70, 600, 150)))
        batch = () if rng.random() < 0.7 else (int(rng.integers(1, 4)),)
        across = rng.standard_normal((*batch, k, m), np.float32).swapaxes(-1, -2)
        b = rng.standard_normal((k, n) if rng.random() < 0.5 else (*batch, k, n), np.float32)
        bias = rng.standard_normal(n, np.float32) if rng.random() < 0.5 else None
        given = {"bias": bias, "activation": str(rng.choice(["relu", "tanh"]))}
        want = K.matmul(np.ascontiguousarray(across), b, **given)
        found = K.matmul(across, b, **given)
        if (m, n) != (1, 1):  # routines of single rows sum in another order
            np.testing.assert_allclose(found, want, 1e-4, 1e-4)
        with tune.force("matmul", "tile"):
            want, found = (K.matmul(a, b, **given) for a in (across.copy(order="C"), across))
        np.testing.assert_array_equal(found, want)
