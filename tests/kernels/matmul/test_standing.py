"""Small products on a CPU, whose matrices are read where they stand; and those of f64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.matmul.cpu.gemv import GemvPlan, GemvRoutine, StandingRoutine
from cubepy.kernels.matmul.cpu.standing import FEW_HEIGHTS, HEIGHTS, StandingPlan, tile_of
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.routines import MATMUL
from cubepy.kernels.primitives.functions import relu
from cubepy.tune import choose
from tests.staging import WHERE

KINDS = {"f32": (np.float32, 3e-6), "f64": (np.float64, 1e-14)}
WAYS = ("rows", "columns", "parts of rows", "every other", "one for all")


def lying(rng: Any, shape: tuple[int, ...], dtype: Any, how: str) -> np.ndarray:
    """Random matrices (batch, rows, columns), in memory as it says; not at a multiple of a line."""
    batch, rows, columns = shape
    made = rng.standard_normal((batch, rows, columns)).astype(dtype)
    if how == "columns":
        return np.ascontiguousarray(made.transpose(0, 2, 1)).transpose(0, 2, 1)
    if how == "one for all":
        return np.broadcast_to(made[:1], shape)
    if how == "rows":
        return made
    step = 2 if how == "every other" else 1
    wider = np.full((batch, step * rows + 1, step * columns + 3), 7, dtype)
    wider[:, 1::step, 1::step][:, :rows, :columns] = made
    return wider[:, 1::step, 1::step][:, :rows, :columns]


def near(found: np.ndarray, want: np.ndarray, size: np.ndarray, limit: float, say: Any) -> None:
    """Within rounding of the sums."""
    assert found.shape == want.shape, say
    assert np.all(np.abs(found.astype(np.float64) - want) <= limit * (size + 1e-30)), say


@pytest.mark.parametrize("kind", KINDS)
def test_small_products_are_those_of_longdouble(kind: str) -> None:
    dtype, limit = KINDS[kind]
    rng = np.random.default_rng(3)
    for turn in range(40):
        batch = int(rng.choice([1, 1, 2, 5]))
        m, k, n = (int(np.exp(rng.uniform(0, np.log(150)))) for _ in range(3))
        ways = [str(rng.choice(WAYS)) for _ in range(2)]
        a = lying(rng, (batch, m, k), dtype, ways[0])
        b = lying(rng, (batch, k, n), dtype, ways[1])
        wide = [v.astype(np.longdouble) for v in (a, b)]
        want, size = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
        say = (turn, batch, m, k, n, *ways)
        if turn % 3 == 0:
            frame = np.full((batch, m + 2, n + 3), 7, dtype)
            out = frame[:, 1:-1, 1:-2]
            for _ in range(3):  # the call that is recorded, and those that repeat it
                out[...] = 7
                K.matmul(a, b, out=out)
                near(out, want, size, limit, say)
            out[...] = 7
            assert np.all(frame == 7), say  # nothing else was written
        else:
            for _ in range(3):
                near(K.matmul(a, b), want, size, limit, say)


@pytest.mark.parametrize("seed", range(12))
def test_small_products_end_as_they_are_asked_to(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(2):
        m, k, n = (int(np.exp(rng.uniform(0, np.log(70)))) for _ in range(3))
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
        bias, other = (rng.standard_normal(s).astype(np.float32) for s in ((n,), (m, n)))
        mask = rng.integers(0, 2, (m, n)).astype(bool)
        product = 0.5 * (a.astype(np.float64) @ b) + bias
        near_to = dict(rtol=1e-4, atol=1e-4)
        found = K.matmul(a, b, alpha=0.5, bias=bias, activation="relu", residual=other)
        np.testing.assert_allclose(found, np.maximum(product, 0) + other, **near_to)
        found = K.matmul(a, b, alpha=0.5, bias=bias, gate=other, mask=mask, fill=-3.0)
        np.testing.assert_allclose(found, np.where(mask, product * other, -3), **near_to)
        result = other.copy()  # rows that are made twice are not added twice
        K.matmul(a, b, alpha=0.5, bias=bias, residual=result, out=result)
        np.testing.assert_allclose(result, product + other, **near_to, err_msg=str((m, k, n)))


@pytest.mark.skipif(bool(WHERE), reason="for the CPU")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tiles", [(64, HEIGHTS), (32, FEW_HEIGHTS)])
def test_every_register_tile_and_share_of_rows(dtype: Any, tiles: Any) -> None:
    rng = np.random.default_rng(5)
    lanes = tiles[0] // np.dtype(dtype).itemsize
    for lines, heights in tiles[1].items():
        for rows in heights[:3]:
            m, k, n = rows + int(rng.integers(0, 3 * rows)), int(rng.integers(1, 30)), 0
            n = int(rng.integers(1, 2 * lines * lanes + 5))
            a, b = (rng.standard_normal((3, *s)).astype(dtype) for s in ((m, k), (k, n)))
            for blocks in (1, 2, -(-m // rows)):
                out = np.full((3, m, n), np.nan, dtype)
                plan = StandingPlan(rows, lines, lanes, blocks)
                rest = (None, None, None, 1.0)
                StandingRoutine().launch(plan, Product("cpu", m, k, n, 3), (a, b, out, *rest))
                np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(bool(WHERE), reason="for the CPU")
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("channels", [8, 16, 32])
def test_sums_of_lanes_are_added_up_in_the_order_of_the_columns(lanes: int, channels: int) -> None:
    rng = np.random.default_rng(6)
    for m, k, n in ((1, 37, 19), (5, 16, 64), (7, 3, 33), (13, 130, 5)):
        a, b = (rng.standard_normal((2, *s)).astype(np.float32) for s in ((m, k), (n, k)))
        bias, out = rng.standard_normal(n).astype(np.float32), np.zeros((2, m, n), np.float32)
        want = np.maximum(a @ b.transpose(0, 2, 1) + bias, 0)
        for rows in {min(m, 6), min(m, 3)}:  # rows that wait in registers for columns, and columns
            out.fill(np.nan)
            plan = GemvPlan(True, rows, 4, lanes, channels)
            args = (a, b.transpose(0, 2, 1), out, bias, None, relu, 1.0)
            GemvRoutine().launch(plan, Product("cpu", m, k, n, 2, layout="columns"), args)
            np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(bool(WHERE), reason="for the CPU")
def test_large_products_of_f64_are_made_in_tiles_and_parts() -> None:
    rng = np.random.default_rng(7)
    shapes = (70, 600, 90), (300, 40, 130), (1, 700, 1200), (3, 1500, 800), (1092, 30, 77)
    drawn = np.exp(rng.uniform(0, [7, 6, 5], (12, 3))).astype(int)
    for m, k, n in (*shapes, *(tuple(shape) for shape in drawn)):
        for turned in (False, True):
            a = rng.standard_normal((m, k))
            b = rng.standard_normal((n, k)).T if turned else rng.standard_normal((k, n))
            want = a.astype(np.longdouble) @ b.astype(np.longdouble)
            size = np.abs(a) @ np.abs(b)
            for _ in range(3):
                near(K.matmul(a, b), want, size, 1e-14, (m, k, n, turned))
            near(K.matmul(b.T, a.T), want.T, size.T, 1e-14, (m, k, n, turned))


@pytest.mark.skipif(bool(WHERE), reason="for the CPU")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neither_matrix_has_neighbours_along_its_rows(dtype: Any) -> None:
    rng = np.random.default_rng(8)
    for m, k, n in ((70, 190, 13), (9, 60, 11), (5, 70, 12), (300, 200, 70), (300, 500, 90)):
        a, b = rng.standard_normal((k, m)).astype(dtype).T, rng.standard_normal((n, k)).T
        b = b.astype(dtype, order="K")
        want = a.astype(np.longdouble) @ b.astype(np.longdouble)
        size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        for _ in range(3):
            near(K.matmul(a, b), want, size, KINDS[f"f{8 * a.itemsize}"][1], (m, k, n))


@pytest.mark.skipif(bool(WHERE), reason="for the CPU")
def test_which_products_are_read_where_they_stand() -> None:
    properties = replace(
        cb.device_properties_of("cpu"), register_bytes=64, vector_registers=32, cores=2
    )
    routine = StandingRoutine()

    def fits(m: int, k: int, n: int, **more: Any) -> bool:
        return routine.supports(Product("cpu", m, k, n, **more), properties) is None

    assert fits(400, 300, 12) and fits(400, 300, 12, layout="columns")  # one line of columns
    assert fits(400, 3, 250) and fits(400, 3, 250, layout="columns")  # a short K
    assert fits(30, 500, 500) and fits(60, 500, 300) and not fits(60, 500, 256)  # few rows
    assert fits(16, 900, 900) and not fits(30, 900, 900) and not fits(8, 4096, 4096)
    assert fits(400, 500, 20) and not fits(400, 1000, 20)  # two lines
    assert not fits(400, 300, 250) and not fits(400, 30, 250, layout="columns")
    assert not fits(30, 400, 400, a="bf16", b="bf16")
    assert fits(400, 300, 8, a="f64", b="f64") and not fits(400, 300, 250, a="f64", b="f64")
    narrow = replace(properties, register_bytes=32, vector_registers=16)
    properties = narrow  # short lines: few rows, or a short K
    assert not fits(400, 300, 12) and not fits(10, 300, 300) and not fits(9, 2000, 2000)
    assert fits(9, 300, 300) and fits(5, 1000, 1000) and fits(400, 4, 250, layout="columns")
    assert not fits(9, 300, 300, layout="columns") and not fits(9, 300, 300, a="bf16", b="bf16")
    assert {choose(MATMUL, Product("cpu", m, 1, 300)).routine.name for m in (1, 4)} == {"gemv"}


def test_register_tiles_waste_little_and_fit_into_the_registers() -> None:
    for m, k, n in ((7, 249, 163), (9, 75, 7), (597, 46, 12), (123, 11, 269), (1, 30, 40)):
        for few, lanes, most in ((False, 16, 32), (True, 8, 16)):
            rows, lines = tile_of(m, k, n, lanes, few)
            made = -(-m // rows) * rows * -(-n // (lanes * lines)) * lines
            held = rows * lines + lines + 1  # sums, a row of b, and a number of a
            assert held <= most and made <= 1.25 * m * -(-n // lanes), (m, k, n, few)


def test_sums_of_few_rows_fit_into_the_registers() -> None:
    host = cb.device_properties_of("cpu")
    for registers, wide in ((16, 32), (32, 64)):
        properties = replace(host, register_bytes=wide, vector_registers=registers, cores=2)
        for m in range(1, 60):
            for k, n in ((40, 90), (300, 700), (2000, 1000)):
                product = Product("cpu", m, k, n, layout="columns")
                if GemvRoutine().supports(product, properties) is None:
                    plan = next(GemvRoutine().blueprints(product, properties))
                    held = 4 * plan.rows + min(4, plan.rows) + 1
                    assert plan.rows <= m and held <= registers, (m, k, n, registers)
                if m <= 4 and 4 * k * n < 1 << 22:
                    plan = next(
                        GemvRoutine().blueprints(product._replace(layout="rows"), properties)
                    )
                    assert registers > 16 or m * plan.lines <= 10


@pytest.mark.parametrize("seed", range(6))
def test_packed_products_of_few_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for m in range(1, 9):
        k, n = (int(np.exp(rng.uniform(0, np.log(400)))) for _ in range(2))
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
        want, size = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
        for _ in range(3):
            near(K.matmul(a, K.prepack(b)), want, size, 3e-6, (m, k, n))
