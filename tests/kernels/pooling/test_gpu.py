"""What units of planes run for pools and interpolation, on the python backend against
window-by-window definitions.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.interpolate import interpolate
from cubepy.kernels.pooling import avg_pool, max_pool, max_pool_gradient
from cubepy.kernels.pooling.gpu import max_indices
from cubepy.kernels.pooling.gpu.van_herk import NEW, SlidingWindow, done, kept, overlap
from cubepy.kernels.pooling.problem import MaxPool
from cubepy.kernels.pooling.routines import MAX_POOL
from cubepy.kernels.reduce.reduction import SCALED_SUM
from cubepy.kernels.windows import disjoint_gpu, separable_gpu
from cubepy.kernels.windows.banded import Band, part_band, point_band, window_band
from cubepy.kernels.windows.banded_map import BANDED
from cubepy.kernels.windows.problem import Banded
from cubepy.kernels.windows.regular import regular
from cubepy.kernels.windows.rows_gpu import Steps
from tests.kernels.pooling.test_max_pool import defined
from tests.staging import WHERE
from tests.turns import TURN

pytestmark = [
    pytest.mark.skipif(bool(WHERE), reason="a GPU runs these in the other tests"),
    pytest.mark.usefixtures("pools_with_planes"),
]
RNG = np.random.default_rng(0)


def turned(a: np.ndarray, last: bool) -> np.ndarray:
    return np.ascontiguousarray(a.transpose(0, 2, 3, 1)) if last else a


CASES = [
    ((8, 24), (3, 2, 1, 1, False), False), ((7, 7), (3, 2, 1, 1, True), False), ((8, 6), (3, 2, 1, 1, False), True),
    ((8, 8), (2, 2, 0, 1, True), False), ((6, 8), (5, 1, 2, 1, False), False), ((6, 4), (5, 1, 2, 1, False), True),
]  # fmt: skip


GPU = replace(cb.device_properties_of("python"), plane_size=32)


@pytest.mark.parametrize(("size", "settings", "last"), CASES, ids=str)
def test_largest_values_their_places_and_the_gradient(
    size: tuple[int, int], settings: tuple, last: bool
) -> None:
    x = np.round(RNG.standard_normal((1, 4, *size), np.float32) * 4)  # with equals
    x[0, 0, 2, 3:5], x[0, 1] = np.nan, -np.inf
    want, places = defined(x, *settings)
    layout = "NHWC" if last else "NCHW"
    with cb.use("python"):
        values = max_pool.max_pool2d(turned(x, last), *settings, layout=layout)
        also, found = max_pool.max_pool2d(
            turned(x, last), *settings, return_indices=True, layout=layout
        )
        grad = RNG.standard_normal(want.shape, np.float32)
        back = max_pool_gradient.max_pool2d_input(
            turned(x, last).shape, turned(grad, last), found, *settings, layout=layout
        )  # fmt: skip
    np.testing.assert_array_equal(values, turned(want, last))
    np.testing.assert_array_equal(also, turned(want, last))
    np.testing.assert_array_equal(found, turned(places, last))
    slope = np.zeros((4, size[0] * size[1]))
    for row, at, g in zip(slope, places.reshape(4, -1), grad.reshape(4, -1)):
        np.add.at(row, at, g.astype(np.float64))
    np.testing.assert_allclose(back, turned(slope.reshape(x.shape), last), atol=1e-5)


WIDER = [  # size, kernel, stride, padding, dilation: gaps, many positions, depth, a depth without strides
    ((7, 8), (3, 2), (1, 2), (1, 1), (2, 3)), ((9, 8), (9, 2), (1, 1), (4, 1), (1, 1)),
    ((4, 6, 8), (3, 2, 3), (2, 1, 2), (1, 0, 1), (1, 1, 1)), ((3, 4, 5), (2, 1, 1), (1, 1, 1), (0, 0, 0), (2, 1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("size", "kernel", "step", "pad", "gaps"), WIDER, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_largest_values_of_wider_windows(
    size: Any, kernel: Any, step: Any, pad: Any, gaps: Any, last: bool
) -> None:
    x = RNG.standard_normal((2, 4, *size), np.float32)
    x[0, 0, ..., 1, 2], x[1, 1] = np.nan, -np.inf
    around = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in pad)), constant_values=-np.inf)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, gaps))
    axes = tuple(range(2, x.ndim))
    views = np.lib.stride_tricks.sliding_window_view(around, reach, axes)
    picks = (..., *(slice(None, None, s) for s in step), *(slice(None, None, d) for d in gaps))
    want = views[picks].max(tuple(range(-len(size), 0)))
    order = (0, *axes, 1) if last else tuple(range(x.ndim))
    pool, layout = getattr(max_pool, f"max_pool{len(size)}d"), "NDHWC" if len(size) == 3 else "NHWC"
    layout = layout if last else layout[0] + "C" + layout[1:-1]
    with cb.use("python"):
        got = pool(np.ascontiguousarray(x.transpose(order)), kernel, step, pad, gaps, layout=layout)
    np.testing.assert_array_equal(got, want.transpose(order))


def test_parts_of_equal_size_are_windows() -> None:
    x = RNG.standard_normal((1, 2, 6, 8), np.float32)
    with cb.use("python"):
        got = max_pool.adaptive_max_pool2d(x, (3, 2))
    np.testing.assert_array_equal(got, x.reshape(1, 2, 3, 2, 2, 4).max((3, 5)))


@pytest.mark.parametrize(
    ("size", "counts"),
    [
        ((9, 10), (4, 3)),
        ((5, 12), (3, 5)),
        ((16, 8), (2, 1)),
        ((1, 280), (1, 130)),
        ((90, 3), (41, 2)),
    ],
)
@pytest.mark.parametrize("last", [False, True])
def test_parts_of_unequal_size(size: tuple[int, int], counts: tuple[int, int], last: bool) -> None:
    x = RNG.standard_normal((1, 4, *size), np.float32)
    x[0, 1, -1, 1] = np.nan
    want = np.empty((1, 4, *counts), np.float32)
    for i, j in np.ndindex(*counts):
        rows, columns = (
            slice(k * n // m, -(-(k + 1) * n // m)) for k, n, m in zip((i, j), size, counts)
        )
        want[..., i, j] = x[..., rows, columns].max((2, 3))
    with cb.use("python"):
        got = max_pool.adaptive_max_pool2d(
            turned(x, last), counts, layout="NHWC" if last else "NCHW"
        )
    np.testing.assert_array_equal(got, turned(want, last))


@pytest.mark.parametrize("looped", [False, True])
def test_a_ring_keeps_what_its_windows_need(looped: bool) -> None:
    for taps, ins, apart in (
        (1, 1, 1),
        (3, 2, 1),
        (5, 1, 1),
        (13, 1, 1),
        (13, 3, 1),
        (2, 5, 1),
        (3, 2, 3),
    ):
        steps = Steps(1, ins, (0,), taps, apart)
        ahead, turns = (2 * overlap(steps), 3) if looped else (7, 1)
        sliding = SlidingWindow(steps, ahead, looped)
        x, state, found = RNG.standard_normal((turns * ahead) * ins + steps.reach), {}, {}
        walk = [(r, 0) for r in range(sliding.lead)] + [
            (r, t) for t in range(turns) for r in sliding.positions
        ]
        for r, t in walk:
            for to, a, b in kept(sliding, r):
                state[to] = max(x[r + t * ahead * ins] if s == NEW else state[s] for s in (a, b))
            for to, a, b in done(sliding, r):
                found[to + t * ahead] = max(
                    x[r + t * ahead * ins] if s == NEW else state[s] for s in (a, b)
                )
        assert found == {
            w: x[w * ins : w * ins + steps.reach : apart].max() for w in range(turns * ahead)
        }


@pytest.mark.turns(6)
@pytest.mark.parametrize(("counts", "channels"), [
    ((1, 1, 1), 1), ((2, 1, 3), 1), ((1, 2, 4), 1), ((4, 2, 1), 1), ((1, 1, 1), 3), ((1, 1, 2), 3), ((4, 2, 1), 3),
])  # fmt: skip
def test_large_parts_of_equal_size_are_reduced(counts: tuple[int, ...], channels: int) -> None:
    x = RNG.standard_normal((1, 4, 6, 12, channels), np.float32)
    out = np.zeros((1, *counts, channels), np.float32)
    parts = tuple(
        n for pair in zip(counts, np.divide((4, 6, 12), counts).astype(int)) for n in pair
    )
    with cb.use("python"):
        disjoint_gpu.reduced(x, out, disjoint_gpu.highest(-np.inf), 1.0)
        np.testing.assert_array_equal(out, x.reshape(1, *parts, -1).max((2, 4, 6)))
        disjoint_gpu.reduced(x, out, SCALED_SUM, 0.25)
        np.testing.assert_allclose(
            out, x.reshape(1, *parts, -1).sum((2, 4, 6)) / 4, rtol=1e-5, atol=1e-5
        )


def dense(band: Band) -> np.ndarray:
    matrix = np.zeros((band.rows, band.columns))
    for row, start, weights in zip(matrix, band.starts, band.weights):
        n = min(len(weights), band.columns - start)
        row[start : start + n] = weights[:n]
    return matrix


def interpolation(
    size: tuple, wanted: tuple, mode: str, back: bool, corners: bool = False
) -> list[Band]:
    return interpolate._interpolation(size, wanted, None, mode, corners, False, back)


def averages(size: tuple, *how: Any) -> list[Band]:
    return avg_pool._bands(size, *how)


MAPS = {
    "average": (averages((8, 24), 3, 2, 1, False, True, None, False), (False, True)),
    "average_over_the_end": (averages((9, 12), 3, 2, 1, True, False, None, False), (False,)),
    "average_gradient": (averages((8, 24), 3, 2, 1, False, True, None, True), (False, True)),
    "average_gradient_odd": (averages((7, 7), 3, 2, 1, False, False, None, True), (False,)),
    "nearest_thirds": (interpolation((7, 9), (9, 11), "nearest", True), (False, True)),
    "bilinear": (interpolation((4, 8), (8, 16), "bilinear", False), (False, True)),
    "bilinear_gradient": (interpolation((4, 8), (8, 16), "bilinear", True), (False, True)),
    "bilinear_any": (interpolation((7, 9), (11, 6), "bilinear", False), (False, True)),
    "bilinear_corners": (interpolation((7, 8), (9, 16), "bilinear", False, True), (False,)),
    "bicubic": (interpolation((4, 6), (8, 12), "bicubic", False), (False,)),
    "bicubic_gradient": (interpolation((4, 6), (8, 12), "bicubic", True), (False,)),
    "parts": ([part_band(9, 3, False), part_band(12, 5, False)], (False, True)),
}


def drawn_pairs(count: int) -> list[tuple[int, int]]:
    """Lengths before and after a map, others every day."""
    draw = np.random.default_rng(TURN)
    pairs = [(int(n), int(m)) for n, m in draw.integers(2, 12, (4 * count, 2))]
    known = [(n, m) for n, m in pairs if regular(part_band(n, m, False)) is not None]
    return [(2, 3), *known[:count]]


@pytest.mark.parametrize("name", MAPS)
def test_weighted_windows(name: str) -> None:
    bands, layouts = MAPS[name]
    x = RNG.standard_normal((1, 4, *(b.columns for b in bands)), np.float32)
    want = np.einsum("ai,bj,ncij->ncab", dense(bands[0]), dense(bands[1]), x.astype(np.float64))
    for last in layouts:
        with cb.use("python"):
            got = np.empty_like(turned(want, last), np.float32)
            separable_gpu.Windows().launch(Banded(turned(x, last), bands, last, got), GPU)
        np.testing.assert_allclose(got, turned(want, last), atol=3e-6)


def test_what_counts_keeps_its_infinity_at_the_edge_and_what_does_not_spreads_no_nan() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    x[0, 0, 0, 0], x[0, 0, 3, 3] = np.inf, np.nan
    with cb.use("python"):
        got = avg_pool.avg_pool2d(x, 3, 2, 1)
        again = interpolate.interpolate(x, (7, 7), mode="bilinear", align_corners=True)
    assert np.isposinf(got[0, 0, 0, 0]) and np.isnan(got).sum() == 1 and np.isinf(got).sum() == 1
    assert (
        not np.isnan(again[0, 0, 4, 4])
        and np.isnan(again[0, 0, 5:, 5:]).all()
        and np.isnan(again).sum() == 4
    )


@pytest.mark.parametrize("n, m", [(60, 2), (77, 7)])
@pytest.mark.parametrize("last", [False, True])
def test_even_parts_of_f16_are_summed_in_f32(n: int, m: int, last: bool) -> None:
    bands = [part_band(3, 3, False), part_band(n, m, False)]
    x = RNG.standard_normal((1, 2, 3, n)).astype(np.float16)
    want = np.einsum("bj,ncij->ncib", dense(bands[1]), x.astype(np.float64))
    with cb.use("python"):
        got = np.empty_like(turned(want, last), np.float16)
        separable_gpu.Disjoint().launch(Banded(turned(x, last), bands, last, got), GPU)
    wanted = turned(want, last)
    near = np.abs(wanted) * 2.0**-11 + 1e-6  # half a unit in the last place
    assert (np.abs(got - wanted) <= near).all()


def test_ends_take_nothing_off_an_infinity() -> None:
    """What ends have more than steady weights is added, where all weights are positive."""
    for n, m in itertools.product(range(1, 14), repeat=2):
        for band in (part_band(n, m, False), point_band(n, m, n / m, "linear", False, False)):
            how = regular(band)
            if how is not None and how.weights.steady is not None:
                assert all(weight > 0 for _, _, weight in how.weights.ends), (n, m)


@pytest.mark.parametrize("n, m", drawn_pairs(6))
def test_parts_keep_infinities(n: int, m: int) -> None:
    band, x = part_band(n, m, False), RNG.standard_normal((1, 2, n, n), np.float32)
    x[0, 0, n // 2, n // 3] = np.inf
    want = np.einsum("ai,bj,ncij->ncab", dense(band) > 0, dense(band) > 0, np.isinf(x)) > 0
    with cb.use("python"):
        got = np.empty(want.shape, np.float32)
        separable_gpu.Windows().launch(Banded(x, [band, band], False, got), GPU)
    np.testing.assert_array_equal(np.isposinf(got), want)
    assert not np.isnan(got).any()


def test_too_many_taps_are_left_to_others() -> None:
    back = window_band(40, 21, 20, 1, 0, True, None, True)
    x, out = np.ones((1, 1, 21, 21), np.float32), np.empty((1, 1, 40, 40), np.float32)
    assert BANDED.chosen(Banded(x, [back, back], False, out), GPU).name == "one_by_one"
    settings = ((1, 3, 3), (1, 1, 1), (0, 0, 0), (1, 2, 2))
    assert max_indices._planes(settings, (1, 1, 9, 9, 1), False) is None
    x = np.ones((1, 1, 40, 40, 1), np.float32)
    gaps = ((1, 3, 3), (1, 1, 1), (0, 0, 0), (1, 17, 1))
    problem = MaxPool(x, x[:, :, :6, :38], None, gaps, 0.0, last=False, axes=3)
    assert MAX_POOL.chosen(problem, GPU).name == "naive"
