"""Matrix units and asynchronous copies give the right results on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.runtime.device import as_device
from cubepy.runtime.memory.device_array import upload
from tests.backends.cuda import matrix_kernels as M
from tests.staging import gpu_missing

BF16 = ml_dtypes.bfloat16
NUMPY = {
    "f16": np.float16, "bf16": BF16, "f32": np.float32, "i8": np.int8, "u8": np.uint8,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
DTYPES = {d.name: d for d in (cb.f16, cb.bf16, cb.f32, cb.i8, cb.u8, cb.fp8_e4m3, cb.fp8_e5m2)}


@pytest.fixture(autouse=True)
def on_gpu() -> Iterator[None]:
    """Every test here launches on the first GPU."""
    reason = gpu_missing()
    if reason:
        pytest.skip(reason)
    with cb.use("cuda"):
        yield


def need(feature: str) -> None:
    if feature not in cb.device_properties_of().features:
        pytest.skip(f"the GPU lacks {feature}")


def put(x: np.ndarray) -> Any:
    """A copy on the GPU."""
    return upload(x, as_device("cuda"))


def empty(dtype: Any, *shape: int) -> Any:
    return put(np.full(shape, 77).astype(dtype))


def numbers(name: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Small numbers that the dtype holds exactly, so that sums of products are exact."""
    r = np.random.default_rng([seed, *shape])
    low, high = (0, 8) if name == "u8" else (-4, 5)
    return r.integers(low, high, shape).astype(NUMPY[name])


def as_bytes(x: np.ndarray) -> np.ndarray:
    """fp8 as the bytes that kernels copy."""
    return x.view(np.uint8) if x.dtype.name.startswith("float8") else x


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a times b transposed."""
    return a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("rows", [8, 5])
@pytest.mark.parametrize("name", NUMPY)
def test_a_plane_multiplies(name: str, rows: int) -> None:
    if name.startswith("fp8"):
        need("tma")
    each = 16 // np.dtype(NUMPY[name]).itemsize
    a, b = numbers(name, 16, 4 * each), numbers(name, 8, 4 * each, seed=1)
    whole = cb.i32 if DTYPES[name].is_int else cb.f32
    out = empty(np.int32 if DTYPES[name].is_int else np.float32, 16, 8)
    M.product_of_a_plane[1, 32](
        put(as_bytes(a)), put(as_bytes(b)), out, rows, dtype=DTYPES[name], each=each, whole=whole
    )
    b[rows:] = 0
    np.testing.assert_array_equal(out.numpy(), exact(a, b))


@pytest.mark.parametrize(("left", "right"), [("u8", "i8"), ("i8", "u8")])
def test_bytes_with_and_without_sign_multiply(left: str, right: str) -> None:
    r = np.random.default_rng(0)
    a, b = (
        r.integers(0, 256, (n, 64)).astype(np.uint8).view(NUMPY[name])
        for n, name in ((16, left), (8, right))
    )
    out = empty(np.int32, 16, 8)
    M.product_of_a_plane[1, 32](
        put(a), put(b), out, 8, dtype=DTYPES[left], each=16, whole=cb.i32, other=DTYPES[right]
    )
    np.testing.assert_array_equal(out.numpy(), exact(a, b))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_fragments_are_transposed_packed_and_stored(name: str) -> None:
    need("tma")
    a, b = numbers(name, 16, 16), numbers(name, 16, 8, seed=1)
    out = empty(NUMPY[name], 16, 8)
    M.product_transposed[1, 32](put(a), put(b), out, dtype=DTYPES[name])
    np.testing.assert_array_equal(out.numpy().astype(np.float64), exact(a, b.T))


def swizzled(tile: np.ndarray, swizzle: int) -> np.ndarray:
    """How a dense tile lies in shared memory: bits 4 to 6 of an address are combined with bits 7 to
    9.
    """
    mask = {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}[swizzle]
    flat = tile.reshape(-1).view(np.uint8)
    at = np.arange(flat.size)
    out = np.empty_like(flat)
    out[at ^ (at >> 3 & mask)] = flat
    return out.view(tile.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float16])
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_boxes_come_swizzled_and_go_back(swizzle: int, dtype: Any) -> None:
    need("tma")
    size = np.dtype(dtype).itemsize
    row = (swizzle or 64) // size
    x = np.random.default_rng(0).integers(0, 200, (40, 3 * row)).astype(dtype)
    back, raw = empty(dtype, 40, 3 * row), empty(dtype, 32 * row)
    source, target = (cb.tensor_map(m, (32, row), swizzle) for m in (put(x), back))
    M.boxes[1, 128](source, target, raw, 8, row)
    tile = x[8:40, row : 2 * row]
    np.testing.assert_array_equal(raw.numpy(), swizzled(np.ascontiguousarray(tile), swizzle))
    expected = np.full_like(x, 77)
    expected[8:40, row : 2 * row] = tile
    np.testing.assert_array_equal(back.numpy(), expected)


def test_boxes_that_begin_between_16_bytes_are_found_in_validate_mode() -> None:
    """Unchecked they are an illegal instruction, behind which nothing works on the device."""
    need("tma")
    x = put(np.arange(40 * 24, dtype=np.float32).reshape(40, 24))
    back, raw = empty(np.float32, 40, 24), empty(np.float32, 16 * 16)
    source, target = (cb.tensor_map(m, (16, 16), 0) for m in (x, back))
    with pytest.raises(cb.errors.KernelAssertionError, match=r"must be a multiple of 4 f32"):
        M.boxes[1, 64](source, target, raw, 8, 3, mode="validate")
        cb.sync()
    M.boxes[1, 64](source, target, raw, 8, 4)
    np.testing.assert_array_equal(back.numpy()[8:24, 4:20], x.numpy()[8:24, 4:20])


def test_boxes_over_the_edge_are_zero_there_and_are_not_stored() -> None:
    need("tma")
    x = np.arange(40 * 24, dtype=np.float32).reshape(40, 24)
    back, raw = empty(np.float32, 40, 24), empty(np.float32, 16 * 16)
    source, target = (cb.tensor_map(m, (16, 16), 0) for m in (put(x), back))
    M.boxes[1, 64](source, target, raw, 32, 16)
    tile = np.zeros((16, 16), np.float32)
    tile[:8, :8] = x[32:, 16:]
    np.testing.assert_array_equal(raw.numpy(), tile.ravel())
    expected = np.full_like(x, 77)
    expected[32:, 16:] = x[32:, 16:]
    np.testing.assert_array_equal(back.numpy(), expected)


def test_maps_follow_strides_and_rank() -> None:
    need("tma")
    whole = np.random.default_rng(0).standard_normal((6, 20, 64)).astype(np.float32)
    x, out = put(whole)[:, 4:, :32], put(whole)
    M.volume[1, 64](cb.tensor_map(x, (2, 4, 32)), cb.tensor_map(out, (2, 4, 32)), 2, 8, 0)
    expected = whole.copy()
    expected[2:4, 8:12, :32] = 2 * whole[2:4, 12:16, :32]
    np.testing.assert_array_equal(out.numpy(), expected)


def test_a_cluster_shares_a_box_and_a_barrier() -> None:
    need("cluster")
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    out = empty(np.float32, 8, 512)
    M.spread[8, 64](cb.tensor_map(put(x), (16, 32), 0), out)
    expected = np.repeat(x.reshape(4, 1, 512) * 2, 2, 1) + np.array([0, 1], np.float32)[:, None]
    np.testing.assert_array_equal(out.numpy(), expected.reshape(8, 512))


@pytest.mark.parametrize("captured", [False, True])
def test_launches_overlap_and_see_what_came_before(captured: bool) -> None:
    need("overlap")
    rng = np.random.default_rng(2)
    order = rng.permutation(128)
    weight, start = (
        put(np.eye(128, dtype=np.float32)[order]),
        rng.standard_normal(128).astype(np.float32),
    )
    here, there = put(start), empty(np.float32, 128)

    def turns() -> None:
        for _ in range(50):
            M.early_layer[128, 32](here, weight, there)
            M.early_layer[128, 32](there, weight, here)

    if captured:
        with cb.capture() as graph:
            turns()
        graph.replay()
        graph.replay()
    else:
        turns()
        turns()
    expected = start
    for _ in range(200):
        expected = expected[order]
    np.testing.assert_array_equal(here.numpy(), expected)


def test_planes_hand_over_and_cubes_add_lines() -> None:
    need("tma")
    x, out = numbers("f32", 128), numbers("f32", 128, seed=1)
    total = put(out)
    M.handed_over[7, 64](put(x), total)
    np.testing.assert_array_equal(total.numpy(), out + 7 * x)


@pytest.mark.parametrize("n", [8, 24, 64, 104, 256])
@pytest.mark.parametrize("name", NUMPY)
def test_a_group_multiplies(name: str, n: int) -> None:
    need("wgmma")
    if DTYPES[name].is_int and n == 104:
        n = 112
    deep = 128 // np.dtype(NUMPY[name]).itemsize
    a, b = numbers(name, 64, deep), numbers(name, n, deep, seed=1)
    group(name, a, b, 128)


@pytest.mark.parametrize("swizzle", [32, 64])
@pytest.mark.parametrize("name", ["bf16", "i8", "f32"])
def test_a_group_reads_narrower_swizzles(name: str, swizzle: int) -> None:
    need("wgmma")
    deep = swizzle // np.dtype(NUMPY[name]).itemsize
    group(name, numbers(name, 64, deep), numbers(name, 48, deep, seed=1), swizzle)


def group(name: str, a: np.ndarray, b: np.ndarray, swizzle: int) -> None:
    whole = cb.i32 if DTYPES[name].is_int else cb.f32
    out = empty(np.int32 if DTYPES[name].is_int else np.float32, 64, len(b))
    x, y = (cb.tensor_map(put(as_bytes(m)), m.shape, swizzle) for m in (a, b))
    M.product_of_a_group[1, 128](x, y, out, dtype=DTYPES[name], whole=whole, bytes_deep=32)
    np.testing.assert_array_equal(out.numpy(), exact(a, b))


@pytest.mark.parametrize("flip_a", [False, True])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_a_group_reads_transposed_operands(name: str, flip_a: bool) -> None:
    need("wgmma")
    a, b = numbers(name, 64, 64), numbers(name, 64, 128, seed=1)
    out = empty(np.float32, 64, 128)
    x, y = cb.tensor_map(put(a), (64, 64)), cb.tensor_map(put(b), (64, 64))
    M.product_flipped[1, 128](x, y, out, dtype=DTYPES[name], flip_a=flip_a)
    np.testing.assert_array_equal(out.numpy(), exact(a.T if flip_a else a, b.T))


def test_a_group_reads_operands_without_a_swizzle() -> None:
    need("wgmma")
    a, b = numbers("bf16", 64, 64), numbers("bf16", 64, 64, seed=1)
    out = empty(np.float32, 64, 64)
    x, y = (cb.tensor_map(put(m), (64, 8), 0) for m in (a, b))
    M.product_plain[1, 128](x, y, out, dtype=cb.bf16)
    np.testing.assert_array_equal(out.numpy(), exact(a, b))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_a_group_multiplies_fragments(name: str) -> None:
    need("wgmma")
    a, b = numbers(name, 64, 64), numbers(name, 64, 64, seed=1)
    out = empty(np.float32, 64, 64)
    M.product_from_registers[1, 128](
        put(a), cb.tensor_map(put(b), (64, 64)), out, dtype=DTYPES[name]
    )
    np.testing.assert_array_equal(out.numpy(), 2 * exact(a, b))


@pytest.mark.parametrize(("m", "n", "k"), [(256, 128, 64), (512, 384, 1024)])
def test_producers_consumers_and_clusters_make_a_matmul(m: int, n: int, k: int) -> None:
    need("wgmma")
    a, b = numbers("bf16", m, k), numbers("bf16", n, k, seed=1)
    out = empty(np.float32, m, n)
    x, y, z = (
        cb.tensor_map(put(a), (128, 64)),
        cb.tensor_map(put(b), (64, 64)),
        cb.tensor_map(out, (64, 32), 0),
    )
    M.matmul[(n // 128, m // 128), 384](x, y, z, k)
    np.testing.assert_array_equal(out.numpy(), exact(a, b))


def test_maps_follow_new_addresses() -> None:
    """A bound launch and a launch seen before take the map that they are given."""
    need("wgmma")
    for seed in range(3):
        a, b = numbers("bf16", 64, 64, seed=seed), numbers("bf16", 64, 64, seed=seed + 9)
        group("bf16", a, b, 128)


@pytest.mark.parametrize("name", ["f4", "i4", "u4", "f8", "i8", "u8"])
def test_cubes_of_a_cluster_read_and_write_each_others_shared_memory(name: str) -> None:
    need("cluster")
    words = np.random.default_rng(0).integers(-(2**25), 2**25, 256) * 2 ** (16 * (name[1] == "8"))
    x = words.astype(name)  # 64 bits: neither half of a number is 0
    for kernel in (M.swapped, M.given):
        out = empty(x.dtype, 256)
        kernel[4, 64](put(x), out)
        np.testing.assert_array_equal(out.numpy(), 2 * x.reshape(2, 2, 64)[:, ::-1].reshape(-1))


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_pairs_are_rounded_once_and_keep_subnormal_numbers(name: str) -> None:
    need("mma")
    a, b, c = packed_numbers(name)
    out = empty(np.uint32, 128)
    M.pairs_fma[1, 64](*(put(v.view(np.uint32)) for v in (a, b, c)), out, DTYPES[name])
    right = (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(NUMPY[name])
    np.testing.assert_array_equal(out.numpy().view(np.uint16), right.view(np.uint16))


def packed_numbers(name: str) -> list[np.ndarray]:
    """256 products and sums, some of tiny factors: bits below 256 times what makes them ordinary."""
    r = np.random.default_rng(3)
    found = [r.normal(size=256).astype(NUMPY[name]) for _ in range(3)]
    found[0].view(np.uint16)[:128] = r.integers(0, 256, 128)
    found[1][:128] = 2.0**111 if name == "bf16" else 2.0**14
    found[2][:128] = np.asarray(found[2][:128], np.float32) * (
        2.0**-22 if name == "bf16" else 2.0**-10
    )
    return found
