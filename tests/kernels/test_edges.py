"""The same questions for every function of one array: does the answer depend on how the array lies
in memory, is it right on tiny and empty arrays, on NaN and infinity, and is an output refused that
overlaps an input?
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy import kernels as K
from tests.backends.cuda.thorough import THOROUGH
from tests.staging import WHERE

Array = np.ndarray


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def rms_norm(x: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def logsumexp(x: Array) -> Array:
    top = x.max(-1, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    return np.log(np.exp(x - top[..., None]).sum(-1)) + top


SAME_SHAPE: dict[str, tuple[Callable[..., Any], Callable[[Array], Array]]] = {
    "copy": (K.copy, lambda x: x),
    "map": (lambda x, **o: K.map(K.functions.mul, x, x, **o), lambda x: x * x),
    "gelu": (K.gelu, gelu),
    "softmax": (K.softmax, softmax),
    "log_softmax": (K.log_softmax, lambda x: np.log(softmax(x))),
    "layer_norm": (lambda x, **o: K.layer_norm(x, x.shape[-1], **o), layer_norm),
    "rms_norm": (lambda x, **o: K.rms_norm(x, x.shape[-1], eps=1e-6, **o), rms_norm),
    "cumsum": (lambda x, **o: K.cumsum(x, 1, **o), lambda x: x.cumsum(1)),
    "cumprod": (lambda x, **o: K.cumprod(x, 0, **o), lambda x: x.cumprod(0)),
    "sort": (lambda x, **o: K.sort(x, **o), lambda x: np.sort(x)),
    "flip": (lambda x, **o: K.flip(x, 1, **o), lambda x: x[:, ::-1]),
}
OTHER_SHAPE: dict[str, tuple[Callable[..., Any], Callable[[Array], Array]]] = {
    "transpose": (K.transpose, lambda x: x.T),
    "sum": (K.sum, lambda x: x.sum()),
    "sum_rows": (lambda x: K.sum(x, 1), lambda x: x.sum(1)),
    "sum_columns": (lambda x: K.sum(x, 0), lambda x: x.sum(0)),
    "prod_rows": (lambda x: K.prod(x, 1), lambda x: x.prod(1)),
    "mean_columns": (lambda x: K.mean(x, 0), lambda x: x.mean(0)),
    "max_rows": (lambda x: K.max(x, 1), lambda x: x.max(1)),
    "min_columns": (lambda x: K.min(x, 0), lambda x: x.min(0)),
    "argmax_rows": (lambda x: K.argmax(x, 1), lambda x: x.argmax(1)),
    "argmin_columns": (lambda x: K.argmin(x, 0), lambda x: x.argmin(0)),
    "argsort": (K.argsort, lambda x: np.argsort(x, stable=True)),
    "var": (lambda x: K.var(x, 1), lambda x: x.var(1)),
    "norm": (lambda x: K.norm(x, 2, 0), lambda x: np.sqrt((x * x).sum(0))),
    "logsumexp": (lambda x: K.logsumexp(x, 1), logsumexp),
    "any": (lambda x: K.any(x, 1), lambda x: x.any(1)),
    "all": (lambda x: K.all(x, 0), lambda x: x.all(0)),
    "matmul": (lambda x: K.matmul(x, x.T), lambda x: x @ x.T),
    "concat": (lambda x: K.concat([x, x], 1), lambda x: np.concatenate([x, x], 1)),
    "pad": (lambda x: K.pad(x, (0, 3, 1, 2)), lambda x: np.pad(x, [(1, 2), (0, 3)])),
    "select": (lambda x: K.select(x, 0, np.array([0, 0])), lambda x: x[[0, 0]]),
    "topk": (lambda x: K.topk(x, 1)[0], lambda x: x.max(1, keepdims=True)),
}
ALL = SAME_SHAPE | OTHER_SHAPE
NEEDS_ELEMENTS = {
    "max_rows",
    "min_columns",
    "argmax_rows",
    "argmin_columns",
    "topk",
    "select",
    "mean_columns",
    "var",
    "norm",
}


def unaligned(x: Array) -> Array:
    raw = np.empty(x.nbytes + 1, np.uint8)
    out = raw[1:].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def far_apart(x: Array) -> Array:
    room = np.zeros((x.shape[0], 5, x.shape[1], 3), x.dtype)
    room[:, 2, :, 1] = x
    return room[:, 2, :, 1]


def backwards(x: Array) -> Array:
    return np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]


def columns_first(x: Array) -> Array:
    return np.asfortranarray(x)


def rows_far_apart(x: Array) -> Array:
    """Rows 3 MiB apart, more than a page and a cache."""
    room = np.zeros((max(1, x.shape[0]), 3 << 20), np.uint8)
    out = room[:, 64 : 64 + x.shape[1] * x.itemsize].view(x.dtype)[: x.shape[0]]
    out[...] = x
    return out


LAYOUTS = (unaligned, far_apart, backwards, columns_first, rows_far_apart)
DTYPES = (np.float32, np.float16, ml_dtypes.bfloat16)


def draw(shape: tuple[int, int], dtype: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same(a: Any, b: Any) -> None:
    """Equal bit for bit, NaN to NaN."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


NARROW_IN_TURN = [
    (name, dtype) for n, name in enumerate(ALL) for dtype in (np.float32, DTYPES[1 + n % 2])
]


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, d) for n in ALL for d in DTYPES] if THOROUGH else NARROW_IN_TURN,
    ids=lambda v: v if isinstance(v, str) else np.dtype(v).name,
)
def test_the_answer_does_not_depend_on_the_layout(name: str, dtype: Any) -> None:
    ours, _ = ALL[name]
    x = draw((9, 37), dtype)
    want = np.asarray(ours(x)).astype(np.float64)
    scale = max(1.0, float(np.abs(want).max()))
    for layout in LAYOUTS:
        got = ours(layout(x))
        # columns of another layout may be added in another order
        np.testing.assert_allclose(
            np.asarray(got).astype(np.float64), want, rtol=0, atol=scale * 4 * float(ml_dtypes.finfo(dtype).eps),
            err_msg=layout.__name__,
        )  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (2, 64), (3, 1025)])
@pytest.mark.parametrize("name", ALL)
def test_small_and_odd_shapes(name: str, shape: tuple[int, int]) -> None:
    ours, exact = ALL[name]
    x = draw(shape, np.float32, seed=1)
    got, want = (
        np.asarray(ours(x)).astype(np.float64),
        np.asarray(exact(x.astype(np.float64)), np.float64),
    )
    assert got.shape == want.shape
    np.testing.assert_allclose(
        got, want, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(want).max()))
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", [n for n in ALL if n not in NEEDS_ELEMENTS])
def test_empty_arrays(name: str, shape: tuple[int, int]) -> None:
    ours, exact = ALL[name]
    x = np.zeros(shape, np.float32)
    with np.errstate(all="ignore"):
        want = np.asarray(exact(x.astype(np.float64)))
    got = np.asarray(ours(x))
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


SPECIAL = np.array(
    [
        [np.nan, 1, 2, 3],
        [np.inf, 1, 2, 3],
        [-np.inf, 1, 2, -3],
        [np.inf, -np.inf, 0, 1],
        [1, -0.0, 0, np.nan],
    ],
    np.float32,
)


@pytest.mark.parametrize("name", ALL)
def test_nan_and_infinity_follow_numpy(name: str) -> None:
    ours, exact = ALL[name]
    with np.errstate(all="ignore"):
        want = np.asarray(exact(SPECIAL.astype(np.float64)), np.float64)
    np.testing.assert_allclose(
        np.asarray(ours(SPECIAL)).astype(np.float64), want, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", SAME_SHAPE)
def test_an_output_that_overlaps_the_input_is_refused_or_right(name: str) -> None:
    ours, exact = SAME_SHAPE[name]
    room = draw((8, 40), np.float32)
    x, out = room[:, :37], room[:, 3:]
    want = exact(x.astype(np.float64))
    try:
        ours(x, out=out)
    except cb.errors.AliasError:
        return
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SAME_SHAPE)
def test_outputs_of_any_layout(name: str) -> None:
    ours, _ = SAME_SHAPE[name]
    x = draw((6, 37), np.float32)
    want = ours(x)
    for layout in LAYOUTS:
        out = layout(np.full_like(x, 7))
        assert ours(x, out=out) is out
        np.testing.assert_allclose(out, want, rtol=1e-6, atol=1e-6, err_msg=layout.__name__)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(sorted(ALL)), st.integers(1, 70), st.integers(1, 70), st.integers(0, 1 << 30),
    st.sampled_from([np.float32, np.float16]),
)  # fmt: skip
def test_random_shapes_with_random_holes(name: str, m: int, n: int, seed: int, dtype: Any) -> None:
    ours, exact = ALL[name]
    x = draw((m, n), dtype, seed)
    rng = np.random.default_rng(seed)
    for value in (np.nan, np.inf, -np.inf):
        if rng.random() < 0.3:
            x[rng.integers(m), rng.integers(n)] = value
    with np.errstate(all="ignore"):
        want = np.asarray(exact(x.astype(np.float64)))
    if name in (
        "sort",
        "argsort",
        "topk",
        "argmax_rows",
        "argmin_columns",
        "any",
        "all",
        "flip",
        "concat",
        "pad",
    ):
        same(np.asarray(ours(x)).astype(np.float64), want.astype(np.float64))
        return
    got = np.asarray(ours(x)).astype(np.float64)
    finite = np.isfinite(want) & (np.abs(want) < float(np.finfo(dtype).max) / 2)
    scale = max(1.0, float(np.abs(want[finite]).max(initial=0)))
    assert (np.isnan(got) == np.isnan(want))[
        ~(np.abs(want) > float(np.finfo(dtype).max) / 2) | np.isinf(want)
    ].all()
    np.testing.assert_allclose(
        got[finite], want[finite], rtol=0, atol=scale * 8 * float(np.finfo(dtype).eps)
    )


@pytest.mark.parametrize("shape", [(1,), (15,), (16,), (8193,), (3, 1000), (7, 16)])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_large_results_pass_the_caches_and_are_the_same(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dtype: Any
) -> None:
    x = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    want = K.map(K.functions.mul, x, x)
    monkeypatch.setattr("cubepy.kernels.elementwise.problem.STREAMING_BYTES", 0)
    same(K.map(K.functions.mul, x, x), want)
    same(K.copy(x), x)
    same(K.map(K.functions.mul, x, x, out=unaligned(x)), want)
    y = x.copy()
    same(K.map(K.functions.mul, y, y, out=y), want)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_the_extremes_of_bools_are_bools(axis: int | None) -> None:
    x = np.random.default_rng(4).random((5, 41)) > 0.5
    for layout in (np.ascontiguousarray, backwards):
        for name in ("max", "min"):
            same(getattr(K, name)(layout(x), axis), getattr(np, name)(x, axis))


def test_attention_without_a_depth_is_refused() -> None:
    q, v = np.ones((1, 2, 3, 0), np.float32), np.ones((1, 2, 3, 4), np.float32)
    for ours in (K.attention, K.attention_forward):
        with pytest.raises(cb.errors.ShapeError, match="depth 1 or more"):
            ours(q, q, v)


TURN = np.arange(40)[::-1].copy()
ON_ITSELF: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "transpose": ((40, 40), K.transpose),
    "copy": ((40, 40), lambda x, **o: K.copy(x.T, **o)),
    "flip": ((40, 40), lambda x, **o: K.flip(x, 1, **o)),
    "concat": ((40, 40), lambda x, **o: K.concat([x[20:], x[:20]], **o)),
    "pad": ((40, 40), lambda x, **o: K.pad(x, (-3, 3), **o)),
    "gather": ((40,), lambda x, **o: K.gather(x, 0, TURN, **o)),
    "select": ((40, 40), lambda x, **o: K.select(x, 0, TURN, **o)),
    "embedding": ((40, 40), lambda x, **o: K.embedding(TURN, x, **o)),
    "scatter": ((40,), lambda x, **o: K.scatter(x, 0, TURN, x, **o)),
    "index_put": ((40, 40), lambda x, **o: K.index_put(x, (TURN,), x, **o)),
    "matmul": ((512, 512), lambda x, **o: K.matmul(x, np.eye(512, k=1, dtype=np.float32), **o)),
    "attention": ((1, 2, 80, 16), lambda x, **o: K.attention(x, x, x, **o)),
    "max_pool2d": ((1, 2, 20, 20), lambda x, **o: K.max_pool2d(x, 3, 1, 1, **o)),
    "avg_pool2d": ((1, 2, 20, 20), lambda x, **o: K.avg_pool2d(x, 3, 1, 1, **o)),
    "conv2d": (
        (1, 4, 20, 20),
        lambda x, **o: K.conv2d(x, np.ones((4, 1, 3, 3), np.float32), None, 1, 1, 1, 4, **o),
    ),
}


@pytest.mark.parametrize("name", ON_ITSELF)
def test_an_output_that_is_the_input_is_refused_or_right(name: str) -> None:
    shape, ours = ON_ITSELF[name]
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    want = np.array(ours(x))
    for out in (np.empty_like(x), np.empty_like(x), x):  # also as a call that is known already
        try:
            ours(x, out=out)
        except cb.errors.AliasError:
            assert out is x
        else:
            np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)


def test_launches_of_the_library_name_their_bounds_mode() -> None:
    """What `CUBEPY_MODE` says is for the user's kernels: ours may rely on loads past the end, or on
    having none.
    """
    root = Path(__file__).resolve().parents[2]
    unnamed = [
        f"{path.relative_to(root)}:{call.lineno}"
        for path in (*root.glob("cubepy/kernels/*.py"), *root.glob("quant/*.py"), *root.glob("nn/*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Subscript)
        and (isinstance(call.func.slice, ast.Tuple) or ast.unparse(call.func.slice).startswith("cb.over"))
        and not any(k.arg in ("mode", None) for k in call.keywords)
    ]  # fmt: skip
    assert not unnamed


@pytest.mark.parametrize(
    "name", ["sum", "mean", "max", "prod", "var", "std", "any", "all", "logsumexp"]
)
def test_no_axes_of_an_array_in_any_order(name: str) -> None:
    x = np.asfortranarray(np.random.default_rng(3).standard_normal((3, 4, 5), np.float32))
    want = x if name == "logsumexp" else getattr(np, name)(x, axis=())
    np.testing.assert_allclose(getattr(K, name)(x, ()), want, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, -1])
def test_reductions_of_numbers_may_name_an_axis(axis: int) -> None:
    x = np.array(3, np.float32)
    for name in ("sum", "max", "any", "argmax"):
        assert getattr(K, name)(x, axis) == getattr(np, name)(x, axis)
    for name in ("sum", "softmax", "sort"):
        with pytest.raises(cb.errors.ShapeError, match="rank"):
            getattr(K, name)(x, 1 if name == "sum" else axis)


@pytest.mark.skipif(bool(WHERE), reason="copies on a GPU have no masks")
def test_masked_arrays_are_refused() -> None:
    x = np.ma.masked_array(np.ones(4, np.float32), [0, 1, 0, 1])
    for _ in range(3):
        with pytest.raises(cb.errors.ArgumentError, match="masks are not heeded"):
            K.sum(x)


@cb.func
def three_quarters(x):
    return cb.cast(0.75, cb.f16)


@cb.func
def a_tenth(x):
    return 0.1


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 33), (4, 0)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_a_function_that_gives_a_number_fills_the_result(
    shape: tuple[int, ...], dtype: str
) -> None:
    x = np.ones(shape, dtype)
    for function, want in ((three_quarters, 0.75), (a_tenth, 0.1)):
        out = np.full(shape, 9, dtype)
        K.map(function, x, out=out)
        np.testing.assert_array_equal(out, np.full(shape, want, dtype))
