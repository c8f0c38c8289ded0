"""The kernels of quantized linear layers for GPUs, emulated: every scheme, odd shapes, few and
several rows.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.quant import QuantizedWeight, parse_scheme
from cubepy.quant.linear import reference
from cubepy.quant.linear.gpu import gemm_mma_plan
from cubepy.quant.linear.gpu.blueprint import Room
from cubepy.quant.linear.gpu.dequantize import unpack_int4, unpack_int8
from cubepy.quant.linear.gpu.gemm_mma import arrange_rows, plane_product
from cubepy.quant.linear.gpu.gemm_mma_int8 import (
    plane_product_bytes,
    quantize_rows_for_planes,
    round_rows,
)
from cubepy.quant.linear.gpu.gemm_mma_plan import MAGIC, ROUNDED_GAIN, plan_bytes, plan_floats
from cubepy.quant.linear.gpu.gemv import few_product
from cubepy.quant.linear.gpu.gemv_blueprint import plan_few
from cubepy.quant.linear.gpu.layout import SLACK, arrange_codes, arrange_facts

pytest.importorskip("numba_cuda")
from tests.backends.cuda.emulator.launch import emulate
from tests.backends.cuda.thorough import some

SCHEMES = [
    ("int8", None, True),
    ("int4", 32, False),
    ("int4", 32, True),
    ("int4", 64, False),
    ("int4", 128, True),
]
SMALL = Room(2, 100_000)  # as if the device had so few cores, so that planes take several panels


def random_weight(
    rows: int, columns: int, scheme: str, group: int | None, symmetric: bool
) -> QuantizedWeight:
    rng = np.random.default_rng(rows + columns)
    values = rng.normal(size=(rows, columns)).astype(np.float32)
    chosen = (
        parse_scheme(scheme)
        if group is None
        else parse_scheme(scheme, group=group, symmetric=symmetric)
    )
    return QuantizedWeight.from_float(
        values * np.exp(rng.normal(size=columns)).astype(np.float32), chosen
    )


class Arranged:
    """A weight as `planes_of` arranges it, by the emulated kernel."""

    def __init__(self, weight: QuantizedWeight) -> None:
        self.group = weight.scheme.group or 0
        self.symmetric = weight.scheme.symmetric
        self.panels = weight.codes.shape[0]
        block = max(64, self.group)
        self.blocks = -(-weight.shape[1] // block)
        chunks, halves = self.blocks * block // 64, 1 if self.group else 2
        self.words = np.full(
            (self.panels * chunks + SLACK * block // 64) * halves * 128, 0xDEADBEEF, np.uint32
        )
        source = weight.codes.reshape(self.panels, -1).view(np.uint32).reshape(self.panels, -1, 16)
        total = self.panels * chunks * 128
        emulate(
            arrange_codes, 256, (-(-total // 256),), source, self.words, chunks, block // 64, halves
        )
        self.facts = np.zeros(1, np.uint32)
        if self.group:
            per, kinds = block // self.group, 1 if weight.minimums is None else 2
            groups = self.blocks * per
            self.facts = np.full(
                (self.panels * groups + SLACK * per) * 8 * kinds, 0xFFFFFFFF, np.uint32
            )
            least = None if weight.minimums is None else weight.minimums.view(np.uint16)
            emulate(arrange_facts, 256, (-(-self.panels * groups * 8 // 256),), weight.scales.view(np.uint16), least,
                self.facts, groups, per, kinds)  # fmt: skip
        self.scales = np.zeros(1, np.float32) if self.group else weight.scales.reshape(-1)
        self.sums = weight.sums.reshape(-1)


def floats(
    x: np.ndarray,
    weight: QuantizedWeight,
    late: float,
    bias: Any = None,
    residual: Any = None,
    room: Room = SMALL,
    seed: int = 0,
    exact: bool = False,
) -> tuple[np.ndarray, float]:
    """The product with float activations, and the error that it may have; `exact`: in f32, without
    rounding.
    """
    w = Arranged(weight)
    m, dtype = len(x), cb.as_dtype(x.dtype)
    shape = (
        w.panels,
        w.blocks,
        m,
        w.group,
        w.symmetric,
        dtype,
        room,
        bias is not None,
        residual is not None,
        None,
    )
    out = np.full((m, weight.shape[0]), np.nan, np.float32 if exact else x.dtype)
    few = plan_few(*shape, x.shape[1] % 8 == 0)
    if few is not None:
        emulate(few_product, few[0].units, (few[1],), x, weight.input_scale, w.words, w.facts, w.scales, bias, residual, out,
            weight.gain, w.blocks, w.panels, few[0], late=late, seed=seed)  # fmt: skip
        return out, TOLERANCE[x.dtype.name]
    plan, grid = plan_floats(*shape, x.shape[1] == w.blocks * max(64, w.group), exact)
    sums = np.zeros((1, 1), np.uint32)
    source: Any = x
    factors = weight.input_scale
    if plan.raw:
        source, factors = x.view(np.uint32), factors.view(np.uint32)
    else:
        tiles = grid[1] * plan.tiles
        source = np.full((w.blocks * plan.block // 32, tiles * 128), 0xFFFFFFFF, np.uint32)
        sums = np.full((w.blocks * plan.block // plan.width, tiles * 8), 0xFFFFFFFF, np.uint32)
        emulate(arrange_rows, 256, (-(-sums.size * 4 // 256),), x, weight.input_scale, source, sums, plan.offset, plan.width,
            plan.parts)  # fmt: skip
    emulate(plane_product, plan.units, grid, source, factors, sums, w.words, w.facts, w.scales, bias, residual, out,
        weight.gain * (ROUNDED_GAIN if plan.rounded else 1), np.uint32(MAGIC), w.blocks, w.panels, plan, late=late, seed=seed)  # fmt: skip
    return out, ROUNDED_TOLERANCE if plan.rounded else TOLERANCE[x.dtype.name]


def error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(got.astype(np.float64) - expected) / np.linalg.norm(expected))


TOLERANCE = {"float32": 5e-6, "float16": 1e-3, "bfloat16": 6e-3}
ROUNDED_TOLERANCE = (
    8e-3  # weights of small groups as bf16, and scales and minimums before: about 5e-3 of a result
)


@pytest.mark.turns(6)
@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize(("scheme", "group", "symmetric"), SCHEMES)
def test_one_row_meets_packed_weights(
    scheme: str, group: int | None, symmetric: bool, late: bool
) -> None:
    weight = random_weight(72, 384, scheme, group, symmetric)
    x = np.random.default_rng(1).normal(size=(1, 384)).astype(np.float32)
    # Just below a power of two, after the factors: the largest integers there are.
    x[0, 5::48] = (1.0, -1.0)[late] * 7.9999 / weight.input_scale[5::48].astype(np.float32)
    expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
    got, tolerance = floats(x, weight, late)
    assert error(got, expected) < tolerance


def test_long_rows_are_rounded_in_passes_and_come_through_a_short_ring() -> None:
    weight = random_weight(16, 1216, "int4", 32, False)
    x = np.random.default_rng(1).normal(size=(2, 1216)).astype(np.float32)
    x[0, :32] *= (
        1e6  # small neighbours of large inputs keep fewer bits, but only those of their column
    )
    room = Room(1, 24_000)
    few = plan_few(1, 19, 2, 32, False, cb.f32, room, False, False, None)
    assert few is not None and few[0].passes > 1 and few[0].depth < few[0].each
    expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
    for late in (True, False):
        assert error(floats(x, weight, late, room=room)[0], expected) < 2e-6


def test_many_planes_share_a_row() -> None:
    weight = random_weight(16, 3072, "int4", 32, False)
    x = np.random.default_rng(1).normal(size=(1, 3072)).astype(np.float16)
    few = plan_few(1, 48, 1, 32, False, cb.f16, SMALL, False, False, None, True)
    assert few is not None and few[0].planes == 24
    got, tolerance = floats(x, weight, True)
    assert error(got, x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)) < tolerance


@pytest.mark.parametrize("group", [128, 256])
def test_the_largest_sums_of_a_group_are_exact(group: int) -> None:
    """Bytes of 255 times digits of -128: of 128 inputs the sum has room in a float's mantissa, of
    256 it would not.
    """
    scheme = parse_scheme("int4", group=group, symmetric=True, activations="float")
    codes, ones = np.full((1, group // 8, 16, 4), 255, np.uint8), np.ones((1, 1, 16), np.float16)
    sums, factors = np.zeros((1, 16), np.float32), np.ones(group, np.float16)
    weight = QuantizedWeight((16, group), scheme, codes, ones, None, sums, factors)
    got = floats(np.full((4, group), 127 / 128, np.float16), weight, True)[0]
    assert (got == 7 * 127 * group // 128).all()


def test_a_row_that_is_not_finite_gives_nan_alone_and_zeros_give_zero() -> None:
    weight = random_weight(16, 128, "int4", 32, True)
    x = np.ones((3, 128), np.float16)
    x[0, 33], x[1] = np.inf, 0
    got = floats(x, weight, True)[0]
    assert np.isnan(got[0]).all() and (got[1] == 0).all() and np.isfinite(got[2]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [2, 3, 9])
def test_rows_of_every_dtype_meet_int4(rows: int, dtype: Any) -> None:
    weight = random_weight(40, 160, "int4", 32, False)
    x = np.random.default_rng(rows).normal(size=(rows, 160)).astype(dtype)
    bias = np.arange(40).astype(np.float32)
    residual = np.random.default_rng(2).normal(size=(rows, 40)).astype(dtype)
    expected = (
        x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
        + bias
        + residual.astype(np.float64)
    )
    got, tolerance = floats(x, weight, True, bias, residual)
    assert error(got, expected) < tolerance


@pytest.mark.parametrize(("scheme", "group", "symmetric"), SCHEMES)
def test_several_rows_meet_packed_weights(scheme: str, group: int | None, symmetric: bool) -> None:
    weight = random_weight(40, 256, scheme, group, symmetric)
    x = np.random.default_rng(3).normal(size=(11, 256)).astype(ml_dtypes.bfloat16)
    expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
    for late in (True, False):
        got, tolerance = floats(x, weight, late)
        assert error(got, expected) < tolerance


@pytest.mark.parametrize(("group", "symmetric"), [(32, False), (64, True)])
def test_several_rows_are_as_exact_as_one_if_asked_for(group: int, symmetric: bool) -> None:
    weight = random_weight(40, 256, "int4", group, symmetric)
    x = np.random.default_rng(3).normal(size=(11, 256)).astype(ml_dtypes.bfloat16)
    expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
    one = error(floats(x[:1], weight, True, exact=True)[0], expected[:1])
    assert one < 1e-4
    assert error(floats(x, weight, True, exact=True)[0], expected) < 1e-4


@pytest.mark.turns(6)
@pytest.mark.parametrize(("scheme", "group", "symmetric"), SCHEMES)
def test_cubes_of_a_cluster_share_panels(
    scheme: str, group: int | None, symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemm_mma_plan, "best_split", lambda *_: (3, 2))
    weight = random_weight(72, 640, scheme, group, symmetric)
    x = np.random.default_rng(3).normal(size=(17, 640)).astype(ml_dtypes.bfloat16)
    room = Room(5, 100_000, False, True)  # of a size that no other test plans for
    shape = (5, 640 // max(64, group or 64), 17, group or 0, symmetric, cb.bf16)
    plan, _ = plan_floats(*shape, room, False, False, None, True)
    tight = room._replace(shared=replace(plan, separate=False).shared_bytes)
    assert plan.separate and not plan_floats(*shape, tight, False, False, None, True)[0].separate
    expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
    for each in (room, tight):
        got, tolerance = floats(x, weight, 0.5, room=each)
        assert error(got, expected) < tolerance


@pytest.mark.parametrize(("splits", "group", "symmetric"), [(1, 64, True), (2, 32, False)])
def test_codes_come_ahead_of_rows_where_two_cubes_share_a_core(
    splits: int, group: int, symmetric: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemm_mma_plan, "best_split", lambda *_: (4, splits))
    blocks, room = (
        18 * splits + 1,
        Room(7, 220_000, True, True),
    )  # of a size that no other test plans for
    weight = random_weight(40, 64 * blocks, "int4", group, symmetric)
    x = np.random.default_rng(3).normal(size=(13, 64 * blocks)).astype(ml_dtypes.bfloat16)
    plan, _ = plan_floats(3, blocks, 13, group, symmetric, cb.bf16, room, False, False, None, True)
    assert plan.ahead and plan.depth == 3 and plan.splits == splits
    expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
    got, tolerance = floats(x, weight, 0.5, room=room)
    assert error(got, expected) < tolerance


@pytest.mark.turns(6)
@pytest.mark.parametrize("rows", [1, 11])
@pytest.mark.parametrize(("scheme", "group", "symmetric"), SCHEMES)
def test_bytes_give_what_the_reference_gives(
    scheme: str, group: int | None, symmetric: bool, rows: int
) -> None:
    columns = 256 if group else 201
    weight = random_weight(40, columns, scheme, group, symmetric)
    x = np.random.default_rng(4).normal(size=(rows, columns)).astype(np.float32)
    w = Arranged(weight)
    plan, grid = plan_bytes(
        w.panels, w.blocks, rows, w.group, w.symmetric, SMALL, False, False, None
    )
    codes = np.full(
        (w.blocks * plan.block // 64, grid[1] * plan.tiles * 128), 0xFFFFFFFF, np.uint32
    )
    facts = np.zeros((rows, 2), np.float32)
    emulate(
        quantize_rows_for_planes,
        256,
        (rows,),
        x,
        weight.input_scale,
        codes,
        facts,
        weight.gain,
        w.group > 0,
    )
    out = np.full((rows, 40), np.nan, np.float32)
    for late in (True, False):
        emulate(plane_product_bytes, plan.units, grid, codes, facts, w.words, w.facts, w.scales, w.sums, None, None, out,
            w.blocks, w.panels, plan, late=late)  # fmt: skip
        assert error(out, reference.linear(x, weight).astype(np.float64)) < 4e-6


def test_bytes_of_a_row_that_is_not_finite_give_nan_alone() -> None:
    x = np.ones((2, 64), np.float32)
    x[0, 33] = np.inf
    codes, facts = np.zeros((1, 128), np.uint32), np.zeros((2, 2), np.float32)
    emulate(
        quantize_rows_for_planes, 256, (2,), x, np.ones(64, np.float16), codes, facts, 1.0, True
    )
    assert np.isnan(facts[0, 0]) and facts[1, 0] == np.float32(1) * np.float32(1 / 255)


@pytest.mark.parametrize(
    ("scheme", "group", "symmetric"), [("int8", None, True), ("int4", 8, False), ("int4", 24, True)]
)
def test_any_group_is_unpacked(scheme: str, group: int | None, symmetric: bool) -> None:
    columns = 48 if group else 45
    weight = random_weight(20, columns, scheme, group, symmetric)
    out = np.full(weight.shape, np.nan, np.float32)
    words = (
        weight.codes.reshape(weight.codes.shape[0], -1)
        .view(np.uint32)
        .reshape(weight.codes.shape[0], -1, 16)
    )
    cubes = (-(-20 * words.shape[1] // 256),)
    if group is None:
        emulate(unpack_int8, 256, cubes, words, weight.scales, weight.input_scale, out, True)
    else:
        emulate(unpack_int4, 256, cubes, words, weight.scales, weight.minimums, weight.input_scale, out, weight.gain, group,
            symmetric, True)  # fmt: skip
    assert np.allclose(out, weight.dequantize(), rtol=1e-6, atol=1e-7)


def test_rounded_rows_stand_for_their_bytes() -> None:
    x = np.random.default_rng(5).normal(size=(2, 45)).astype(np.float32)
    factors = np.linspace(0.5, 2, 45).astype(np.float16)
    out = np.full((2, 45), np.nan, np.float32)
    emulate(round_rows, 256, (2,), x, factors, out, 0.5)
    u, scale, zero = reference.quantize_rows(x, factors)
    assert np.allclose(
        out, 0.5 * scale[:, None] * (u.astype(np.float32) - zero[:, None]), rtol=1e-6, atol=1e-7
    )


RING = Room(1, 60_000)
"""One core and little shared memory: short rings that the blocks of a row do not fill evenly."""


ROWS = (1, 2, 7, 8, 9, 16, 17)
KINDS = ((32, True), (64, False), (128, False), (256, True), (None, True))


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    ("kind", "rows"),
    some(itertools.product(KINDS, ROWS), 0, 4, 6, 8, 12, 14, 18, 20, 22, 26, 28, 31, 34),
    ids=str,
)
def test_every_row_count_in_any_order(kind: tuple[int | None, bool], rows: int) -> None:
    """Odd lengths, rings that wrap in the middle, and copies that come by chance: dtypes in turn."""
    group, symmetric = kind
    dtype = (np.float32, np.float16, ml_dtypes.bfloat16)[(rows + (group or 0) // 32) % 3]
    outputs, inputs = 16 + rows, 5 * max(64, group or 0) - (0 if group else 23)
    weight = random_weight(outputs, inputs, "int4" if group else "int8", group, symmetric)
    x = np.random.default_rng(rows).normal(size=(rows, inputs)).astype(dtype)
    expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
    got, tolerance = floats(x, weight, (1.0, 0.5)[rows % 2], room=RING, seed=rows)
    assert error(got, expected) < tolerance
