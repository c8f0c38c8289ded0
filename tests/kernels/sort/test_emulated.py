"""Sorting by sweeps and the best of rows, run by the emulator: right whatever the order of planes
and units.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.backend import offline as properties_of
from cubepy.backends.cuda.offline import compile_for
from cubepy.kernels.sort import topk_gpu
from cubepy.kernels.sort.onesweep_gpu import UNITS, SweepPlan, count_all_digits, sweep
from cubepy.kernels.sort.problem import keys_of
from cubepy.kernels.sort.topk_gpu import TopPlan, top_of_pieces
from tests.backends.cuda.emulator.launch import emulate
from tests.conformance.test_memory import parted

F = np.float32
RNG = np.random.default_rng(0)
PLAN = SweepPlan(4, 2, 1)


def draw(m: int, n: int, dtype: Any = F) -> np.ndarray:
    x = (RNG.standard_normal((m, n)) * 9).astype(dtype)
    if dtype is F:
        x[0, :8] = [np.nan, 0.0, -0.0, np.inf, -np.inf, -np.nan, 0.0, 2.0]
    return x


@pytest.mark.parametrize(
    ("m", "n", "dtype", "order"),
    [(1, 2100, np.int16, True), (2, 1100, np.uint8, True), (1, 1500, F, False)],
)
def test_sweeps_sort_rows_of_several_tiles(m: int, n: int, dtype: Any, order: bool) -> None:
    x = draw(m, n, dtype)
    keys = keys_of(x.dtype, False, order)
    passes, tiles = keys.bits // 8, -(-n // (UNITS * PLAN.items))
    seen, drawn = np.zeros((passes, m, 256), np.int32), np.zeros(passes, np.int32)
    state = np.zeros((passes, m * tiles, 256), np.uint32)
    bits = x.view(f"u{x.itemsize}")
    emulate(count_all_digits, UNITS, 2 * m, bits, seen, -(-n // 2), keys, 1)
    values, indices = np.zeros_like(bits), np.zeros((m, n), np.int64) if order else None
    here: Any = bits
    places: Any = None
    for p in range(passes):
        last = p == passes - 1
        out = values if last else np.zeros((m, n), np.uint32)
        at = None if indices is None else indices if last else np.zeros((m, n), np.int32)
        emulate(
            sweep,
            UNITS,
            m * tiles,
            (here, places),
            (seen, drawn, state),
            (out, at),
            p,
            tiles,
            keys,
            p == 0,
            last,
            PLAN,
        )
        here, places = out, at
    np.testing.assert_array_equal(values.view(dtype), np.sort(x))
    if indices is not None:
        np.testing.assert_array_equal(indices, np.argsort(x, stable=True))


@pytest.mark.parametrize("kind", ["random", "ties", "ascending"])
@pytest.mark.parametrize(
    ("n", "k", "planes", "part", "room"),
    [(700, 10, 1, 768, 256), (1300, 20, 2, 384, 256), (900, 30, 2, 512, 512)],
)
def test_the_best_of_a_row_in_one_search_and_in_two(
    n: int, k: int, planes: int, part: int, room: int, kind: str
) -> None:
    """Ties are taken in order, also across what planes and cubes kept."""
    x = draw(1, n) if kind != "ascending" else np.arange(n, dtype=F)[None]
    x = x.round(-1) if kind == "ties" else x
    keys, most, chunk = keys_of(x.dtype, True, True), k + 12, 128
    pieces = -(-n // (planes * part))
    values, indices = np.zeros((1, k), np.uint32), np.zeros((1, k), np.int64)
    found, at = np.zeros((1, pieces * most), np.uint32), np.zeros((1, pieces * most), np.int32)
    first, last = (x.view(np.uint32), None), (values, indices)
    launch = lambda source, target, part, cubes, plan: emulate(
        top_of_pieces, 32 * planes, cubes, *source, *target, k, most, part, 64, keys, plan
    )
    if pieces == 1:
        launch(first, last, part, 1, TopPlan(4, 1, room, True, True))
    else:
        launch(first, (found, at), part, pieces, TopPlan(4, 1, room, True, False))
        rest = -(-pieces * most // (planes * chunk)) * chunk
        launch((found, at), last, rest, 1, TopPlan(4, 1, room, False, True))
    key = np.where(np.isnan(x), np.inf, x).astype(np.float64) + np.where(np.isnan(x), 1e308, 0)
    key = np.where(np.isnan(x), 2e308, np.minimum(key, 1e308))
    order = np.argsort(-key, axis=1, stable=True)[:, :k]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values.view(F), np.take_along_axis(x, order, 1))


def unread(shape: tuple[int, int], dtype: Any) -> np.ndarray:
    """An array that nobody looks into: its shape and strides are enough."""
    dtype = np.dtype(dtype)
    return np.lib.stride_tricks.as_strided(
        np.zeros(1, dtype), shape, (shape[1] * dtype.itemsize, dtype.itemsize)
    )


class Launches:
    """Stands for the kernel: notes what it is launched with."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, tuple[Any, ...]]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, mode: self.seen.append((grid, args))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_every_search_has_room_and_ends(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = properties_of(architecture)
    strides = (np.zeros(1, np.uint8), np.zeros(1, np.float32), np.zeros(1))
    for m, n in (
        (1, 5),
        (1, 4097),
        (1, 1 << 20),
        (1, 1 << 27),
        (3, 100000),
        (5000, 300),
        (4096, 16384),
        (40, 1 << 22),
    ):
        for k in (1, 2, 3, 16, 27, 32, 100, 128, 129, 250, 256, 257, 1000, 1008):
            for one in strides:
                if not topk_gpu.worth_it(m * n, n, k, one.itemsize):
                    continue
                launches = Launches()
                monkeypatch.setattr(topk_gpu, "top_of_pieces", launches)
                monkeypatch.setattr(topk_gpu.memory, "empty", unread)
                keys = keys_of(one.dtype, True, True)
                topk_gpu.top_by_planes(
                    unread((m, n), f"u{one.itemsize}"), None, None, k, keys, device
                )
                assert len(launches.seen) <= 4
                for step, ((cubes, units), args) in enumerate(launches.seen):
                    source, _, _, _, k, most, part, padded, keys, plan = args
                    chunk = 32 * plan.lanes * plan.rounds
                    assert (
                        k <= most <= plan.room - chunk
                        and 2 * most <= plan.room
                        and most <= padded <= plan.room
                    )
                    assert part % chunk == 0 and cubes == m * -(
                        -source.shape[1] // (units // 32 * part)
                    )
                    assert (
                        units // 32 * plan.room * (4 + max(4, keys.bits // 8))
                        < device.max_shared_memory
                    )
                    assert plan.first == (step == 0) and plan.last == (
                        step == len(launches.seen) - 1
                    )


def test_a_mask_parts_a_line() -> None:
    x = RNG.integers(0, 20, 8 * 40).astype(np.int32)
    out, counts = np.zeros_like(x), np.zeros(40, np.int32)
    emulate(parted, 40, 1, x, out, counts, 10, 8)
    for row, found, count in zip(x.reshape(-1, 8), out.reshape(-1, 8), counts, strict=True):
        assert found.tolist() == [*row[row < 10], *row[row >= 10]] and count == (row < 10).sum()
    assert "popc" in compile_for("sm_90a", parted, 1, x, out, counts, 10, 8).ptx
