"""Every rule of the builtins for matrix units and copies: class, rule, place and hint of the error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import errors as E
from cubepy.compiler.signature import Target
from cubepy.compiler.specialise import specialise
from cubepy.lang.dtypes import i32
from cubepy.lang.hardware import FEATURES
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.launch.arguments import flatten

X = np.zeros((64, 64), ml_dtypes.bfloat16)
MAP = cb.tensor_map(X, (64, 64))
CASES: list[tuple[Any, type[Exception], str, str, str]] = []


def breaks(error: type[Exception], rule: str, at: str, hint: str = "") -> Any:
    """Declare a kernel that must fail: the rule, the text that the caret points at, and a part of
    the hint.
    """

    def declare(fn: Any) -> Any:
        CASES.append((cb.kernel(fn), error, rule, at, hint))
        return fn

    return declare


def understood(kernel: Any, features: frozenset[str] = frozenset(FEATURES)) -> Any:
    """The program of a kernel for a GPU of 384 units a cube."""
    properties = DeviceProperties("cuda", "a GPU", 132, 32, 1024, 227 * 1024, features=features)
    target = Target("cuda", (384, 1, 1), "checked", i32, 32, 227 * 1024, properties)
    specs = tuple(
        flatten(p, v, kernel)[0] for p, v in zip(kernel.parameters, (X, MAP), strict=False)
    )
    return specialise(kernel, specs, target)


@breaks(
    E.KernelTypeError,
    "the fragment a of cb.mma must be a line of 4 u32, not line of 2 u32",
    "cb.mma",
)
def mma_lengths(x: cb.Array, m: cb.TensorMap):
    w = cb.load_matrix(cb.shared(64, cb.f16), 0, count=2)
    cb.mma(w, w, cb.splat(cb.f32(0), 4), cb.f16)


@breaks(E.DTypeError, "cb.mma does not take f64", "cb.mma", "it takes f16, bf16")
def mma_dtype(x: cb.Array, m: cb.TensorMap):
    w = cb.load_matrix(cb.shared(64, cb.f16), 0)
    cb.mma(w, w, cb.splat(cb.f32(0), 4), cb.f64)


@breaks(E.DTypeError, "cb.mma does not take i8", "cb.mma", "it takes f16")
def mma_of_a_float_and_bytes(x: cb.Array, m: cb.TensorMap):
    w = cb.load_matrix(cb.shared(64, cb.f16), 0)
    cb.mma(w, cb.slice_line(w, 0, 2), cb.splat(cb.f32(0), 4), cb.f16, cb.i8)


@breaks(
    E.KernelTypeError,
    "the source of cb.load_matrix must be shared memory, not an array argument",
    "cb.load_matrix",
)
def load_from_global(x: cb.Array, m: cb.TensorMap):
    cb.load_matrix(x, 0)


@breaks(
    E.KernelTypeError, "the count of cb.load_matrix must be one of 1, 2, 4, not 3", "cb.load_matrix"
)
def three_tiles(x: cb.Array, m: cb.TensorMap):
    cb.load_matrix(cb.shared(64, cb.f16), 0, count=3)


@breaks(E.KernelTypeError, "3 lanes of bf16 do not fill whole words of 2", "cb.pack")
def pack_odd(x: cb.Array, m: cb.TensorMap):
    cb.pack(cb.splat(cb.f32(0), 3), cb.bf16)


@breaks(
    E.KernelTypeError, "the bytes of cb.copy_async must be one of 4, 8, 16, not 2", "cb.copy_async"
)
def copy_two_bytes(x: cb.Array, m: cb.TensorMap):
    cb.copy_async(cb.shared(64, cb.bf16), 0, x, (0, 0), 2)


@breaks(E.DTypeError, "cb.copy_async copies from bf16 to f32; it does not convert", "cb.copy_async")
def copy_converts(x: cb.Array, m: cb.TensorMap):
    cb.copy_async(cb.shared(64, cb.f32), 0, x, (0, 0), 16)


@breaks(
    E.KernelTypeError,
    "cb.barrier_wait works on barriers, not on the array",
    "cb.barrier_wait",
    "cb.barrier(count",
)
def wait_for_memory(x: cb.Array, m: cb.TensorMap):
    cb.barrier_wait(cb.shared(4, cb.u64), 0, 0)


@breaks(E.KernelTypeError, "cb.tma_load needs 2 coordinates for the map 'm', not 1", "cb.tma_load")
def one_coordinate(x: cb.Array, m: cb.TensorMap):
    cb.tma_load(cb.shared((64, 64), cb.bf16), 0, m, (0,), cb.barrier(1, 1), 0)


@breaks(
    E.KernelTypeError,
    "the box (64, 64) of the map 'm' has more elements than the shared memory (64, 32)",
    "cb.tma",
)
def small_tile(x: cb.Array, m: cb.TensorMap):
    cb.tma_load(cb.shared((64, 32), cb.bf16), 0, m, (0, 0), cb.barrier(1, 1), 0)


@breaks(
    E.KernelTypeError,
    "the innermost coordinate of cb.tma_load must be a multiple of 8 bf16 (16 bytes), not 4",
    "cb.tma_load",
    "begins earlier",
)
def odd_column(x: cb.Array, m: cb.TensorMap):
    cb.tma_load(cb.shared((64, 64), cb.bf16), 0, m, (0, 4), cb.barrier(1, 1), 0)


@breaks(
    E.DTypeError,
    "cb.tma_store copies between f16 in shared memory and a map of bf16",
    "cb.tma_store",
)
def store_converts(x: cb.Array, m: cb.TensorMap):
    cb.tma_store(m, (0, 0), cb.shared((64, 64), cb.f16), 0)


@breaks(E.KernelTypeError, "the tensor map m cannot be indexed", "m[0, 0]", "cb.tma_load")
def map_index(x: cb.Array, m: cb.TensorMap):
    x[0, 0] = m[0, 0]


@breaks(E.KernelNameError, "a tensor map has no attribute 'size'", "m.size", "box")
def map_size(x: cb.Array, m: cb.TensorMap):
    x[0, 0] = m.size


@breaks(E.KernelTypeError, "the n of cb.wgmma must be one of 8, 16,", "cb.wgmma")
def odd_columns(x: cb.Array, m: cb.TensorMap):
    s = cb.shared((64, 64), cb.bf16)
    cb.wgmma(cb.local(64, cb.f32), s, 0, s, 0, 12, cb.bf16)


@breaks(
    E.KernelTypeError, "64 columns need 32 accumulators from 8 on, but there are 32", "cb.wgmma"
)
def few_accumulators(x: cb.Array, m: cb.TensorMap):
    s = cb.shared((64, 64), cb.bf16)
    cb.wgmma(cb.local(32, cb.f32), s, 0, s, 0, 64, cb.bf16, start=8)


@breaks(E.DTypeError, "the accumulator of cb.wgmma must hold i32, not f32", "cb.wgmma")
def float_sums_of_ints(x: cb.Array, m: cb.TensorMap):
    s = cb.shared((64, 64), cb.i8)
    cb.wgmma(cb.local(32, cb.f32), s, 0, s, 0, 64, cb.i8)


@breaks(
    E.DTypeError,
    "the operand b of cb.wgmma of i8 cannot be transposed",
    "cb.wgmma",
    "the depth innermost",
)
def transposed_bytes(x: cb.Array, m: cb.TensorMap):
    s = cb.shared((64, 64), cb.i8)
    cb.wgmma(cb.local(32, cb.i32), s, 0, s, 0, 64, cb.i8, transpose_b=True)


@breaks(
    E.KernelTypeError,
    "in tiles of 128 bytes: its lead must be given",
    "cb.wgmma",
    "from one tile to the next",
)
def wide_transposed(x: cb.Array, m: cb.TensorMap):
    s = cb.shared((2, 64, 64), cb.bf16)
    cb.wgmma(cb.local(64, cb.f32), s, 0, s, 0, 128, cb.bf16, transpose_b=True)


@breaks(E.KernelTypeError, "is not swizzled, so its lead and stride must be given", "cb.wgmma")
def plain_operand(x: cb.Array, m: cb.TensorMap):
    s = cb.shared((64, 64), cb.bf16)
    cb.wgmma(cb.local(64, cb.f32), s, 0, s, 0, 128, cb.bf16, swizzle=0)


@breaks(E.ComptimeError, "cb.wgmma_wait needs a comptime number of groups first", "cb.wgmma_wait")
def runtime_wait(x: cb.Array, m: cb.TensorMap):
    cb.wgmma_wait(cb.UNIT_POS)


@breaks(E.KernelTypeError, "the registers must be one of 24 to 256, not 100", "cb.set_registers")
def odd_registers(x: cb.Array, m: cb.TensorMap):
    cb.set_registers(100, grow=True)


@breaks(
    E.KernelTypeError,
    "cb.sync_group needs whole planes of the cube, not 48 units of 384",
    "cb.sync_group",
)
def half_a_plane(x: cb.Array, m: cb.TensorMap):
    cb.sync_group(1, 48)


@breaks(E.DTypeError, "cb.add_line adds to f32, not to bf16", "cb.add_line")
def add_narrow(x: cb.Array, m: cb.TensorMap):
    cb.add_line(x, 0, cb.splat(cb.f32(1), 4))


@breaks(E.KernelTypeError, "the cubes of cb.resident must be one of 1 to 32, not 0", "cb.resident")
def no_cubes(x: cb.Array, m: cb.TensorMap):
    cb.resident(0)


@breaks(E.KernelTypeError, "a cluster has at most 16 cubes, not 32", "cb.cluster")
def wide_cluster(x: cb.Array, m: cb.TensorMap):
    cb.cluster(8, 4)


@breaks(E.KernelTypeError, "the cubes are in clusters of (2, 1, 1) already", "cb.cluster(4)")
def two_clusters(x: cb.Array, m: cb.TensorMap):
    cb.cluster(2)
    cb.cluster(4)


@breaks(
    E.BarrierError,
    "cb.wgmma must be reached by all 128 units of four planes or by none",
    "cb.wgmma(",
    "UNIT_POS //",
)
def split_group(x: cb.Array, m: cb.TensorMap):
    s = cb.shared((64, 64), cb.bf16)
    acc = cb.local(32, cb.f32)
    if cb.UNIT_POS < 64:
        cb.wgmma(acc, s, 0, s, 0, 64, cb.bf16)


@breaks(
    E.BarrierError,
    "the place of an operand of cb.wgmma must be the same in all 128 units",
    "cb.wgmma(",
)
def split_place(x: cb.Array, m: cb.TensorMap):
    s = cb.shared((64, 64), cb.bf16)
    cb.wgmma(cb.local(32, cb.f32), s, cb.UNIT_POS // 32 * 8, s, 0, 64, cb.bf16)


@breaks(
    E.BarrierError, "cb.load_matrix must be reached by all 32 units of a plane", "cb.load_matrix"
)
def split_plane(x: cb.Array, m: cb.TensorMap):
    s = cb.shared(64, cb.f16)
    for k in range(cb.UNIT_POS_PLANE):
        cb.load_matrix(s, 0)


@breaks(E.DTypeError, "cb.load_cluster reads 32 or 64 bits, not f16", "cb.load_cluster")
def narrow_load(x: cb.Array, m: cb.TensorMap):
    cb.cluster(2)
    cb.load_cluster(cb.shared(64, cb.f16), 0, 1)


@breaks(E.DTypeError, "cb.store_cluster writes 32 or 64 bits, not f16", "cb.store_cluster")
def narrow_store(x: cb.Array, m: cb.TensorMap):
    cb.cluster(2)
    cb.store_cluster(cb.shared(64, cb.f16), 0, 1.0, 1)


@breaks(E.KernelTypeError, "b of cb.packed_max must be a line of 2 u32, not u32", "cb.packed_max")
def larger_of_a_line_and_a_word(x: cb.Array, m: cb.TensorMap):
    s = cb.shared(64, cb.u32)
    cb.packed_max(s.load((0,), 2), s[0], cb.bf16)


@breaks(
    E.KernelTypeError,
    "b of cb.packed_fma must be a line of 4 u32, not line of 2 u32",
    "cb.packed_fma",
)
def packed_lengths(x: cb.Array, m: cb.TensorMap):
    s = cb.shared(64, cb.u32)
    cb.packed_fma(s.load((0,), 4), s.load((0,), 2), s.load((0,), 4), cb.bf16)


@breaks(
    E.BarrierError,
    "cb.sync_cluster must be reached by all units of a cube",
    "cb.sync_cluster",
    "move it out",
)
def split_cube(x: cb.Array, m: cb.TensorMap):
    if cb.UNIT_POS < 128:
        cb.sync_cluster()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].__name__)
def test_the_rule_the_place_and_the_hint(case: tuple[Any, type[Exception], str, str, str]) -> None:
    kernel, error, rule, at, hint = case
    with pytest.raises(error) as caught:
        understood(kernel)
    assert rule in caught.value.message  # type: ignore[attr-defined]
    assert hint in caught.value.hint  # type: ignore[attr-defined]
    place = caught.value.location  # type: ignore[attr-defined]
    line = Path(place.file).read_text().splitlines()[place.line - 1]
    assert at.split("(")[0] in line


@cb.kernel
def groups_of_planes(x: cb.Array, m: cb.TensorMap):
    """Conditions that never split a plane or a group, in the ways that authors write them."""
    s = cb.shared((64, 64), cb.bf16)
    acc = cb.local(32, cb.f32)
    group = cb.UNIT_POS // 128
    t = cb.UNIT_POS
    if t == 0:  # other uses of a name do not matter
        k = x.shape[0]
        while k > 0:
            k = k - 1
    k = group * 4
    if group != 0 and cb.UNIT_POS >= 128:
        cb.wgmma(acc, s, (group - 1) * 16 + k, s, 0, 64, cb.bf16)
    if cb.UNIT_POS >> 5 < 3:
        w = cb.load_matrix(s, (cb.UNIT_POS % 32, 0))
    if cb.plane_any(x[t % 64, 0] > 0):
        cb.load_matrix(s, (cb.UNIT_POS % 32, 0))
    n = x.shape[0]
    while n > 0:
        if cb.PLANE_POS // 4 == 1:
            cb.wgmma(acc, s, n, s, 0, 64, cb.bf16)
        if n == group:
            break
        n -= 1


def test_conditions_on_planes_and_groups_are_understood() -> None:
    assert understood(groups_of_planes).has_barrier is False


def early(out: cb.Array):
    cb.wait_previous()
    out[0] = 1.0


@pytest.mark.parametrize(
    "feature", ["mma", "copy_async", "barrier", "tma", "wgmma", "cluster", "overlap", "resident"]
)
def test_a_device_without_a_feature_refuses_the_builtins(feature: str) -> None:
    kernel = cb.kernel({"mma": three_tiles, "copy_async": copy_two_bytes, "barrier": wait_for_memory,
                        "tma": store_converts, "wgmma": odd_registers, "cluster": two_clusters,
                        "overlap": early, "resident": no_cubes}[feature])  # fmt: skip
    with pytest.raises(E.FeatureError, match=f"needs the feature '{feature}'") as caught:
        understood(kernel, frozenset(FEATURES) - {feature})
    assert "device_properties().features" in caught.value.hint


def test_the_cpu_has_no_matrix_units() -> None:
    with (
        cb.use("cpu"),
        pytest.raises(E.FeatureError, match="cb.load_matrix needs the feature 'mma'"),
    ):
        cb.kernel(three_tiles)[1, 1](np.zeros(4, np.float32), MAP)


def test_strides_of_axes_of_one_element_do_not_count() -> None:
    turned = np.zeros((1, 16, 1, 1), np.float32).transpose(0, 2, 3, 1)
    assert turned.strides == (64, 4, 4, 4)
    assert cb.tensor_map(turned, (1, 1, 1, 16), swizzle=0).strides == (64, 64, 64, 4)
    column = np.zeros((8, 64), np.float32)[:, :1]
    assert cb.tensor_map(column[None], (1, 8, 4), swizzle=0).strides == (8 * 256, 256, 4)


BAD_MAPS = [
    ((np.zeros(64, np.float32), (16,)), E.ShapeError, "2 to 5 axes"),
    (
        (np.zeros((64, 64), np.float32), (16, 64)),
        E.ShapeError,
        "a row of the box [16, 64] is 256 bytes",
    ),
    ((np.zeros((64, 64), np.float32), (512, 32)), E.ShapeError, "1 to 256"),
    ((np.zeros((64, 64), np.float32), (16, 3)), E.ShapeError, "multiple of 16"),
    ((np.zeros((64, 63), np.float32), (16, 32)), E.LaunchError, "the strides"),
    ((np.zeros((64, 64), np.float32).T, (16, 32)), E.LaunchError, "the strides"),
    ((np.zeros((64, 64), np.float32), (16, 32), 48), E.LaunchError, "no swizzle of 48"),
    ((np.zeros((64, 64), bool), (16, 32)), E.DTypeError, "cannot hold bool"),
    (
        (np.zeros((64, 64), np.float16), (16, 32), 64, True),
        E.DTypeError,
        "f16 is not rounded to tf32",
    ),
    ((7, (16, 32)), E.LaunchError, "made of an array, not of int"),
]


@pytest.mark.parametrize(("args", "error", "rule"), BAD_MAPS, ids=range(len(BAD_MAPS)))
def test_maps_that_the_copy_engine_cannot_read_are_refused(
    args: tuple, error: type[Exception], rule: str
) -> None:
    with pytest.raises(error) as caught:
        cb.tensor_map(*args)
    assert rule in caught.value.message  # type: ignore[attr-defined]


def test_a_grid_is_whole_clusters() -> None:
    from cubepy.backends.cuda.native.module import check_clusters

    check_clusters((4, 2, 1), (2, 1, 1), "spread")
    with pytest.raises(E.LaunchError, match=r"spread is launched on \(5, 2, 1\) cubes") as caught:
        check_clusters((5, 2, 1), (2, 1, 1), "spread")
    assert "round the number of cubes up" in caught.value.hint


def test_a_map_parameter_takes_maps_only() -> None:
    with pytest.raises(
        E.KernelTypeError, match="'m' of three_tiles is a tensor map but is given ndarray"
    ):
        cb.kernel(three_tiles)[1, 1](X, X)
