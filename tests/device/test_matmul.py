"""`K.matmul` on the GPU against float64, for every dtype, stride and size that the CPU takes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
import cubepy.kernels as K
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.matmul.gpu import mma_split_k
from cubepy.kernels.matmul.sm90.persistent import SHARED_TILES, Hopper
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

GPU = Device("cuda")
BF16 = ml_dtypes.bfloat16
UNITS = {
    np.dtype(BF16): 4e-3,
    np.dtype(np.float16): 6e-4,
    np.dtype(np.float32): 2e-6,
    np.dtype(np.float64): 1e-14,
}
TF32 = 1.5e-3
SIZES = [
    (1, 1, 1),
    (5, 3, 7),
    (16, 64, 24),
    (33, 17, 65),
    (128, 64, 128),
    (200, 136, 72),
    (257, 255, 129),
]


def random(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(max(info.min, -100), min(info.max, 100), shape, endpoint=True).astype(
            dtype
        )
    return rng.standard_normal(shape).astype(dtype)


def on_gpu(a: np.ndarray) -> Any:
    """The array on the GPU, with its strides: transposed views stay transposed views."""
    if a.ndim >= 2 and a.strides[-2] == a.itemsize and a.strides[-1] != a.itemsize:
        order = (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2)
        return upload(np.ascontiguousarray(a.transpose(order)), GPU).transpose(order)
    return upload(np.ascontiguousarray(a), GPU)


def close(got: Any, want: np.ndarray, unit: float = 0.0) -> None:
    """Within `unit` (that of the dtype by default) of the reference, relative to its norm; integers
    exactly.
    """
    array = got.numpy()
    assert array.shape == want.shape
    if array.dtype.kind in "iu":
        np.testing.assert_array_equal(array, want)
        return
    unit = unit or UNITS[array.dtype]
    scale = np.linalg.norm(want.astype(np.float64)) or 1.0
    error = np.linalg.norm(array.astype(np.float64) - want) / scale
    assert error <= unit, f"{error} > {unit}"


def wide(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float64)


def operand(rows: int, columns: int, dtype: Any, flipped: bool, seed: int) -> np.ndarray:
    return (
        random((columns, rows), dtype, seed).T if flipped else random((rows, columns), dtype, seed)
    )


@pytest.mark.parametrize(
    "flips", [(False, False), (False, True), (True, False), (True, True)], ids=str
)
@pytest.mark.parametrize(
    "dtype", [BF16, np.float16, np.float32, np.float64], ids=lambda d: np.dtype(d).name
)
def test_floats_of_any_size_and_order(dtype: Any, flips: tuple[bool, bool]) -> None:
    for m, k, n in SIZES:
        a, b = operand(m, k, dtype, flips[0], 1), operand(k, n, dtype, flips[1], 2)
        close(K.matmul(on_gpu(a), on_gpu(b)), wide(a) @ wide(b))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64], ids=lambda d: np.dtype(d).name
)
def test_integers_wrap_as_on_the_cpu(dtype: Any) -> None:
    for m, k, n in SIZES:
        a, b = random((m, k), dtype, 1), random((n, k), dtype, 2)
        close(K.matmul(on_gpu(a), on_gpu(b.T)), a @ b.T)
        close(K.matmul(on_gpu(a), on_gpu(np.ascontiguousarray(b.T))), a @ b.T)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=lambda d: np.dtype(d).name)
def test_narrow_integers_give_exact_sums(dtype: Any) -> None:
    for m, k, n in [(128, 256, 128), (200, 144, 80), (33, 17, 65)]:
        a, b = random((m, k), dtype, 1), random((n, k), dtype, 2)
        close(
            K.matmul(on_gpu(a), on_gpu(b.T), dtype="i32"), a.astype(np.int32) @ b.T.astype(np.int32)
        )


def test_tf32_only_where_it_is_allowed() -> None:
    for m, k, n in [(128, 256, 128), (200, 136, 72), (33, 17, 65)]:
        a, b = random((m, k), np.float32, 1), random((n, k), np.float32, 2)
        want = wide(a) @ wide(b.T)
        close(K.matmul(on_gpu(a), on_gpu(b.T)), want)
        close(K.matmul(on_gpu(a), on_gpu(b.T), precision="tf32"), want, TF32)
    with pytest.raises(DTypeError):
        K.matmul(on_gpu(a), on_gpu(b.T), precision="bf16")


@pytest.mark.parametrize("dtype", [BF16, np.float16], ids=lambda d: np.dtype(d).name)
def test_narrow_floats_give_f32_when_asked(dtype: Any) -> None:
    a, b = random((200, 136), dtype, 1), random((136, 72), dtype, 2)
    close(K.matmul(on_gpu(a), on_gpu(b), dtype="f32"), wide(a) @ wide(b), 2e-6)


def test_mixed_dtypes_are_promoted() -> None:
    a, b = random((65, 40), BF16, 1), random((40, 33), np.float32, 2)
    close(K.matmul(on_gpu(a), on_gpu(b)), wide(a) @ wide(b))


@pytest.mark.parametrize("shapes", [((3, 70, 40), (3, 40, 50)), ((3, 70, 40), (40, 50)), ((70, 40), (3, 40, 50)),
                                    ((2, 1, 30, 64), (1, 3, 64, 48)), ((5, 1, 64), (64, 48))], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", [BF16, np.float32], ids=lambda d: np.dtype(d).name)
def test_batches_broadcast(dtype: Any, shapes: Any) -> None:
    a, b = random(shapes[0], dtype, 1), random(shapes[1], dtype, 2)
    close(K.matmul(on_gpu(a), on_gpu(b)), wide(a) @ wide(b))


def test_vectors() -> None:
    a, b, v = (
        random((70, 40), np.float32, 1),
        random((40, 50), np.float32, 2),
        random((40,), np.float32, 3),
    )
    close(K.matmul(on_gpu(a), on_gpu(v)), wide(a) @ wide(v))
    close(K.matmul(on_gpu(v), on_gpu(b)), wide(v) @ wide(b))
    close(K.matmul(on_gpu(v), on_gpu(v)), np.array(wide(v) @ wide(v)))


def test_no_depth_gives_zeros_and_the_epilogue() -> None:
    a, b, bias = (
        np.zeros((5, 0), np.float32),
        np.zeros((0, 7), np.float32),
        random((7,), np.float32, 1),
    )
    close(K.matmul(on_gpu(a), on_gpu(b)), np.zeros((5, 7)))
    close(K.matmul(on_gpu(a), on_gpu(b), bias=on_gpu(bias)), np.broadcast_to(bias, (5, 7)))


@pytest.mark.parametrize("dtype", [BF16, np.float32], ids=lambda d: np.dtype(d).name)
def test_strided_operands_and_results(dtype: Any) -> None:
    a, b = random((2, 140, 200), dtype, 1), random((2, 200, 160), dtype, 2)
    x, y = upload(a, GPU), upload(b, GPU)
    for cut_a, cut_b in [
        (np.s_[:, ::2, 8:136], np.s_[:, 8:136, 16:80]),
        (np.s_[:, 3:, 1:129:2], np.s_[:, 5:69, 3:]),
    ]:
        close(K.matmul(x[cut_a], y[cut_b]), wide(a[cut_a]) @ wide(b[cut_b]))
    out = upload(np.full((2, 140, 170), 7, dtype), GPU)
    K.matmul(x, y, out=out[:, :, 5:165])
    close(out[:, :, 5:165], wide(a) @ wide(b))
    assert (out.numpy()[:, :, :5] == 7).all() and (out.numpy()[:, :, 165:] == 7).all()


def gelu(x: np.ndarray) -> np.ndarray:
    from math import erf

    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    None: lambda x: x,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [BF16, np.float32], ids=lambda d: np.dtype(d).name)
def test_epilogues(dtype: Any, activation: Any) -> None:
    for m, k, n in [(200, 136, 72), (33, 17, 65)]:
        a, b = random((m, k), dtype, 1), random((n, k), dtype, 2).T
        bias, residual = random((n,), dtype, 3), random((m, n), dtype, 4)
        got = K.matmul(
            on_gpu(a),
            on_gpu(b),
            bias=on_gpu(bias),
            activation=activation,
            residual=on_gpu(residual),
            alpha=0.25,
        )
        want = ACTIVATIONS[activation](0.25 * (wide(a) @ wide(b)) + wide(bias)) + wide(residual)
        close(got, want, UNITS[np.dtype(dtype)] * 2)


@cb.func
def squared(x):
    """x * x"""
    return x * x


def test_own_activations() -> None:
    a, b = random((96, 64), BF16, 1), random((64, 80), BF16, 2)
    close(K.matmul(on_gpu(a), on_gpu(b), activation=squared), (wide(a) @ wide(b)) ** 2)


@pytest.mark.parametrize("routine", ["hopper", "mma", "simt"])
def test_every_routine_alone(routine: str) -> None:
    a, b = random((2, 264, 136), BF16, 1), random((2, 136, 200), BF16, 2)
    with force("matmul", routine):
        close(K.matmul(on_gpu(a), on_gpu(b)), wide(a) @ wide(b))
        close(K.matmul(on_gpu(a), on_gpu(b[:1])), wide(a) @ wide(b[:1]))


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("tile", [*SHARED_TILES], ids=lambda p: f"{p.rows}x{p.columns}")
def test_clusters_bring_parts_to_all_their_cubes(tile: Hopper, flip: bool) -> None:
    """Rings wrap around, and tiles lie over their neighbours or have nothing to do."""
    for m, k, n in [(264, 1096, 1000), (600, 3944, 520), (100, 136, 72)]:
        a, b = random((m, k), BF16, 1), operand(k, n, BF16, flip, 2)
        with force("matmul", "hopper", tile):
            close(K.matmul(on_gpu(a), on_gpu(b)), wide(a) @ wide(b))


def test_a_residual_that_is_overwritten_is_read_once() -> None:
    for m, k, n in [(264, 136, 520), (200, 2048, 392)]:
        a, b, residual = (random(s, BF16, i) for i, s in enumerate([(m, k), (k, n), (m, n)]))
        want, out = wide(a) @ wide(b) + wide(residual), on_gpu(residual)
        close(K.matmul(on_gpu(a), on_gpu(b), residual=out, out=out), want)


def test_many_tiles_and_stages() -> None:
    """More tiles than cores, more steps than stages: the ring and the turns of both consumers wrap
    around.
    """
    for m, k, n in [(1000, 1096, 3000), (4096, 200, 4096)]:
        a, b = random((m, k), BF16, 1), random((n, k), BF16, 2)
        got = K.matmul(on_gpu(a), on_gpu(b.T)).numpy()
        rows = np.r_[0:8, m // 2 : m // 2 + 8, m - 8 : m]
        want = wide(a[rows]) @ wide(b).T
        assert np.linalg.norm(got[rows].astype(np.float64) - want) <= 4e-3 * np.linalg.norm(want)
        column = wide(a) @ wide(b[n // 2])
        assert np.linalg.norm(got[:, n // 2].astype(np.float64) - column) <= 4e-3 * np.linalg.norm(
            column
        )


@pytest.mark.parametrize("flips", [(False, True), (True, False)], ids=str)
def test_pairs_of_cubes_share_a_long_depth(flips: tuple[bool, bool]) -> None:
    """Fewer tiles than half of the cores."""
    for m, k, n in [(40, 2304, 200), (72, 4096, 136), (64, 2056, 1032)]:
        a, b = operand(m, k, BF16, flips[0], 1), operand(k, n, BF16, flips[1], 2)
        bias, residual = random((n,), BF16, 3), random((m, n), BF16, 4)
        got = K.matmul(
            on_gpu(a), on_gpu(b), bias=on_gpu(bias), residual=on_gpu(residual), alpha=0.5
        )
        close(got, 0.5 * (wide(a) @ wide(b)) + wide(bias) + wide(residual))


def test_plain_f32_that_fills_the_device() -> None:
    """Tiles of the copy engine; they hang over every edge, and stages wrap around."""
    for m, k, n in [(1540, 200, 1412), (4096, 36, 520), (2048, 1032, 2052)]:
        a, b = random((m, k), np.float32, 1), random((n, k), np.float32, 2)
        bias, residual = random((n,), np.float32, 3), random((m, n), np.float32, 4)
        close(K.matmul(on_gpu(a), on_gpu(b.T)), wide(a) @ wide(b.T))
        got = K.matmul(
            on_gpu(a), on_gpu(b.T), bias=on_gpu(bias), residual=on_gpu(residual), activation="relu"
        )
        close(got, np.maximum(wide(a) @ wide(b.T) + wide(bias), 0) + wide(residual))


def test_a_packed_matrix_is_the_matrix() -> None:
    a, b = random((40, 64), np.float32, 1), random((64, 48), np.float32, 2)
    close(K.matmul(on_gpu(a), K.prepack(on_gpu(b))), wide(a) @ wide(b))


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ShapeError):
        K.matmul(
            upload(np.zeros((3, 4), np.float32), GPU), upload(np.zeros((5, 6), np.float32), GPU)
        )


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32], ids=lambda d: np.dtype(d).name)
def test_few_rows(dtype: Any) -> None:
    for m, k, n in [
        (1, 512, 40),
        (3, 4096, 264),
        (7, 136, 17),
        (8, 1000, 64),
        (16, 2056, 100),
        (13, 64, 9),
        (2, 30, 5),
    ]:
        a, b, bias = random((m, k), dtype, 1), random((n, k), dtype, 2), random((n,), dtype, 3)
        close(K.matmul(on_gpu(a), on_gpu(b.T), bias=on_gpu(bias)), wide(a) @ wide(b.T) + wide(bias))


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32], ids=str)
def test_random_sizes_of_any_alignment(dtype: Any, weight: bool) -> None:
    """Few rows, few columns, few tiles, operands that are copied first: whatever the routine is
    that takes them.
    """
    rng = np.random.default_rng()
    for turn in range(24):
        m, n, k = (int(np.exp(rng.uniform(0, np.log(high)))) for high in (1500, 1500, 5000))
        x, w = random((m, k), dtype, turn), operand(k, n, dtype, weight, turn + 1)
        precision = "tf32" if dtype == np.float32 and turn % 2 else None
        got = K.matmul(on_gpu(x), on_gpu(w), precision=precision)
        close(got, wide(x) @ wide(w), TF32 if precision else 2 * UNITS[np.dtype(dtype)])
        bias, residual = random((n,), dtype, turn + 2), random((m, n), dtype, turn + 3)
        ends = {"bias": on_gpu(bias), "residual": on_gpu(residual), "activation": "relu"}
        got = K.matmul(on_gpu(x), on_gpu(w), precision=precision, **ends)
        product = wide(x) @ wide(w)
        right = np.maximum(product + wide(bias), 0) + wide(residual)
        lost = max(1.0, float(np.linalg.norm(product) / np.linalg.norm(right)))  # of few numbers
        close(got, right, lost * (TF32 if precision else 2 * UNITS[np.dtype(dtype)]))


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("seed", range(4))
def test_planes_and_cubes_share_a_long_depth(
    seed: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random sizes, orders and batches of any alignment; also where other routines are quicker."""
    monkeypatch.setattr(mma_split_k, "MOST", (np.inf, np.inf))
    for name in ("ANYWHERE", "ALIGNED"):
        monkeypatch.setattr(mma_split_k, name, np.inf)
    monkeypatch.setattr(mma_split_k, "LONG", (0, np.inf))
    rng = np.random.default_rng(seed)
    for n in range(6):
        m, columns, k = (int(np.exp(rng.uniform(0, np.log(most)))) for most in (500, 500, 6000))
        m, columns, k, batch = max(m, 2), columns, k + 16, int(rng.integers(1, 3))
        a = random((batch, m, k), dtype, 9 * seed + n)
        b = random((batch, k, columns), dtype, 9 * seed + n + 100)
        left, right = (
            on_gpu(np.ascontiguousarray(v.swapaxes(1, 2)).swapaxes(1, 2) if flip else v)
            for v, flip in ((a, rng.random() < 0.5), (b, rng.random() < 0.5))
        )
        bias, more = random((columns,), dtype, n), random((batch, m, columns), dtype, n)
        with force("matmul", "mma_split_k"):
            got = K.matmul(left, right, precision="tf32")
            ended = K.matmul(
                left, right, bias=on_gpu(bias), residual=on_gpu(more), precision="tf32"
            )
        want = a.astype(np.float64) @ b.astype(np.float64)
        unit = TF32 if dtype is np.float32 else UNITS[np.dtype(dtype)]
        close(got, want, unit)
        close(ended, want + bias.astype(np.float64) + more.astype(np.float64), unit)


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32], ids=lambda d: np.dtype(d).name)
def test_a_small_matrix_is_held_while_rows_go_past(dtype: Any) -> None:
    """Random sizes, orders and alignments; the end of a product."""
    rng = np.random.default_rng(int(np.dtype(dtype).itemsize))
    for n in range(8):
        m, k = (
            int(rng.integers(4096, 70_000)),
            int(rng.integers(1, 128 // np.dtype(dtype).itemsize)),
        )
        columns = int(rng.integers(1, 49 if k * np.dtype(dtype).itemsize > 64 else 65))
        a, b = random((m, k), dtype, n), random((k, columns), dtype, n + 100)
        bias, more = random((columns,), dtype, n), random((m, columns), dtype, n)
        right = on_gpu(np.ascontiguousarray(b.T).T if rng.random() < 0.5 else b)
        ends = {"bias": on_gpu(bias), "residual": on_gpu(more), "activation": "relu"}
        with force("matmul", "mma_held"):
            got = K.matmul(on_gpu(a), right, precision="tf32")
            ended = K.matmul(on_gpu(a), right, precision="tf32", **ends)
        want = a.astype(np.float64) @ b.astype(np.float64)
        unit = TF32 if dtype is np.float32 else 2 * UNITS[np.dtype(dtype)]
        close(got, want, unit)
        close(ended, np.maximum(want + wide(bias), 0) + wide(more), unit)


@pytest.mark.parametrize("seed", range(24))
def test_exact_f32_of_large_and_odd_sizes(seed: int) -> None:
    """Operands across K, and of rows that begin anywhere, are copied where that is worth it."""
    rng = np.random.default_rng(seed)
    m, k, n = (int(rng.integers(300, 1800)) for _ in range(3))
    if seed % 3 == 0:
        m, k, n = (v // 4 * 4 for v in (m, k, n))
    batch = (2,) if seed % 4 == 3 else ()
    flips = rng.integers(0, 2, 2)
    a = random((*batch, k, m), np.float32, seed).swapaxes(-1, -2)
    b = random((k, n), np.float32, seed + 1)
    a = a if flips[0] else np.ascontiguousarray(a)
    b = np.asfortranarray(b) if flips[1] else b
    bias, residual = random((n,), np.float32, 3), random((*batch, m, n), np.float32, 4)
    want = wide(a) @ wide(b)
    x, y = on_gpu(a), on_gpu(b)
    close(K.matmul(x, y), want)
    close(
        K.matmul(x, y, bias=on_gpu(bias), residual=on_gpu(residual)), want + bias + residual, 3e-6
    )
