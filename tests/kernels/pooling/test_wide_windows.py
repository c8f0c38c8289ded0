"""Wide windows, and means of many positions, as units of planes do them: on the python backend,
against definitions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.pooling import avg_pool, max_pool, routines
from cubepy.kernels.pooling.gpu import max_sliding, max_van_herk
from cubepy.kernels.windows import disjoint_gpu, separable_gpu
from tests.staging import WHERE

pytestmark = [
    pytest.mark.skipif(bool(WHERE), reason="a GPU runs these in the other tests"),
    pytest.mark.usefixtures("pools_with_planes"),
]
RNG = np.random.default_rng(0)


def windows(x: np.ndarray, kernel: Any, stride: Any, pad: Any, around: float) -> np.ndarray:
    """The windows of (planes, *size), with what is around it: (planes, *counts, *kernel)."""
    x = np.pad(x, ((0, 0), *((p, p) for p in pad)), constant_values=around)
    views = np.lib.stride_tricks.sliding_window_view(x, kernel, tuple(range(1, x.ndim)))
    return views[(slice(None), *(slice(None, None, s) for s in stride))]


def largest(x: np.ndarray, kernel: Any, stride: Any, pad: Any) -> np.ndarray:
    return windows(x, kernel, stride, pad, -np.inf).max(tuple(range(-len(kernel), 0)))


WIDE = [  # size, kernel, padding: one chunk, several, wider than all, lines that end within a row, along one axis
    ((3, 9, 12), (5, 4), (2, 2)), ((2, 11, 13), (7, 6), (3, 1)), ((1, 21, 22), (17, 20), (8, 10)),
    ((1, 12, 9), (1, 8), (0, 4)), ((1, 9, 9), (8, 1), (4, 0)), ((5, 7, 8), (4, 5), (2, 0)), ((1, 8, 7), (2, 3), (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("size", "kernel", "pad"), WIDE, ids=str)
def test_a_window_is_the_end_of_a_chunk_whole_chunks_and_the_begin_of_another(
    size: Any, kernel: Any, pad: Any
) -> None:
    x = RNG.standard_normal(size, np.float32)
    x[0, 3, 4], x[0, 6, :2] = np.nan, -np.inf
    want = largest(x, kernel, (1, 1), pad)
    got = np.empty_like(want)
    with cb.use("python"):
        max_van_herk.run(x, got, kernel, pad, -np.inf, cb.device_properties_of())
    np.testing.assert_array_equal(got, want)


@pytest.mark.day(0, 2)
def test_rows_in_tiles_and_planes_in_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(max_van_herk, "MOST_UNITS", 32)
    x = RNG.standard_normal((1, 62, 170), np.float32)
    want = largest(x, (6, 21), (1, 1), (3, 10))
    got = np.empty_like(want)
    with cb.use("python"):
        assert max_van_herk.plan_of(x, got, (6, 21), (3, 10), cb.device_properties_of())[1] == 2
        max_van_herk.run(x, got, (6, 21), (3, 10), -np.inf, cb.device_properties_of())
    np.testing.assert_array_equal(got, want)


def test_windows_too_tall_for_shared_memory_and_wide_elements_are_refused() -> None:
    x = np.zeros((1, 4000, 4000), np.float32)
    here = cb.device_properties_of()
    assert max_van_herk.fits(x, x, (64, 64), (32, 32), here)
    assert not max_van_herk.fits(x, x, (2000, 3), (1000, 1), here)
    assert not max_van_herk.fits(x.astype(np.float64), x, (64, 64), (32, 32), here)


PASSES = [  # size, kernel, stride, padding, and which kernels do it with channels first and last
    ((16, 20), (14, 14), (1, 1), (7, 7), ("wide",), ("planes", "planes")),
    ((24, 23), (18, 3), (2, 1), (9, 1), ("planes", "planes"), ("planes", "planes")),
    ((40, 5), (65, 1), (1, 1), (32, 0), ("planes", "planes"), ("planes", "planes")),
    ((33, 9), (31, 9), (2, 8), (14, 4), ("parts", "planes"), ("planes", "planes")),
    ((33, 32), (16, 16), (16, 16), (0, 0), ("parts",), ("parts",)),
    ((3, 9, 15), (3, 5, 14), (1, 1, 1), (1, 2, 7), ("planes", "wide"), ("planes", "planes", "planes")),
]  # fmt: skip


@pytest.mark.parametrize(("size", "kernel", "stride", "pad", "first", "last"), PASSES, ids=str)
def test_wide_windows_in_passes(
    size: Any, kernel: Any, stride: Any, pad: Any, first: Any, last: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    x = RNG.standard_normal((2, *size), np.float32)
    x[0].flat[37], x[1] = np.nan, -np.inf
    want = largest(x, kernel, stride, pad)
    ran: list[str] = []
    for name, module in (("planes", max_sliding), ("wide", max_van_herk), ("parts", disjoint_gpu)):
        note = lambda *a, n=name, f=module.run, **k: ran.append(n) or f(*a, **k)
        monkeypatch.setattr(module, "run", note)
    pool, layouts = getattr(max_pool, f"max_pool{len(size)}d"), max_pool.LAYOUTS[len(size)]
    with cb.use("python"):
        np.testing.assert_array_equal(pool(x, kernel, stride, pad, layout=layouts[0]), want)
        assert tuple(ran) == first
        ran.clear()
        turned = np.ascontiguousarray(np.moveaxis(x, 0, -1))
        np.testing.assert_array_equal(
            pool(turned, kernel, stride, pad, layout=layouts[1]), np.moveaxis(want, 0, -1)
        )
        assert tuple(ran) == last


MEANS = [  # size, kernel, stride, padding, whether padding counts, divisor, units from which on nothing is reduced
    ((20, 22), (12, 10), (4, 5), (5, 4), False, None, 0), ((20, 22), (12, 10), (4, 5), (5, 4), True, None, 0),
    ((20, 22), (12, 10), (4, 5), (5, 4), True, 7, 0), ((24, 20), (12, 10), (12, 10), (0, 0), True, None, 0),
    ((16, 7), (8, 7), (8, 7), (0, 0), True, None, 1 << 20), ((8, 14), (8, 7), (8, 7), (0, 0), True, 3, 1 << 20),
    ((50,), (20,), (3,), (9,), True, None, 0), ((12, 5, 20), (12, 5, 10), (12, 5, 10), (0, 0, 0), True, None, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pad", "padded", "divisor", "many"), MEANS, ids=str
)
def test_means_of_many_places(
    size: Any, kernel: Any, stride: Any, pad: Any, padded: bool, divisor: Any, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(disjoint_gpu, "MANY", many)
    x = RNG.standard_normal((2, *size), np.float32)
    axes = tuple(range(-len(size), 0))
    inside = windows(x, kernel, stride, pad, np.nan).astype(np.float64)
    places = np.prod(kernel) if padded else (~np.isnan(inside)).sum(axes)
    want = np.nansum(inside, axes) / (divisor or places)
    pool, layouts = getattr(avg_pool, f"avg_pool{len(size)}d"), avg_pool.LAYOUTS[len(size)]
    how = (kernel, stride, pad, False, padded, divisor)
    with cb.use("python"):
        got = pool(x, *how, layout=layouts[0])
        last = pool(np.ascontiguousarray(np.moveaxis(x, 0, -1)), *how, layout=layouts[1])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.moveaxis(last, -1, 0), want, rtol=1e-5, atol=1e-6)


def test_means_of_windows_that_share_nothing_are_not_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = RNG.standard_normal((2, 14, 21), np.float32)
    monkeypatch.setattr(separable_gpu, "window_sums", None)
    with cb.use("python"):
        got = avg_pool.avg_pool2d(x, 7)
    np.testing.assert_allclose(got, x.reshape(2, 2, 7, 3, 7).mean((2, 4)), rtol=1e-5, atol=1e-6)


def test_one_window_that_does_not_see_all_is_no_mean_of_everything() -> None:
    x = RNG.standard_normal((2, 8, 9), np.float32)
    with cb.use("python"):
        got = avg_pool.avg_pool2d(x, 5)
    np.testing.assert_allclose(got[:, 0, 0], x[:, :5, :5].mean((1, 2)), rtol=1e-5, atol=1e-6)


def test_means_of_unequal_parts_in_one_pass() -> None:
    x = RNG.standard_normal((2, 40, 37), np.float32)
    want = np.empty((2, 3, 4))
    for i, j in np.ndindex(3, 4):
        rows, columns = (
            slice(i * 40 // 3, -(-(i + 1) * 40 // 3)),
            slice(j * 37 // 4, -(-(j + 1) * 37 // 4)),
        )
        want[:, i, j] = x[:, rows, columns].mean((1, 2), np.float64)
    with cb.use("python"), cb.tune.force("banded_map", "disjoint"):
        np.testing.assert_allclose(
            avg_pool.adaptive_avg_pool2d(x, (3, 4)), want, rtol=1e-5, atol=1e-6
        )


def test_places_outside_of_windows_over_windows_change_nothing() -> None:
    """Windows of the first pass that are outside count as the position at the end, which their windows
    hold, too.
    """
    x = RNG.standard_normal((1, 4, 25, 4), np.float32) - 100
    want = largest(x[0].transpose(0, 2, 1)[:, :, :], (1, 24), (1, 1), (0, 12)).transpose(0, 2, 1)[
        None
    ]
    with cb.use("python"):
        got = routines.along(x[..., None], 2, 24, 12, 26, -np.inf, cb.device_properties_of())[
            ..., 0
        ]
    np.testing.assert_array_equal(got, want)
