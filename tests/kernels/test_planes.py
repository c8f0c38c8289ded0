"""Kernels of whole cubes that scan, move and look up, on backends whose planes have one unit: any
size, any tile.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import tune
from cubepy.kernels.indexing import gather_gpu, scatter_gpu
from cubepy.kernels.indexing.problem import Gather, Scatter
from cubepy.kernels.indexing.routines import GATHER, SCATTER
from cubepy.kernels.movement import pad_gpu
from cubepy.kernels.movement.pad import PAD
from cubepy.kernels.movement.pad_gpu import Flip, Pad, ReversedLines
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.random import distributions as numbers
from cubepy.kernels.random import fill_gpu
from cubepy.kernels.random.distributions import RANDOM
from cubepy.kernels.random.fill_gpu import Fill
from cubepy.kernels.scan import columns_gpu as columns
from cubepy.kernels.scan import scan_gpu as rows
from tests.staging import DEVICES, WHERE

pytestmark = pytest.mark.skipif(
    bool(WHERE), reason="there the library's own tests run these kernels"
)
F = np.float32
HERE = cb.device_properties_of()
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True, params=DEVICES)
def device(request: pytest.FixtureRequest) -> Any:
    with cb.use(request.param):
        yield request.param


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=F)


def on_gpu(op: tune.Op, problem: Any) -> None:
    """By the routine that a GPU takes."""
    op.chosen(problem, replace(HERE, plane_size=32)).launch(problem, HERE)


def running(x: np.ndarray, axis: int, exclusive: bool, product: bool) -> np.ndarray:
    wide = x.astype(np.float64)
    want = wide.cumprod(axis) if product else wide.cumsum(axis)
    if exclusive:
        want = np.roll(want, 1, axis)
        want[(slice(None),) * axis + (0,)] = float(product)
    return want


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("product", [False, True])
def test_rows_in_registers(exclusive: bool, product: bool) -> None:
    step, start = (f.mul, 1) if product else (f.add, 0)
    for plan, m, n in (
        (rows.ScanPlan(4, 4, 8, 1, 2), 3, 100), (rows.ScanPlan(4, 2, 4, 1, 1, True), 2, 32),
        (rows.ScanPlan(1, 3, 4, 1), 2, 11),
    ):  # fmt: skip
        x = 1 + draw(m, n) / 8 if product else draw(m, n)
        out = np.zeros_like(x)
        cubes = -(-m // plan.rows)
        rows.scan_held[cubes, plan.units * plan.rows](
            x, out, step, start, cb.f32, exclusive, plan, mode="unchecked"
        )
        np.testing.assert_allclose(out, running(x, 1, exclusive, product), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [F, np.float64, np.int64])
def test_tiles_of_a_row_pass_on_what_came_before(dtype: Any) -> None:
    plan, acc, m, n, group = rows.ScanPlan(4, 2, 4, 1), cb.as_dtype(dtype), 2, 430, 3
    x = (draw(m, n) * 8).astype(dtype)
    tiles = -(-n // 32)
    for exclusive in (False, True):
        state = np.zeros((1 + m * (tiles + -(-tiles // group))) * (acc.itemsize // 4), np.uint64)
        out = np.zeros_like(x)
        rows.scan_chained[m * tiles, 4](
            x, out, state, f.add, 0, acc, exclusive, plan, group, mode="unchecked"
        )
        np.testing.assert_allclose(out, running(x, 1, exclusive, False), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("exclusive", [False, True])
def test_tiles_of_columns_pass_on_what_is_above(exclusive: bool) -> None:
    for plan, shape in (
        (columns.ColumnPlan(4, 2, 4), (2, 50, 40)),
        (columns.ColumnPlan(1, 3, 2), (2, 33, 7)),
    ):
        b, n, c = shape
        x, out = draw(*shape), np.zeros(shape, F)
        cubes = b * -(-c // (plan.across * plan.lanes)) * -(-n // (8 // plan.across * plan.lines))
        state = np.zeros(1 + cubes * plan.across * plan.lanes, np.uint64)
        columns.scan_columns_chained[cubes, 8](
            x, out, state, f.add, 0, cb.f32, exclusive, plan, mode="unchecked"
        )
        np.testing.assert_allclose(out, running(x, 1, exclusive, False), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [F, np.float16, np.int8])
def test_flip(dtype: Any) -> None:
    for shape in ((5, 8), (2, 3, 9), (7,)):
        x = (draw(*shape) * 9).astype(dtype)
        for axes in ((len(shape) - 1,), tuple(range(len(shape)))):
            out = np.zeros_like(x)
            ReversedLines().launch(Flip(x, axes, out), HERE)
            np.testing.assert_array_equal(out, np.flip(x, axes))
    view, out = draw(6, 10)[:, ::2], np.zeros((5, 6), F).T
    ReversedLines().launch(Flip(view, (0, 1), out), HERE)
    np.testing.assert_array_equal(out, view[::-1, ::-1])


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
@pytest.mark.parametrize("long", [False, True])
def test_pad(mode: str, long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pad_gpu, "SHORT", 1 if long else 4096)
    for shape, ends in (
        ((5, 8), ((1, 1), (1, 1))),
        ((2, 3, 6), ((0, 1), (2, 0), (3, 2))),
        ((520,), ((3, 4),)),
    ):
        x = draw(*shape)
        out = np.zeros([n + a + b for n, (a, b) in zip(shape, ends, strict=True)], F)
        on_gpu(PAD, Pad(x, out, tuple(a for a, _ in ends), 0.0, mode))
        np.testing.assert_array_equal(
            out, np.pad(x, ends, mode="edge" if mode == "replicate" else mode)
        )


def test_negative_pads_cut_off() -> None:
    x, out = draw(4, 6), np.zeros((5, 7), F)
    on_gpu(PAD, Pad(x, out, (-1, 3), 2.0, "constant"))
    np.testing.assert_array_equal(out, np.pad(x[1:, :4], ((0, 2), (3, 0)), constant_values=2.0))


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_gather(index_type: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for many in (128, 1):  # from memory, and from rows in shared memory
        monkeypatch.setattr(gather_gpu, "MANY", many)
        for m in (8, 9):
            x, index = draw(3, 20), RNG.integers(-20, 20, (3, m)).astype(index_type)
            out = np.zeros((3, m), F)
            blocks = (a[:, :, None] for a in (x, index, out))
            on_gpu(GATHER, Gather(*blocks, "gather", True))
            np.testing.assert_array_equal(out, np.take_along_axis(x, index, 1))
    x, index = draw(2, 5, 12), RNG.integers(0, 5, (2, 7, 12)).astype(index_type)
    out = np.zeros((2, 7, 12), F)
    on_gpu(GATHER, Gather(x, index, out, "gather"))
    np.testing.assert_array_equal(out, np.take_along_axis(x, index, 1))


@pytest.mark.parametrize("update", ["assign", "add", "mul", "max"])
def test_scatter_in_shared_memory(update: str) -> None:
    x, src = draw(3, 40), draw(3, 9)
    index = RNG.permuted(np.tile(np.arange(40), (3, 1)), axis=1)[:, :9]
    if update == "add":
        index = index // 9  # many updates of one place
    out, want = np.zeros_like(x), x.astype(np.float64)
    assert scatter_gpu.SharedRows().launch(Scatter(x, index, src, update, out, 1), HERE) is out
    change = {"add": np.add, "mul": np.multiply, "max": np.maximum, "assign": lambda a, b: b}[
        update
    ]
    for r, j in itertools.product(range(3), range(9)):
        want[r, index[r, j]] = change(want[r, index[r, j]], src[r, j])
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


def test_which_rows_are_kept_in_shared_memory() -> None:
    def fits(x: Any, index: Any, axis: int) -> bool:
        problem = Scatter(x, index, np.zeros(index.shape, x.dtype), "add", None, axis)
        return SCATTER.chosen(problem, replace(HERE, plane_size=32)).name == "shared_rows"

    x, index = np.zeros((256, 130), F), np.zeros((256, 50), np.int64)
    assert fits(x, index, 1) and fits(x[:, :, None], index[:, :, None], 1)
    for less, fewer in (
        (x[:3], index[:3]),
        (x, index[:, :3]),
        (x, index[:200]),
        (x.astype(np.float16), index),
    ):
        assert not fits(less, fewer, 1)
    assert not fits(x, np.zeros((256, 130), np.int64), 0)


def test_rows_of_a_table() -> None:
    for width, count in ((6, 30), (1028, 3)):
        table, index = draw(11, width), RNG.integers(0, 11, count)
        out = np.zeros((count, width), F)
        gather_gpu.look_up(index, table, out)
        np.testing.assert_array_equal(out, table[index])


def random_numbers(out: np.ndarray, kind: str) -> Fill:
    state, ends = np.array((5, 6, 0), np.uint64), np.array((0, 1), F)
    return Fill(out, None, state, ends, kind, 4, cb.current_device())


@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_random_numbers_are_the_same(kind: str) -> None:
    for size in (3, 1100):
        want = getattr(numbers, kind)(size=size, generator=numbers.Generator(5, 6))
        out = np.zeros(size, F)
        on_gpu(RANDOM, random_numbers(out, kind))
        np.testing.assert_array_equal(out, want)


def test_many_normal_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill_gpu, "LARGE", 1)
    monkeypatch.setattr(fill_gpu, "MANY", 3)
    out = np.zeros(1700, F)
    on_gpu(RANDOM, random_numbers(out, "normal"))
    np.testing.assert_array_equal(out, numbers.normal(size=1700, generator=numbers.Generator(5, 6)))
