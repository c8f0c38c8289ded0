"""Lines, shared and local memory, barriers and atomics mean the same on every backend."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import KernelTypeError
from cubepy.runtime.device import backend_named

F = np.float32


@cb.kernel
def line_work(x: cb.Array, out: cb.Array, sums: cb.Array, lanes: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS * lanes
    v = x.load(i, lanes)
    w = cb.select(v > 2, v * v, -v) + cb.splat(1.0, lanes)
    out.store(i, w)
    sums[cb.ABSOLUTE_POS] = w.sum() + v.max() - v.min() + v[lanes - 1]


@pytest.mark.parametrize("lanes", [1, 3, 8, 16, 64])
def test_lines_of_any_length_hang_over_the_end(device: str, lanes: int) -> None:
    x = np.linspace(-5, 5, 37, dtype=F)
    units = -(-37 // lanes)
    out, sums = np.zeros(37, F), np.zeros(units, F)
    line_work[1, units](x, out, sums, lanes, device=device)
    padded = np.zeros(units * lanes, F)
    padded[:37] = x
    lines = padded.reshape(units, lanes)
    w = np.where(lines > 2, lines * lines, -lines) + 1
    np.testing.assert_allclose(out, w.reshape(-1)[:37], rtol=1e-6)
    want = w.sum(1, dtype=np.float64) + lines.max(1) - lines.min(1) + lines[:, -1]
    np.testing.assert_allclose(sums, want, rtol=1e-5, atol=1e-5)


@cb.kernel
def strided_lines(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS * 4
    out.store(i, x.load(i, 4) * 2)


def test_lines_follow_the_logical_order_whatever_the_strides(device: str) -> None:
    base = np.arange(30, dtype=F).reshape(5, 6)
    for x in (base.T, base[:, ::2], base[::-1]):
        out = np.zeros(x.shape[::-1], F).T
        strided_lines[1, -(-x.size // 4)](x, out, device=device)
        np.testing.assert_array_equal(out, x * 2)


@cb.kernel
def hinted(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    x.prefetch(i + 1000)
    x.prefetch((i, 2))
    out.store((i, 0), x.load((i, 0), 3))


def test_hints_change_nothing_and_may_lie_outside(device: str) -> None:
    base = np.arange(24, dtype=F).reshape(4, 6)
    for x in (base[:, :3], base.reshape(8, 3)[:4]):
        out = np.zeros((4, 3), F)
        hinted[1, 4](x, out, device=device)
        np.testing.assert_array_equal(out, x)


@cb.kernel
def line_shapes(x: cb.Array, out: cb.Array):
    a, b = x.load(0, 4), x.load(4, 4)
    out.store(0, cb.interleave(a, b))
    out.store(8, cb.concat(b, a))
    out.store(16, cb.shuffle(a, b, (7, 0, 5, 2)))
    out.store((20,), cb.slice_line(cb.concat(a, b), 3, 4))
    out.store(24, a, valid=2)


def test_lanes_move_between_lines(device: str) -> None:
    x, out = np.arange(8, dtype=F), np.zeros(28, F)
    line_shapes[1, 1](x, out, device=device)
    want = [0, 4, 1, 5, 2, 6, 3, 7, 4, 5, 6, 7, 0, 1, 2, 3, 7, 0, 5, 2, 3, 4, 5, 6, 0, 1, 0, 0]
    assert out.tolist() == want


@cb.kernel
def dotted(a: cb.Array, b: cb.Array, out: cb.Array, lanes: cb.Comptime[int], most: cb.Comptime):
    sums = out.load(0, lanes)
    if most is None:
        out.store(0, cb.dot_i8(sums, a.load(0, 4 * lanes), b.load(0, 4 * lanes)))
    else:
        out.store(0, cb.dot_i8(sums, a.load(0, 4 * lanes), b.load(0, 4 * lanes), most=most))


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8, 12, 16])
@pytest.mark.parametrize("most", [None, 255, 129, 128, 15])
def test_dot_products_of_bytes_are_exact(device: str, lanes: int, most: int | None) -> None:
    rng = np.random.default_rng(lanes)
    largest = 255 if most is None else most
    for extreme in (None, -128, 127):
        a = rng.integers(0, largest + 1, 4 * lanes).astype(np.uint8)
        b = rng.integers(-128, 128, 4 * lanes).astype(np.int8)
        if extreme is not None:
            a[:], b[:] = largest, extreme
        out = rng.integers(-(2**30), 2**30, lanes).astype(np.int32)
        want = out + (a.astype(np.int32) * b).reshape(lanes, 4).sum(1)
        dotted[1, 1](a, b, out, lanes, most, device=device)
        assert out.tolist() == want.tolist(), (lanes, most, extreme)


@cb.kernel
def parted(x: cb.Array, out: cb.Array, counts: cb.Array, limit, lanes: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS
    line = x.load(i * lanes, lanes)
    below = line < cb.splat(cb.cast(limit, x.dtype), lanes)
    out.store(i * lanes, cb.partition(line, below))
    counts[i] = below.sum()


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 32])
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.float16]
)
def test_a_mask_parts_a_line_and_lanes_keep_their_order(
    device: str, dtype: type, lanes: int
) -> None:
    masks = np.arange(0, 256, 5) if device != "python" else np.array([0, 255, 37, 90])
    rows = np.arange(lanes) + 100 * (1 - (masks[:, None] >> (np.arange(lanes) % 8) & 1))
    x, counts = rows.astype(dtype), np.zeros(len(rows), np.int32)
    out = np.zeros_like(x)
    parted[len(rows), 1](x.reshape(-1), out.reshape(-1), counts, 100, lanes, device=device)
    for row, found, count in zip(x, out, counts, strict=True):
        below = row < 100
        assert count == below.sum()
        assert found.tolist() == [*row[below], *row[~below]]


@cb.kernel
def block_sum(x: cb.Array, out: cb.Array):
    s = cb.shared(16, cb.f32)
    t = cb.UNIT_POS
    keep = cb.local(2, cb.f32)
    keep[0] = x[cb.ABSOLUTE_POS]
    keep[1] = keep[0] * 2
    s[t] = keep[0]
    cb.sync_cube()
    n = 8
    while n > 0:
        if t < n:
            s[t] += s[t + n]
        cb.sync_cube()
        n = n // 2
    rounds = 0
    for k in range(3):
        rounds += k
        cb.sync_cube()
    if t == 0:
        out[cb.CUBE_POS] = s[0] + keep[1] + rounds


@pytest.mark.parametrize("cubes", [1, 5])
def test_shared_memory_and_values_across_barriers(device: str, cubes: int) -> None:
    x = np.random.default_rng(0).standard_normal(16 * cubes).astype(F)
    out = np.zeros(cubes, F)
    block_sum[cubes, 16](x, out, device=device)
    rows = x.reshape(cubes, 16).astype(np.float64)
    np.testing.assert_allclose(out, rows.sum(1) + rows[:, 0] * 2 + 3, rtol=1e-5, atol=1e-5)


def test_shared_memory_is_separate_for_ten_thousand_cubes() -> None:
    x = np.random.default_rng(0).standard_normal(160000).astype(F)
    out = np.zeros(10000, F)
    block_sum[10000, 16](x, out, device="cpu")
    rows = x.reshape(-1, 16).astype(np.float64)
    np.testing.assert_allclose(out, rows.sum(1) + rows[:, 0] * 2 + 3, rtol=1e-4, atol=1e-4)


@cb.kernel
def tile_transpose(x: cb.Array, out: cb.Array):
    s = cb.shared((4, 4), cb.f32)
    i, j = cb.UNIT_POS_Y, cb.UNIT_POS_X
    s[i, j] = x[cb.CUBE_POS_Y * 4 + i, cb.CUBE_POS_X * 4 + j]
    cb.sync_cube()
    out[cb.CUBE_POS_X * 4 + i, cb.CUBE_POS_Y * 4 + j] = s[j, i]


def test_a_tiled_transpose_with_two_axes(device: str) -> None:
    x = np.arange(10 * 7, dtype=F).reshape(10, 7)
    out = np.zeros((7, 10), F)
    tile_transpose[(2, 3), (4, 4)](x, out, device=device)
    np.testing.assert_array_equal(out, x.T)


@cb.kernel
def atomics(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    v = x[i]
    cb.atomic_add(out, 0, v)
    cb.atomic_sub(out, 1, v)
    cb.atomic_max(out, 2, v)
    cb.atomic_min(out, 3, v)
    if out.dtype.is_int:
        cb.atomic_and(out, 4, v)
        cb.atomic_or(out, 5, v)
        cb.atomic_xor(out, 6, v)
    cb.atomic_exchange(out, 7, v)
    old = cb.atomic_compare_exchange(out, 8, 0, v)
    if old == 0:
        cb.atomic_add(out, 9, 1)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64, np.float32, np.float64])
def test_every_atomic(device: str, dtype: type) -> None:
    x = np.array([3, 5, 6, 1], dtype)
    out = np.zeros(10, dtype)
    out[3], out[4] = 100, 7
    atomics[2, 2](x, out, device=device)
    with np.errstate(all="ignore"):
        assert out[0] == 15 and out[1] == np.array(0, dtype) - np.array(15, dtype)
    assert out[2] == 6 and out[3] == 1 and out[7] in x and out[8] in x and out[9] == 1
    if np.dtype(dtype).kind in "iu":
        assert out[4] == 7 & 3 & 5 & 6 & 1 and out[5] == 7 and out[6] == 3 ^ 5 ^ 6 ^ 1


@cb.kernel
def histogram(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        cb.atomic_add(out, x[i], 1)


def test_atomics_from_many_threads_lose_nothing() -> None:
    x = np.random.default_rng(0).integers(0, 8, 300000).astype(np.int32)
    out = np.zeros(8, np.int64)
    histogram[cb.over(x)](x, out, device="cpu")
    np.testing.assert_array_equal(out, np.bincount(x, minlength=8))


@cb.kernel
def widen(x: cb.Array, out: cb.Array, back: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[i] = cb.cast(x[i], cb.f32)
        back[i] = cb.cast(cb.cast(x[i], cb.f32) if back.dtype.is_float else x[i], back.dtype)


NARROW = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4,
          np.bool_, np.int8, np.uint16, np.int64, np.float64]  # fmt: skip


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: np.dtype(d).name)
def test_every_dtype_is_read_and_written(device: str, dtype: type) -> None:
    x = np.array([0, 1, 2, 3, 5, 7], F).astype(dtype)
    out, back = np.zeros(6, F), np.zeros(6, dtype)
    widen[1, 8](x, out, back, device=device)
    np.testing.assert_array_equal(out, x.astype(F))
    np.testing.assert_array_equal(back.astype(F), x.astype(F))


@cb.kernel
def plane(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    v = x[i]
    ok = cb.plane_all(v > 0) or cb.plane_any(v <= 0)
    if ok:
        out[i] = (cb.plane_sum(v) + cb.plane_max(v) + cb.plane_shuffle_xor(v, 1) + cb.plane_exclusive_sum(v)
                  + cb.plane_broadcast(v, 0) + cb.plane_inclusive_sum(v))  # fmt: skip


def test_a_plane_of_one_unit_is_the_unit_itself(device: str) -> None:
    if backend_named(device).properties(0).plane_size > 1:
        pytest.skip("planes of this device are wider")
    x, out = np.arange(-3, 5, dtype=F), np.zeros(8, F)
    plane[1, 8](x, out, device=device)
    np.testing.assert_array_equal(out, x * 5)


@cb.kernel
def splat_again(x: cb.Array, out: cb.Array):
    out.store(0, cb.splat(x.load(0, 4), 4) + cb.splat(x[4], 4))


@cb.kernel
def splat_of_another_width(x: cb.Array, out: cb.Array):
    out.store(0, cb.splat(x.load(0, 4), 8))


def test_a_line_is_its_own_splat(device: str) -> None:
    x, out = np.arange(5, dtype=np.float32), np.zeros(8, np.float32)
    splat_again[1, 1](x, out, device=device)
    assert out[:4].tolist() == [4, 5, 6, 7]
    with pytest.raises(KernelTypeError, match="a line of the 8 lanes that it gives"):
        splat_of_another_width[1, 1](x, out, device=device)
