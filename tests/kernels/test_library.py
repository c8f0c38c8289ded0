"""Every library kernel against NumPy in float64: odd shapes, strides, dtypes, empty and strange
values, errors.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from tests.backends.cuda.thorough import THOROUGH
from tests.staging import DEVICES, WHERE

F = np.float32
RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=F)


def close(got: Any, want: Any, tolerance: float = 2e-6) -> None:
    got, want = np.asarray(got).astype(np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    finite = np.isfinite(want)
    scale = max(1.0, float(np.abs(want[finite]).max(initial=0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * scale)


@cb.func
def swish(x):
    return x / (1 + cb.exp(-x))


@cb.func
def mix(a, b, c):
    return a * b + c


LAYOUTS = [
    lambda x: x,
    lambda x: x.T,
    lambda x: x[::-1, ::2],
    lambda x: np.broadcast_to(x[:1], x.shape),
    lambda x: x[:, :1],
]


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_map_takes_any_strides_and_broadcasts(layout: int) -> None:
    x = LAYOUTS[layout](draw(17, 33))
    d = x.astype(np.float64)
    close(K.map(swish, x), d / (1 + np.exp(-d)))
    close(K.map(mix, x, x[:1], 2.5), d * d[:1] + 2.5)
    out = np.zeros((x.shape[1], x.shape[0]), F).T
    assert K.map(swish, x, out=out) is out
    close(out, d / (1 + np.exp(-d)))


@pytest.mark.parametrize(
    "shape", [(1,), (31,), (63,), (64,), (65,), (257,), (8193,), (5, 63), (3, 64), (4, 333)]
)
def test_map_of_long_functions_takes_rows_of_any_length(shape: tuple[int, ...]) -> None:
    x = draw(*shape, 2)[..., 0]  # apart in memory: row by row
    want = np.tanh(x.astype(np.float64))
    close(K.map(cb.tanh, x), want)
    close(K.map(cb.tanh, np.ascontiguousarray(x)), want)


def test_map_in_place_in_f16_and_on_integers() -> None:
    x = draw(1000)
    want = x * x + 1
    K.map(mix, x, x, 1.0, out=x)
    close(x, want)
    h = draw(100).astype(ml_dtypes.bfloat16)
    assert K.map(swish, h).dtype == h.dtype
    assert K.map(K.functions.add, np.arange(5), np.arange(5)).tolist() == [0, 2, 4, 6, 8]
    assert K.map(swish, np.zeros((0, 3), F)).shape == (0, 3)


@cb.func
def curve(a, b):
    return (a * b + 0.1) * a - b / 3.0


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_a_function_of_narrow_floats_is_computed_in_f32_and_rounded_once(
    device: str, dtype: Any
) -> None:
    a, b = draw(19, 37).astype(dtype), draw(19, 37).astype(dtype)
    with cb.use(device):
        for x, y in ((a, b), (a[:, :-2], b[:, 2:]), (a, b[:, :1]), (a.T, b.T)):
            want = K.map(curve, x.astype(F), y.astype(F))
            np.testing.assert_array_equal(K.map(curve, x, y), want.astype(dtype))
            np.testing.assert_array_equal(K.map(curve, x, y, dtype=F), want)


def test_copies_of_narrow_floats_keep_every_bit() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)  # every NaN is among them
    for dtype in (np.float16, ml_dtypes.bfloat16):
        np.testing.assert_array_equal(K.copy(bits.view(dtype)).view(np.uint16), bits)


def test_map_refuses_what_it_cannot_do() -> None:
    with pytest.raises(errors.KernelTypeError, match=r"@cb\.func"):
        K.map(lambda v: v, draw(3))
    with pytest.raises(errors.ShapeError, match="do not broadcast"):
        K.map(K.functions.add, draw(3), draw(4))
    with pytest.raises(errors.ShapeError, match="out has shape"):
        K.map(swish, draw(3), out=np.zeros(4, F))


AXES = [None, 0, 1, 2, -1, (0, 1), (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_over_any_axes(axis: Any, keepdims: bool) -> None:
    for x in (draw(5, 70, 37), draw(37, 5, 70).transpose(1, 2, 0), draw(3, 1, 2)):
        d = x.astype(np.float64)
        exact = d.sum(axis, keepdims=keepdims)
        spread = np.abs(d).sum(axis, keepdims=keepdims) * 1e-6
        assert np.shape(K.sum(x, axis, keepdims)) == exact.shape
        assert (np.abs(K.sum(x, axis, keepdims) - exact) <= spread).all()
        close(K.mean(x, axis, keepdims), d.mean(axis, keepdims=keepdims))
        close(K.max(x, axis, keepdims), d.max(axis, keepdims=keepdims))
        close(K.min(x, axis, keepdims), d.min(axis, keepdims=keepdims))
        small = (x * 0.1 + 1).astype(F)
        close(
            K.prod(small[:, :9], axis, keepdims),
            small[:, :9].astype(np.float64).prod(axis, keepdims=keepdims),
            1e-5,
        )
        if not isinstance(axis, tuple):
            np.testing.assert_array_equal(
                K.argmax(x, axis, keepdims), np.argmax(x, axis, keepdims=keepdims)
            )
            np.testing.assert_array_equal(
                K.argmin(x, axis, keepdims), np.argmin(x, axis, keepdims=keepdims)
            )


def test_reductions_follow_numpys_rules() -> None:
    x = np.array([[1, np.nan, 3], [5, 5, -np.inf]], F)
    np.testing.assert_array_equal(K.max(x, 1), np.max(x, 1))
    np.testing.assert_array_equal(K.min(x, 1), np.min(x, 1))
    assert K.argmax(x, 1).tolist() == [1, 0] and K.argmin(x, 1).tolist() == [1, 2]
    small = np.full(1000, 100, np.int8)
    assert K.sum(small) == 100000 and np.asarray(K.sum(small)).dtype == np.int64
    assert np.asarray(K.mean(np.arange(4))).dtype == np.float64
    assert K.sum(np.zeros((0, 3), F), 0).tolist() == [0, 0, 0] and K.prod(np.zeros(0, F)) == 1
    assert np.isnan(K.mean(np.zeros(0, F)))
    with pytest.raises(errors.ShapeError, match="empty axis"):
        K.max(np.zeros((2, 0), F), 1)
    with pytest.raises(errors.ShapeError, match="out of range"):
        K.sum(x, 2)
    assert K.sum(np.ones(70000, np.float16)) == np.inf or K.sum(np.ones(1000, np.float16)) == 1000


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = draw(64, 5000)
    with cb.config.override(serial_elements=0):
        parallel = K.sum(x), K.sum(x, 0), K.sum(x, 1)
    with cb.config.override(serial_elements=1 << 40):
        y = x.copy()[:, :5000]
        serial = K.sum(y), K.sum(y, 0), K.sum(y, 1)
    assert all(np.array_equal(a, b) for a, b in zip(parallel, serial, strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16], ids=str)
def test_softmax(dtype: Any) -> None:
    tolerance = {4: 1e-6, 8: 1e-14, 2: 5e-3}[np.dtype(dtype).itemsize]
    for shape, axis in (((7, 100), -1), ((7, 100), 0), ((2, 3, 5), 1), ((1, 1), 1), ((4, 16), -1)):
        x = (draw(*shape) * 5).astype(dtype)
        d = x.astype(np.float64)
        e = np.exp(d - d.max(axis, keepdims=True))
        close(K.softmax(x, axis), e / e.sum(axis, keepdims=True), tolerance)


def test_softmax_of_extreme_rows() -> None:
    x = np.array([[1e30, -1e30, 0], [-np.inf, 0, 0], [np.nan, 1, 1], [-np.inf] * 3], F)
    got = K.softmax(x)
    assert got[0].tolist() == [1, 0, 0] and got[1].tolist() == [0, 0.5, 0.5]
    assert np.isnan(got[2:]).all()
    y = x[:2].copy()
    assert K.softmax(y, out=y) is y and y[1].tolist() == [0, 0.5, 0.5]


def test_layer_norm() -> None:
    for shape in ((5, 384), (3, 4, 33), (1, 1)):
        x, w, b = draw(*shape) * 3 + 10, draw(shape[-1]), draw(shape[-1])
        d = x.astype(np.float64)
        normal = (d - d.mean(-1, keepdims=True)) / np.sqrt(d.var(-1, keepdims=True) + 1e-5)
        close(K.layer_norm(x, shape[-1]), normal, 2e-5)
        close(K.layer_norm(x, (shape[-1],), w, b), normal * w + b, 2e-5)
    with pytest.raises(errors.ShapeError, match="layer_norm over"):
        K.layer_norm(draw(3, 4), 5)


def test_gelu_of_f64_is_exact_to_its_last_places() -> None:
    x = np.linspace(-4, 4, 501)
    np.testing.assert_allclose(
        K.gelu(x, "none"),
        [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x],
        rtol=1e-13,
        atol=1e-15,
    )
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    np.testing.assert_allclose(K.gelu(x, "tanh"), x / (1 + np.exp(-2 * u)), rtol=1e-13)


def test_gelu() -> None:
    x = np.concatenate([draw(1000) * 3, [0, 30, -30]]).astype(F)
    d = x.astype(np.float64)
    close(K.gelu(x), 0.5 * d * (1 + np.array([math.erf(v / math.sqrt(2)) for v in d])))
    close(
        K.gelu(x, "tanh"), 0.5 * d * (1 + np.tanh(math.sqrt(2 / math.pi) * (d + 0.044715 * d**3)))
    )


def test_embedding() -> None:
    table, indices = draw(50, 33), RNG.integers(0, 50, (4, 7))
    np.testing.assert_array_equal(K.embedding(indices, table), table[indices])
    if not WHERE:  # a GPU reports it in validate mode
        with pytest.raises(errors.OutOfBoundsError, match="the index 50 is outside"):
            K.embedding(np.array([50]), table)
    with pytest.raises(errors.DTypeError, match="integer indices"):
        K.embedding(np.array([0.5]), table)


@pytest.mark.parametrize(
    "shape", [(33, 65), (1, 7), (5, 18, 33), (2, 3, 4, 5), (0, 3), (100, 200)], ids=str
)
def test_transpose_of_every_permutation(shape: tuple[int, ...]) -> None:
    for dtype in (F, np.int8, np.float64, np.float16)[: 2 if len(shape) > 3 else 4]:
        x = (draw(*shape) * 100).astype(dtype)
        for axes in itertools.permutations(range(len(shape))):
            got = K.transpose(x, axes)
            assert got.flags.c_contiguous
            np.testing.assert_array_equal(got, x.transpose(axes))


SHAPES = [
    (1, 1, 1),
    (5, 3, 2),
    (33, 70, 50),
    (1, 100, 333),
    (7, 64, 64),
    (65, 600, 130),
    (100, 1, 9),
    (3, 0, 4),
    (0, 3, 4),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matmul_of_any_shape_and_layout(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = draw(m, k), draw(k, n)
    want = a.astype(np.float64) @ b
    for left in (a, np.asfortranarray(a)):
        for right in (b, np.ascontiguousarray(b.T).T):
            close(K.matmul(left, right), want, 1e-5)
    if k and n and not WHERE:
        close(K.matmul(a, K.prepack(b)), want, 1e-5)


def test_matmul_with_batches_vectors_and_an_epilogue() -> None:
    a, b = draw(2, 3, 20, 30), draw(3, 30, 40)
    close(K.matmul(a, b), a.astype(np.float64) @ b, 1e-5)
    close(K.matmul(a[0, 0, 0], b[0]), a[0, 0, 0].astype(np.float64) @ b[0], 1e-5)
    close(K.matmul(a, b[0, :, 0]), a.astype(np.float64) @ b[0, :, 0], 1e-5)
    bias, residual = draw(40), draw(20, 40)
    product = 0.5 * (a[0, 0].astype(np.float64) @ b[0]) + bias
    close(K.matmul(a[0, 0], b[0], bias=bias, activation="relu", residual=residual, alpha=0.5),
          np.maximum(product, 0) + residual, 1e-5)  # fmt: skip
    out = np.zeros((40, 20), F).T
    close(K.matmul(a[0, 0], b[0], out=out), a[0, 0].astype(np.float64) @ b[0], 1e-5)
    with pytest.raises(errors.ShapeError, match="inner lengths are 30 and 29"):
        K.matmul(a, b[:, :29])


def test_matmul_in_other_dtypes() -> None:
    a, b = draw(20, 30), draw(30, 40)
    for dtype, tolerance in ((np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)):
        x, y = a.astype(dtype), b.astype(dtype)
        got = K.matmul(x, y)
        assert got.dtype == dtype
        close(got, x.astype(np.float64) @ y.astype(np.float64), tolerance)
    d = a.astype(np.float64)
    close(K.matmul(d, d.T), d @ d.T, 1e-14)
    i = RNG.integers(-9, 9, (5, 6))
    np.testing.assert_array_equal(K.matmul(i, i.T), i @ i.T)


def reference_attention(
    q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False
) -> np.ndarray:
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    k, v = (np.repeat(a, q.shape[1] // a.shape[1], 1) for a in (k, v))
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + mask
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(-1, keepdims=True))
        return np.nan_to_num(e / e.sum(-1, keepdims=True)) @ v


@pytest.mark.parametrize(
    ("b", "h", "g", "length", "s", "d"),
    [
        (2, 3, 3, 20, 20, 32),
        (1, 4, 2, 100, 130, 64),
        (2, 2, 1, 7, 70, 40),
        (1, 1, 1, 1, 1, 17),
        (1, 2, 2, 65, 65, 128),
    ],
)
def test_attention(b: int, h: int, g: int, length: int, s: int, d: int) -> None:
    q, k, v = draw(b, h, length, d), draw(b, g, s, d), draw(b, g, s, d)
    close(K.attention(q, k, v), reference_attention(q, k, v), 3e-6)
    close(K.attention(q, k, v, is_causal=True), reference_attention(q, k, v, causal=True), 3e-6)
    if d != 32 and not THOROUGH:
        return  # what a mask changes does not depend on the depth; see also test_attention_lines
    mask = RNG.random((b, 1, 1, s)) > 0.3
    close(K.attention(q, k, v, mask), reference_attention(q, k, v, mask), 3e-6)
    bias = draw(length, s)
    close(K.attention(q, k, v, bias), reference_attention(q, k, v, bias), 3e-6)


def test_a_query_that_may_look_at_nothing_gives_zeros() -> None:
    q = draw(1, 1, 3, 16)
    mask = np.array([[True] * 3, [False] * 3, [True] * 3])
    got = K.attention(q, q, q, mask)
    assert (got[0, 0, 1] == 0).all()
    close(got, reference_attention(q, q, q, mask), 3e-6)


def reference_pool(x: np.ndarray, k: int, s: int, p: int, d: int) -> np.ndarray:
    n, c, h, w = x.shape
    padded = np.full((n, c, h + 2 * p, w + 2 * p), -np.inf, F)
    padded[:, :, p : p + h, p : p + w] = x
    oh, ow = ((v + 2 * p - d * (k - 1) - 1) // s + 1 for v in (h, w))
    parts = [padded[:, :, u * d : u * d + (oh - 1) * s + 1 : s, v * d : v * d + (ow - 1) * s + 1 : s]
             for u in range(k) for v in range(k)]  # fmt: skip
    return np.max(parts, 0)


@pytest.mark.parametrize(
    ("k", "s", "p", "d"), [(3, 1, 1, 1), (5, 2, 2, 2), (2, 2, 0, 1), (5, 1, 2, 1), (3, 3, 1, 2)]
)
def test_max_pool2d_in_both_layouts(k: int, s: int, p: int, d: int) -> None:
    x = draw(2, 5, 40, 37)
    x[0, 0, 3, 4] = np.nan
    want = reference_pool(x, k, s, p, d)
    np.testing.assert_array_equal(K.max_pool2d(x, k, s, p, d), want)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(
        K.max_pool2d(last, k, s, p, d, layout="NHWC").transpose(0, 3, 1, 2), want
    )
    np.testing.assert_array_equal(K.max_pool2d(last.transpose(0, 3, 1, 2), k, s, p, d), want)


def test_max_pool2d_refuses_windows_that_do_not_fit() -> None:
    with pytest.raises(errors.ShapeError, match="more than half"):
        K.max_pool2d(draw(1, 1, 8, 8), 3, 1, 2)
    with pytest.raises(errors.ShapeError, match="does not fit"):
        K.max_pool2d(draw(1, 1, 2, 2), 5)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_sum_of_random_shapes_and_strides(shape: list[int], axis: int, random: Any) -> None:
    axis %= len(shape)
    x = np.arange(math.prod(shape), dtype=F).reshape(shape)
    order = list(range(len(shape)))
    random.shuffle(order)
    x = x.transpose(order)[tuple(slice(None, None, random.choice((1, -1, 2))) for _ in shape)]
    close(K.sum(x, axis), x.astype(np.float64).sum(axis))
    np.testing.assert_array_equal(K.copy(x), x)


def test_unaligned_data() -> None:
    raw = np.zeros(4 * 100 + 1, np.uint8)[1:].view(F)
    raw[:] = draw(100)
    close(K.sum(raw), raw.astype(np.float64).sum())
    close(K.map(swish, raw), raw / (1 + np.exp(-raw.astype(np.float64))))


@cb.kernel
def through_views(source: cb.View, target: cb.View, rows, columns):
    for i in range(rows):
        for j in range(0, columns, 4):
            target.write((i, j), source.read((i, j), 4))


@cb.func
def doubled(x):
    return x * 2


@pytest.mark.parametrize("device", DEVICES)
def test_views_compose(device: str) -> None:
    from cubepy.lang import views

    x, other = draw(6, 9), draw(1, 9)
    cases = [
        (views.plain(x), x),
        (views.permuted(np.ascontiguousarray(x.T), (1, 0)), x),
        (views.broadcast(other, (6, 9)), np.broadcast_to(other, (6, 9))),
        (views.broadcast(x[:, :1], (6, 9)), np.broadcast_to(x[:, :1], (6, 9))),
        (views.mapped(views.plain(x), K.functions.add, views.broadcast(other, (6, 9))), x + other),
        (views.mapped(views.permuted(np.ascontiguousarray(x.T), (1, 0)), doubled), x * 2),
    ]
    for source, want in cases:
        out = np.zeros((6, 9), F)
        through_views[1, 1](source, views.mapped(views.plain(out), doubled), 6, 9, device=device)
        close(out, want * 2)
    codes = RNG.integers(0, 16, (6, 16)).astype(np.uint8)
    scales, zeros = draw(6, 2), np.full((6, 2), 8, F)
    want = (codes.astype(F) - 8) * np.repeat(scales, 8, 1)
    packed = codes[:, ::2] | (codes[:, 1::2] << 4)
    for view in (views.dequantized(codes, scales, zeros, group=8),
                 views.dequantized(packed, scales, zeros, group=8, packed=True)):  # fmt: skip
        out = np.zeros((6, 16), F)
        through_views[1, 1](view, out, 6, 16, device=device)
        close(out, want)
