"""The Hopper convolution, run by the emulator: right whatever the order of units and copies."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.sm90.implicit_gemm import HopperWindow, hopper_convolution
from cubepy.kernels.convolution.sm90.implicit_gemm_plan import (
    box_for,
    part_of,
    prepared,
    prepared_parts,
)
from cubepy.kernels.convolution.sm90.implicit_gemm_simt import FmaWindow, fma_convolution
from cubepy.kernels.convolution.sm90.operand_layout import in_blocks, in_boxes, laid_out
from cubepy.kernels.convolution.sm90.split_k import added
from cubepy.kernels.convolution.sm90.transposed import parts_of
from cubepy.kernels.matmul.sm90.persistent import UNITS
from cubepy.kernels.primitives.functions import ACTIVATIONS

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")

from tests.backends.cuda.emulator.launch import emulate

BF16 = ml_dtypes.bfloat16
Three = tuple[int, int, int]


def convolution(
    plan: Any, shape: tuple[int, ...], filters: int, window: Three, stride: Three = (1, 1, 1),
    pad: Three = (0, 0, 0), dilation: Three = (1, 1, 1), cores: int = 2, dtype: Any = np.float16, bias: bool = False,
    seed: int = 0, groups: int = 1, ranges: int = 1, residual: bool = False,
) -> float:  # fmt: skip
    """The relative error of one emulated convolution of (N, D, H, W, C), of rank 4 without D where
    that is 1.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(dtype)
    w = rng.standard_normal((filters, shape[4] // groups, *window)).astype(dtype)
    add = rng.standard_normal(filters).astype(dtype) if bias else None
    reach = [d * (k - 1) for d, k in zip(dilation, window)]
    out_size = tuple(
        (n + 2 * p - r - 1) // s + 1 for n, p, r, s in zip(shape[1:4], pad, reach, stride)
    )
    out = np.full((shape[0], *out_size, filters), np.nan, dtype)
    flat = shape[1] == 1 and window[0] == 1
    more = rng.standard_normal(out.shape).astype(dtype)
    view, target = (x[:, 0], out[:, 0]) if flat else (x, out)
    other = None if not residual else more[:, 0] if flat else more
    problem = Problem(shape[1:4], window, stride, pad, dilation, out_size)  # type: ignore[arg-type]
    function = ACTIVATIONS["relu"] if bias else None
    if groups == 1:
        view, taps, smaller = laid_out(view, w, problem)
        group = 0
    else:
        with cb.use("cpu"):
            view, taps, smaller, group = in_blocks(view, w, problem, groups)  # type: ignore[misc]
    if ranges == 1:
        parts = (part_of(target, smaller, other),)
        cubes, arguments = prepared_parts(view, taps, add, parts, function, cores, plan, group)
    else:
        box, counts = box_for(shape[0], out_size, plan.rows)  # type: ignore[arg-type]
        sums = np.full((ranges * counts[0] * box[0], *target.shape[1:]), np.nan, np.float32)
        cubes, arguments = prepared(
            view, taps, None, sums, smaller, None, cores, plan, ranges=ranges
        )
    kernel = fma_convolution if isinstance(plan, FmaWindow) else hopper_convolution
    emulate(kernel, plan.units, cubes, *arguments, late=1 - seed % 2 / 2, seed=seed)
    if ranges > 1:
        with cb.use("cpu"):
            added(sums, add, target, ranges, function, other)
    wide = np.pad(x.astype(np.float64), [(0, 0), *((p, p) for p in pad), (0, 0)])
    right = np.zeros(out.shape)
    for tap in itertools.product(*map(range, window)):
        seen = [
            slice(t * d, t * d + (m - 1) * s + 1, s)
            for t, d, m, s in zip(tap, dilation, out_size, stride)
        ]
        for g in range(groups):
            f, c = filters // groups, w.shape[1]
            some, these = (
                wide[(slice(None), *seen)][..., g * c : (g + 1) * c],
                w[(slice(g * f, (g + 1) * f), slice(None), *tap)],
            )
            right[..., g * f : (g + 1) * f] += some @ these.astype(np.float64).T
    right = right + more if residual else right
    if bias:
        right = np.maximum(right + add.astype(np.float64), 0)  # type: ignore[union-attr]
    return float(np.linalg.norm(out.astype(np.float64) - right) / np.linalg.norm(right))


SHARED, TURNS, SMALL = (
    HopperWindow(128, 256, 3, pingpong=False),
    HopperWindow(128, 128, 3),
    HopperWindow(64, 64, 3),
)
SAME: dict[str, Any] = {"window": (1, 3, 3), "pad": (0, 1, 1)}
MORE: dict[str, Any] = {**SAME, "bias": True, "residual": True}
PLAIN = FmaWindow(128, 64, stages=2, cubes=4)
SINGLE: dict[str, Any] = {**SAME, "dtype": np.float32, "bias": True}
CASES: dict[str, tuple[Any, tuple[int, ...], int, dict[str, Any]]] = {
    "padding": (SMALL, (1, 1, 9, 12, 64), 64, {**SAME, "bias": True}),
    "channels and filters that fill no tile": (TURNS, (2, 1, 5, 7, 72), 136, {**SAME, "dtype": BF16, "bias": True}),
    "both consumers share a tile of three pieces": (
        HopperWindow(128, 192, 3, pingpong=False), (3, 1, 7, 7, 64), 200, {**SAME, "bias": True},
    ),
    "both consumers share a tile": (SHARED, (3, 1, 7, 7, 64), 264, {**SAME, "bias": True}),
    "stride": (SMALL, (2, 1, 8, 9, 16), 40, {**SAME, "stride": (1, 2, 2)}),
    "stride along the width, dilation": (
        HopperWindow(128, 64, 2), (1, 1, 15, 22, 24), 16,
        {"window": (1, 3, 2), "pad": (0, 4, 2), "dilation": (1, 3, 3), "stride": (1, 1, 2)},
    ),
    "few channels and a stride: two by two places are one": (
        HopperWindow(128, 64, 2), (2, 1, 11, 12, 4), 24, {"window": (1, 4, 3), "pad": (0, 1, 0), "stride": (1, 2, 2), "bias": True},
    ),
    "few channels: a tap is a row of the window": (
        SMALL, (2, 1, 13, 14, 3), 16, {"window": (1, 5, 7), "pad": (0, 3, 3)},
    ),
    "rows of the window as they lie": (
        SMALL, (1, 1, 9, 12, 16), 24, {"window": (1, 5, 3), "bias": True},
    ),
    "rows of the window and padding": (
        SMALL, (1, 1, 6, 13, 8), 48, {"window": (1, 5, 5), "pad": (0, 2, 2)},
    ),
    "few channels and a stride of a wide window": (
        SMALL, (2, 1, 13, 14, 3), 16, {"window": (1, 7, 7), "pad": (0, 3, 3), "stride": (1, 2, 2)},
    ),
    "channels that are no measure": (SMALL, (1, 1, 6, 7, 20), 16, {**SAME, "bias": True}),
    "groups of few channels": (SMALL, (1, 1, 6, 7, 128), 128, {**SAME, "groups": 8, "bias": True}),
    "groups of many channels": (SMALL, (1, 1, 6, 7, 128), 256, {**SAME, "groups": 2, "stride": (1, 2, 2)}),
    "ranges of the sum": (TURNS, (3, 1, 5, 7, 192), 136, {**SAME, "ranges": 4, "bias": True, "cores": 3}),
    "ranges of the sum, shared tiles": (SHARED, (2, 1, 5, 7, 72), 264, {**SAME, "ranges": 2}),
    "volumes": (HopperWindow(64, 128, 2), (1, 4, 5, 6, 8), 80, {"window": (3, 2, 1), "pad": (2, 0, 1)}),
    "single": (PLAIN, (2, 1, 7, 9, 32), 72, SINGLE),
    "a residual, single": (PLAIN, (2, 1, 7, 9, 32), 72, {**SINGLE, "residual": True}),
    "a residual": (SMALL, (2, 1, 9, 12, 64), 136, MORE),
    "a residual, shared tiles": (SHARED, (3, 1, 7, 7, 64), 264, {**MORE, "cores": 1}),
    "a residual, in turns": (TURNS, (3, 1, 9, 7, 64), 264, {**MORE, "cores": 1}),
    "a residual, ranges of the sum": (TURNS, (3, 1, 5, 7, 192), 136, {**MORE, "ranges": 4}),
    "a residual, volumes": (
        HopperWindow(64, 128, 2), (1, 4, 5, 6, 8), 80, {"window": (3, 2, 1), "residual": True},
    ),
}  # fmt: skip


@pytest.mark.turns(6)
@pytest.mark.parametrize("case", CASES)
def test_results(case: str) -> None:
    plan, shape, filters, options = CASES[case]
    assert convolution(plan, shape, filters, **options) < (3e-3 if "dtype" in options else 4e-4)


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_units_and_copies(seed: int) -> None:
    """One cube, several tiles: pipelines, orders and buffers wrap around."""
    plan = HopperWindow(64, 128, 3) if seed % 2 else HopperWindow(128, 64, 2, pingpong=False)
    for residual in (False, True):
        options: dict[str, Any] = {"cores": 1, "seed": seed, "residual": residual}
        assert convolution(plan, (5, 1, 6, 6, 32), 136, (1, 2, 2), **options) < 4e-4


@pytest.mark.parametrize(("stride", "cut", "dilation"), [(1, 1, 1), (2, 1, 1), (3, 0, 2)])
def test_results_by_remainders(stride: int, cut: int, dilation: int) -> None:
    """A transposed convolution without zeros between the elements of its input."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 6, 64)).astype(np.float16)
    w = rng.standard_normal((64, 16, 3, 3)).astype(np.float16)
    sizes = tuple((n - 1) * stride - 2 * cut + 2 * dilation + 1 for n in x.shape[1:3])
    out = np.zeros((2, *sizes, 16), np.float16)
    order, columns = ((0, 2, 3, 1), 16) if stride == 2 else ((1, 2, 3, 0), 64)
    taps = np.ascontiguousarray(w.transpose(order)).reshape(-1, 9, columns)
    settings = ((stride,) * 2, (cut,) * 2, (dilation,) * 2)
    parts = list(parts_of(in_boxes(x), out, (3, 3), *settings))
    for first in range(0, len(parts), 4):
        cubes, arguments = prepared_parts(
            x, taps, None, parts[first : first + 4], None, 2, across=stride == 2
        )
        emulate(hopper_convolution, UNITS, cubes, *arguments)
    room = np.zeros((2, *(n + 2 * cut for n in sizes), 16))
    for u, v in itertools.product(range(3), repeat=2):
        at = [
            slice(k * dilation, k * dilation + (n - 1) * stride + 1, stride)
            for k, n in zip((u, v), x.shape[1:3])
        ]
        room[:, at[0], at[1]] += x.astype(np.float64) @ w[:, :, u, v].astype(np.float64)
    right = room[:, cut : cut + sizes[0], cut : cut + sizes[1]]
    assert np.linalg.norm(out - right) < 4e-4 * np.linalg.norm(right)
