"""The library's memory-bound functions on GPU arrays against NumPy in float64: sizes, strides,
dtypes, NaN, limits.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from cubepy.kernels.primitives import functions as f
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import DeviceArray, upload
from tests.kernels.indexing.test_bounds import check_reads_and_writes

HERE = Device("cuda")
F = np.float32
RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=F)


def there(x: np.ndarray) -> DeviceArray:
    return upload(np.ascontiguousarray(x), HERE)


def close(got: Any, want: Any, tolerance: float = 2e-6) -> None:
    assert isinstance(got, DeviceArray)
    got, want = got.numpy().astype(np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    finite = np.isfinite(want)
    scale = max(1.0, float(np.abs(want[finite]).max(initial=0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)


def same(got: Any, want: Any) -> None:
    assert isinstance(got, DeviceArray)
    np.testing.assert_array_equal(got.numpy(), want)


@cb.func
def swish(x):
    return x / (1 + cb.exp(-x))


@cb.func
def mix(a, b, c):
    return a * b + c


LAYOUTS = [
    lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2], lambda x: np.broadcast_to(x[:1], x.shape), lambda x: x[:, :1],
    lambda x: x[:, 1:-1],
]  # fmt: skip


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("shape", [(17, 33), (64, 128)], ids=str)
def test_map_takes_any_strides_and_broadcasts(layout: int, shape: tuple[int, int]) -> None:
    host = draw(*shape)
    x, d = LAYOUTS[layout](there(host)), LAYOUTS[layout](host).astype(np.float64)
    close(K.map(swish, x), d / (1 + np.exp(-d)))
    close(K.map(mix, x, x[:1], there(np.full(1, 2.5, F))), d * d[:1] + 2.5)
    out = there(np.zeros(d.shape[::-1], F)).T
    assert K.map(swish, x, out=out) is out
    close(out, d / (1 + np.exp(-d)))


@pytest.mark.parametrize("n", [0, 1, 3, 4, 1023, 1024, 1025, 100_003])
def test_map_of_every_size_and_start(n: int) -> None:
    host = draw(n + 8)
    for start in range(4):
        x = there(host)[start : start + n]
        same(K.map(f.add, x, x), 2 * host[start : start + n])
        same(K.copy(x), host[start : start + n])


def test_map_in_place_in_narrow_floats_and_on_integers() -> None:
    host = draw(1000)
    x = there(host)
    K.map(mix, x, x, there(np.ones(1, F)), out=x)
    close(x, host * host + 1.0)
    for dtype, tolerance in ((ml_dtypes.bfloat16, 5e-3), (np.float16, 6e-4)):
        h = host.astype(dtype)
        d = h.astype(np.float64)
        got = K.map(swish, there(h))
        assert got.dtype == h.dtype
        close(got, d / (1 + np.exp(-d)), tolerance)
    same(K.map(f.add, there(np.arange(5)), there(np.arange(5))), [0, 2, 4, 6, 8])
    assert K.map(swish, there(np.zeros((0, 3), F))).shape == (0, 3)


def test_map_over_four_axes() -> None:
    x, b = draw(3, 4, 5, 37), draw(3, 1, 5, 1)
    same(K.map(f.add, there(x), there(b)), x + b)
    same(
        K.map(f.add, there(x).transpose(2, 0, 3, 1), there(b).transpose(2, 0, 3, 1)),
        (x + b).transpose(2, 0, 3, 1),
    )


AXES = [None, 0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_reductions_over_any_axes(axis: Any) -> None:
    base = draw(37, 5, 70)
    cases = [(there(base), base), (there(base).transpose(1, 2, 0), base.transpose(1, 2, 0))]
    one = draw(3, 1, 2)
    for (x, host), keep in itertools.product([*cases, (there(one), one)], (False, True)):
        d = host.astype(np.float64)
        spread = float(np.max(np.abs(d).sum(axis))) * 1e-6
        assert (
            float(np.max(np.abs(K.sum(x, axis, keep).numpy() - d.sum(axis, keepdims=keep))))
            <= spread
        )
        close(K.mean(x, axis, keep), d.mean(axis, keepdims=keep))
        close(K.max(x, axis, keep), d.max(axis, keepdims=keep))
        close(K.min(x, axis, keep), d.min(axis, keepdims=keep))
        if not isinstance(axis, tuple):
            same(K.argmax(x, axis, keep), np.argmax(host, axis, keepdims=keep))
            same(K.argmin(x, axis, keep), np.argmin(host, axis, keepdims=keep))


@pytest.mark.parametrize(
    "shape",
    [(1, 1), (1, 1_000_003), (3, 100_001), (1000, 7), (257, 1000), (64, 4096), (4, 40_000)],
    ids=str,
)
def test_reductions_of_rows_and_columns_of_every_size(shape: tuple[int, int]) -> None:
    host = draw(*shape)
    x, d = there(host), host.astype(np.float64)
    for axis in (None, 0, 1):
        assert np.max(np.abs(K.sum(x, axis).numpy() - d.sum(axis))) <= 1e-6 * np.max(
            np.abs(d).sum(axis)
        )
        close(K.max(x, axis), d.max(axis))
        same(K.argmin(x, axis), host.argmin(axis))


def test_reductions_follow_numpys_rules() -> None:
    host = np.array([[1, np.nan, 3], [5, 5, -np.inf]], F)
    x = there(host)
    same(K.max(x, 1), np.max(host, 1))
    same(K.min(x, 1), np.min(host, 1))
    assert K.argmax(x, 1).tolist() == [1, 0] and K.argmin(x, 1).tolist() == [1, 2]
    small = K.sum(there(np.full(1000, 100, np.int8)))
    assert small.item() == 100_000 and small.dtype == np.int64
    same(K.sum(there(np.array([2**62, 2**62, 5], np.uint64))), np.uint64(2**63 + 5))
    assert K.mean(there(np.arange(4))).dtype == np.float64
    assert (
        K.sum(there(np.zeros((0, 3), F)), 0).tolist() == [0, 0, 0]
        and K.prod(there(np.zeros(0, F))).item() == 1
    )
    assert math.isnan(K.mean(there(np.zeros(0, F))).item())
    flags = RNG.random(3000) > 0.5
    assert K.sum(there(flags)).item() == flags.sum() and K.max(there(flags)).item() == 1
    with pytest.raises(errors.ShapeError, match="empty axis"):
        K.max(there(np.zeros((2, 0), F)), 1)


def test_the_first_of_equals_and_the_first_nan_win_wherever_they_are() -> None:
    host = np.zeros((5, 30_000), F)
    host[0, [777, 20_001]] = 1
    host[1, 29_999] = 1
    host[2, [123, 7_000]] = np.nan
    host[3, 5] = 9
    host[3, [6, 25_000]] = np.nan
    same(K.argmax(there(host), 1), host.argmax(1))
    same(K.argmax(there(host.T), 0), host.T.argmax(0))
    for row in host:
        same(K.argmax(there(row)), row.argmax())
        same(K.argmin(there(-row)), (-row).argmin())


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16], ids=str)
def test_reductions_of_other_floats(dtype: Any) -> None:
    host = draw(300, 520).astype(dtype)
    x, d = there(host), host.astype(np.float64)
    tolerance = {8: 1e-14, 2: 6e-3}[np.dtype(dtype).itemsize]
    for axis in (0, 1):
        close(K.sum(x, axis), d.sum(axis), tolerance)
        close(K.max(x, axis), d.max(axis), 0)
        same(K.argmax(x, axis), d.argmax(axis))


def test_sums_are_the_same_every_time() -> None:
    x = there(draw(3, 1_000_000))
    for axis in (None, 0, 1):
        assert len({K.sum(x, axis).numpy().tobytes() for _ in range(5)}) == 1


ROWS = [
    (7, 100),
    (1, 1),
    (4, 16),
    (33, 1024),
    (3, 4100),
    (2, 8192),
    (300, 12_000),
    (5, 16384),
    (3, 20_001),
    (2, 70_000),
]


@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_softmax_and_layer_norm_of_rows_of_every_length(shape: tuple[int, int]) -> None:
    host, w, b = draw(*shape) * 3 + 1, draw(shape[1]), draw(shape[1])
    x, d = there(host), host.astype(np.float64)
    e = np.exp(d - d.max(1, keepdims=True))
    close(K.softmax(x), e / e.sum(1, keepdims=True), 1e-6)
    normal = (d - d.mean(-1, keepdims=True)) / np.sqrt(d.var(-1, keepdims=True) + 1e-5)
    close(K.layer_norm(x, shape[-1]), normal, 5e-6)
    close(K.layer_norm(x, (shape[-1],), there(w), there(b)), normal * w + b, 5e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16], ids=str)
def test_softmax_of_other_floats_and_axes(dtype: Any) -> None:
    tolerance = {8: 1e-14, 2: 5e-3}[np.dtype(dtype).itemsize]
    for shape, axis in (
        ((7, 104), -1),
        ((7, 100), 0),
        ((2, 3, 5), 1),
        ((3, 4096), 1),
        ((2, 24_000), 1),
    ):
        host = (draw(*shape) * 5).astype(dtype)
        d = host.astype(np.float64)
        e = np.exp(d - d.max(axis, keepdims=True))
        close(K.softmax(there(host), axis), e / e.sum(axis, keepdims=True), tolerance)


@pytest.mark.parametrize("n", [3, 20_000, 70_000])
def test_softmax_of_extreme_rows(n: int) -> None:
    host = np.full((4, n), -np.inf, F)
    host[:, :3] = [[1e30, -1e30, 0], [-np.inf, 0, 0], [np.nan, 1, 1], [-np.inf] * 3]
    got = K.softmax(there(host)).numpy()
    assert got[0, :3].tolist() == [1, 0, 0] and got[1, :3].tolist() == [0, 0.5, 0.5]
    assert np.isnan(got[2:]).all()
    y = there(host[:2])
    assert K.softmax(y, out=y) is y and y.numpy()[1, :3].tolist() == [0, 0.5, 0.5]


def test_gelu() -> None:
    host = np.concatenate([draw(1000) * 3, [0, 30, -30]]).astype(F)
    d = host.astype(np.float64)
    close(K.gelu(there(host)), 0.5 * d * (1 + np.array([math.erf(v / math.sqrt(2)) for v in d])))
    close(
        K.gelu(there(host), "tanh"),
        0.5 * d * (1 + np.tanh(math.sqrt(2 / math.pi) * (d + 0.044715 * d**3))),
    )


TURNED = [
    *itertools.product([(33, 65), (1, 7), (5, 18, 33), (2, 3, 4, 5), (0, 3), (100, 200)], [F]),
    *itertools.product([(257, 129), (3, 40, 72), (200, 136)], [np.float16]),
    *itertools.product([(33, 65), (5, 18, 33)], [np.int8, np.float64, np.bool_]),
]


@pytest.mark.parametrize(("shape", "dtype"), TURNED, ids=str)
def test_transpose_of_every_permutation(shape: tuple[int, ...], dtype: Any) -> None:
    host = (draw(*shape) * 100).astype(dtype)
    x = there(host)
    for axes in itertools.permutations(range(len(shape))):
        got = K.transpose(x, axes)
        assert got.flags.c_contiguous
        same(got, host.transpose(axes))


def test_embedding() -> None:
    table, indices = draw(50, 33), RNG.integers(0, 50, (4, 7))
    same(K.embedding(there(indices), there(table)), table[indices])
    wide = draw(50, 3000)
    same(K.embedding(there(indices.astype(np.int32)), there(wide)), wide[indices])
    same(
        K.embedding(there(np.array([50, -1, 3])), there(table)),
        np.stack([0 * table[0], 0 * table[0], table[3]]),
    )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_max_pool(layout: str) -> None:
    host = draw(2, 9, 11, 6)
    x = there(host)
    for kernel, stride, padding, dilation in (
        (3, 2, 1, 1),
        (2, None, 0, 1),
        ((3, 1), 1, (1, 0), (2, 1)),
    ):
        with cb.use("cpu"):
            want = K.max_pool2d(host, kernel, stride, padding, dilation, layout=layout)
        same(K.max_pool2d(x, kernel, stride, padding, dilation, layout=layout), want)


def test_indices_outside_read_zero_and_write_nothing_and_are_named_in_validate_mode() -> None:
    check_reads_and_writes(HERE)
    table, index = there(draw(7, 4)), there(np.array([1, 9]))
    for call, name in (
        (lambda: K.embedding(index, table), "embedding"), (lambda: K.select(table, 0, index), "select"),
        (lambda: K.index_put(table, (index,), 1.0, "add"), "index_put"),
    ):  # fmt: skip
        for _ in range(3):
            call()
        with cb.config.override(mode="validate"):
            with pytest.raises(
                errors.OutOfBoundsError, match=f"{name}: the index 9 is outside an axis of length 7"
            ):
                call()
            with cb.capture() as graph:  # nothing can be waited for
                call()
            graph.replay()


@pytest.mark.parametrize("dtype", [F, np.float16, ml_dtypes.bfloat16], ids=str)
def test_normalisations_of_random_rows(dtype: Any) -> None:
    """Rows that units, a plane, a cube or a cluster hold, or that are read again."""
    rng = np.random.default_rng()
    unit = {2: 2e-2 if dtype == ml_dtypes.bfloat16 else 3e-3}.get(np.dtype(dtype).itemsize, 4e-6)
    for _ in range(12):
        n, m, start = (
            int(np.exp(rng.uniform(0, np.log(120_000)))),
            int(rng.integers(1, 40)),
            int(rng.integers(0, 3)),
        )
        whole, w = (rng.standard_normal(k).astype(dtype) for k in (m * n + start, n))
        x = whole[start:].reshape(m, n).astype(np.float64)
        far, weight = there(whole)[start:].reshape(m, n), there(w)
        below = x - x.max(1, keepdims=True)
        log = below - np.log(np.exp(below).sum(1, keepdims=True))
        close(K.softmax(far, 1), np.exp(log), unit)
        close(K.log_softmax(far, 1), log, unit)
        d = x - x.mean(1, keepdims=True)
        close(
            K.layer_norm(far, n, weight),
            d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * w,
            unit,
        )
        close(
            K.rms_norm(far, n, weight, 1e-5),
            x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w,
            unit,
        )
        groups, per, side = (int(rng.integers(1, high)) for high in (5, 9, 60))
        image, scale = (
            rng.standard_normal(s).astype(dtype)
            for s in ((3, groups * per, side, side), groups * per)
        )
        flat = image.astype(np.float64).reshape(3, groups, -1)
        d = flat - flat.mean(2, keepdims=True)
        right = (d / np.sqrt((d * d).mean(2, keepdims=True) + 1e-5)).reshape(image.shape)
        right = right * scale[:, None, None] + scale[:, None, None]
        close(K.group_norm(there(image), groups, there(scale), there(scale)), right, unit)
