"""Loads, stores, gathers and stack memory of generated CPU code."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.ops.compiled_ops import NUMPY, run


@pytest.mark.parametrize("dtype", list(NUMPY))
def test_part_lines_touch_only_their_lanes(dtype: str) -> None:
    """The arrays end where the part ends, at the edge of a page that cannot be touched."""
    import mmap

    kind = np.dtype(NUMPY[dtype])
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 3 * page)
    base = np.frombuffer(area, np.uint8)
    _protect(base.ctypes.data + 2 * page, page)
    x = np.frombuffer(area, np.uint8, page, page).view(kind)
    src = (np.arange(x.size) % 7 % (2 if dtype == "bool_" else 7)).astype(kind)
    carried = {
        "f64": "f64",
        "int4": "i8",
        "uint4": "u8",
        "bool_": "bool_",
        "f16": "f32",
        "bf16": "f32",
    }.get(dtype, "f32" if dtype[0] == "f" else dtype)
    widths = (3, 8, 16)
    body = []
    for w in widths:
        body += [f"for n in range(-1, {w + 2}):",
                 f"    at = n0 - minnum(maxnum(n, i64(0)), i64({w}))",
                 f"    v{w} = load_line_part(p0, at, {w}, n)",
                 f"    store_line_part(p0, at, v{w}, n)",
                 f"    store_line(p1, ({w} * 32 + n + 1) * 64, v{w})",
                 f"    u{w} = load_line_or(p0, at, {w}, n, load_line(p2, 0, {w}))",
                 f"    store_line(p3, ({w} * 32 + n + 1) * 64, u{w})"]  # fmt: skip
    out, filled = np.zeros((2, 20 * 32 * 64), NUMPY[carried])
    other = (np.arange(16) % 2 + 1).astype(NUMPY[carried])
    x[:] = src
    run("\n".join(body), x, out, other, filled, n0=x.size)
    np.testing.assert_array_equal(x.view(np.uint8), src.view(np.uint8))
    for w in widths:
        for n in range(-1, w + 2):
            m = min(max(n, 0), w)
            got = out[(w * 32 + n + 1) * 64 :][:w]
            want = np.zeros(w, NUMPY[carried])
            want[:m] = src[x.size - m :].astype(NUMPY[carried])
            np.testing.assert_array_equal(got, want, err_msg=f"{dtype} x {w}, {n} valid")
            want[m:] = other[m:w]
            got = filled[(w * 32 + n + 1) * 64 :][:w]
            np.testing.assert_array_equal(got, want, err_msg=f"{dtype} x {w}, {n} of another")
    _protect(base.ctypes.data + 2 * page, page, 3)


def _protect(address: int, size: int, how: int = 0) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), how):
        pytest.skip("mprotect is not available")


@pytest.mark.parametrize("dtype", list(NUMPY))
def test_gather_and_scatter(dtype: str) -> None:
    kind = NUMPY[dtype]
    src = (np.arange(64) % (2 if dtype == "bool_" else 7)).astype(kind)
    index = np.random.default_rng(15).permutation(64).astype(np.int64)
    mask = np.arange(64) % 3 != 0
    wild = np.where(mask, index, 1 << 40)
    for width in (1, 3, 16) if dtype in ("f32", "i8") else (16,):
        n = 63 if width == 3 else 64
        got, put = np.ones(64, kind), np.zeros(64, kind)
        body = f"""for i in range(0, n0, {width}):
    k = load_line(p2, i, {width})
    m = load_line(p3, i, {width})
    v = gather_line(p0, k, m)
    store_line(p1, i, v)
    scatter_line(p4, k, v, m)"""
        run(body, src, got, wild, mask, put, n0=n)
        want = np.where(mask[:n], src.astype(np.float32)[index[:n]], 0)
        np.testing.assert_array_equal(got[:n].astype(np.float32), want)
        placed = np.zeros(64, np.float32)
        placed[index[:n][mask[:n]]] = src.astype(np.float32)[index[:n][mask[:n]]]
        np.testing.assert_array_equal(put.astype(np.float32), placed)


def test_guarded_elements_do_not_touch_memory() -> None:
    x = np.arange(4, dtype=np.float16)
    out = np.full(6, 9, np.float32)
    body = """far = i64(1) << i64(45)
store(p1, 0, load_if(p0, far, n0 > 5))
store(p1, 1, load_if(p0, 3, n0 < 5))
store_if(p1, far, f32(1), n0 > 5)
store_if(p1, 2, f32(5), n0 < 5)
store(p1, 3, load(offset(p0, 1), 1))
prefetch(p0, far)"""
    run(body, x, out, n0=1)
    np.testing.assert_array_equal(out, [0, 3, 5, 2, 9, 9])


def test_stack_memory_of_elements_and_lines() -> None:
    out = np.zeros(64, np.float32)
    body = """e = stack("bf16", 0, 4)
l = stack("f32", 3, 5)
m = stack("bool_", 16, 2)
w = stack("f64", 64, 2)
for k in range(4):
    store(e, k, f32(k + 1) + f32(0.001))
for k in range(5):
    store(l, k, splat(f32(k), 3) + f32(iota("i32", 3)))
store(m, n0, iota("i32", 16) < splat(i32(5), 16))
store(w, n0, splat(f64(7), 64))
for k in range(4):
    store(p0, k, load(e, k))
for k in range(5):
    store_line(p0, 4 + 3 * k, load(l, k))
store_line(p0, 20, select(load(m, n0), splat(f32(1), 16), splat(f32(0), 16)))
store(p0, 40, extract(load(w, n0), 63))"""
    run(body, out, n0=1)
    np.testing.assert_array_equal(out[:4], [1, 2, 3, 4])
    np.testing.assert_array_equal(out[4:19], [k + j for k in range(5) for j in range(3)])
    np.testing.assert_array_equal(out[20:36], [1] * 5 + [0] * 11)
    assert out[40] == 7


def test_streamed_lines_and_argument_blocks() -> None:
    raw = np.zeros(64 + 16, np.float32)
    start = (-raw.ctypes.data % 64) // 4
    x = raw[start : start + 64]
    half = np.zeros(160, np.float16)
    block = np.array([x.ctypes.data, half.ctypes.data], np.int64)
    body = """x = ptr_at(p0, 0, "f32")
h = ptr_at(p0, 1, "f16")
store_line_stream(x, 16, splat(f32(3), 16))
store_line(h, 5, splat(f32(2.5), 16))"""
    run(body, block)
    np.testing.assert_array_equal(x, [0] * 16 + [3] * 16 + [0] * 32)
    np.testing.assert_array_equal(half[5:21], 2.5)
