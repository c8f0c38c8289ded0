"""`cubepy.tensor` as an array API namespace, beside NumPy's: shapes, dtypes and values of random
calls, with empty arrays and arrays of rank 0.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
import cubepy.tensor as xp
from cubepy.errors import ArgumentError, DTypeError, ShapeError
from tests.tensor.finite import check_gradients

pytestmark = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="this NumPy is no array API namespace"
)

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
SHAPES = [(), (1,), (5,), (0,), (2, 3), (2, 0), (1, 3), (4, 1, 3), (2, 4, 3)]
SETTINGS = settings(max_examples=60, deadline=None)


def drawn(draw: Any, dtypes: tuple[str, ...], shape: Any, low: float = -4, high: float = 4) -> Any:
    name = draw(st.sampled_from(dtypes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if name == "bool":
        return rng.uniform(size=shape) > 0.5
    if name.startswith("uint"):
        low = max(low, 0)
    return np.asarray(rng.uniform(low, high, shape)).astype(name)


def same(got: Any, want: Any, exact: bool = True) -> None:
    want = np.asarray(want)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert got.dtype.numpy == want.dtype, (got.dtype, want.dtype)
    if exact or want.dtype.kind != "f":
        assert np.array_equal(got.numpy(), want, equal_nan=want.dtype.kind == "f")
    else:
        limit = 2e-6 if want.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(got.numpy(), want, rtol=limit, atol=limit)


OF_FLOATS = (
    "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal signbit "
    "sin sinh sqrt tan tanh isnan isinf isfinite"
).split()
OF_NUMBERS = "abs ceil floor negative positive round sign square trunc".split()


@SETTINGS
@given(st.data(), st.sampled_from(OF_FLOATS + OF_NUMBERS))
def test_functions_of_one(data: Any, name: str) -> None:
    dtypes = FLOATS if name in OF_FLOATS else FLOATS + INTEGERS
    x = drawn(data.draw, dtypes, data.draw(st.sampled_from(SHAPES)))
    with np.errstate(all="ignore"):
        same(getattr(xp, name)(cb.tensor(x)), getattr(np, name)(x), exact=False)


OF_TWO = {
    "add subtract multiply maximum minimum equal not_equal less less_equal greater greater_equal": (
        FLOATS,
        INTEGERS,
    ),
    "atan2 copysign hypot logaddexp nextafter divide pow floor_divide remainder": (FLOATS,),
    "bitwise_and bitwise_or bitwise_xor": (INTEGERS, ("bool",)),
    "bitwise_left_shift bitwise_right_shift": (INTEGERS,),
    "logical_and logical_or logical_xor": (("bool",),),
}


@SETTINGS
@given(st.data(), st.sampled_from([(n, k) for names, k in OF_TWO.items() for n in names.split()]))
def test_functions_of_two(data: Any, what: Any) -> None:
    name, kinds = what
    dtypes = data.draw(st.sampled_from(kinds))
    shapes = data.draw(
        st.sampled_from([((2, 3), (3,)), ((), (4,)), ((2, 1), (1, 5)), ((0, 3), (1,)), ((), ())])
    )
    a, b = (drawn(data.draw, dtypes, shape, 1 if "shift" in name else -4) for shape in shapes)
    if a.dtype.kind != b.dtype.kind and 8 in (a.itemsize, b.itemsize):
        b = b.astype(a.dtype)  # NumPy gives floats of u64 and i64
    with np.errstate(all="ignore"):
        same(getattr(xp, name)(cb.tensor(a), cb.tensor(b)), getattr(np, name)(a, b), exact=False)


@SETTINGS
@given(st.data(), st.sampled_from("sum prod mean max min any all var std argmax argmin".split()))
def test_reductions(data: Any, name: str) -> None:
    arg = name.startswith("arg")
    shape = data.draw(st.sampled_from(SHAPES))
    if name in ("max", "min") or arg:
        shape = tuple(max(n, 1) for n in shape)
    dtypes = FLOATS if name in ("mean", "var", "std") else FLOATS + INTEGERS
    x = drawn(data.draw, dtypes, shape)
    axes = st.none() | st.sampled_from(range(-x.ndim, x.ndim)) if x.ndim else st.none()
    options: dict[str, Any] = {"axis": data.draw(axes), "keepdims": data.draw(st.booleans())}
    if x.ndim > 1 and not arg and data.draw(st.booleans()):
        options["axis"] = (0, -1)
    if name in ("var", "std"):
        options["correction"] = data.draw(st.sampled_from([0, 0.5]))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(getattr(xp, name)(cb.tensor(x), **options), getattr(np, name)(x, **options), False)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "sort": lambda m, x: m.sort(x, axis=0),
    "argsort": lambda m, x: m.argsort(x, stable=True),
    "flip": lambda m, x: m.flip(x, axis=0),
    "roll": lambda m, x: m.roll(x, (1, -2), axis=(0, 1)),
    "roll_flat": lambda m, x: m.roll(x, 7),
    "tile": lambda m, x: m.tile(x, (2, 1, 2)),
    "repeat": lambda m, x: m.repeat(x, 2, axis=1),
    "expand_dims": lambda m, x: m.expand_dims(x, axis=1),
    "moveaxis": lambda m, x: m.moveaxis(x, 0, 1),
    "permute": lambda m, x: m.permute_dims(x, (1, 0)),
    "squeeze": lambda m, x: m.squeeze(x[:1], 0),
    "stack": lambda m, x: m.stack([x, x], axis=1),
    "concat": lambda m, x: m.concat([x, x[:1]], axis=0),
    "concat_flat": lambda m, x: m.concat([x, x[:1]], axis=None),
    "unstack": lambda m, x: m.unstack(x, axis=1)[1],
    "cumulative_sum": lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda m, x: m.cumulative_prod(x, axis=0),
    "diff": lambda m, x: m.diff(x, axis=0, n=2, append=x),
    "tril": lambda m, x: m.tril(x, k=1),
    "triu": lambda m, x: m.triu(x, k=-1),
    "count": lambda m, x: m.count_nonzero(x, axis=1),
    "nonzero": lambda m, x: m.nonzero(x)[1],
    "take": lambda m, x: m.take(x, m.asarray([1, 0, 1]), axis=1),
    "take_along": lambda m, x: m.take_along_axis(x, m.argsort(x, axis=1), axis=1),
    "unique": lambda m, x: m.sort(m.unique_values(x)),  # NumPy may give them in any order
    "unique_counts": lambda m, x: m.unique_counts(x).counts,
    "unique_inverse": lambda m, x: m.unique_inverse(x).inverse_indices,
    "unique_indices": lambda m, x: m.unique_all(x).indices,
    "matmul": lambda m, x: m.matmul(x, m.matrix_transpose(x)),
    "tensordot": lambda m, x: m.tensordot(x, x, axes=((1,), (1,))),
    "tensordot_outer": lambda m, x: m.tensordot(x, x, axes=0),
    "vecdot": lambda m, x: m.vecdot(x, x, axis=-1),
    "where": lambda m, x: m.where(x > 1, x, 2),
    "clip": lambda m, x: m.clip(x, 1, 3),
    "broadcast_to": lambda m, x: m.broadcast_to(x, (2, *x.shape)),
    "zeros_like": lambda m, x: m.zeros_like(x),
    "full_like": lambda m, x: m.full_like(x, 3),
    "ones": lambda m, x: m.ones_like(x, dtype=m.int8),
    "searchsorted": lambda m, x: m.searchsorted(m.sort(x[0]), x),
    "searchsorted_right": lambda m, x: m.searchsorted(m.sort(x[0]), x, side="right"),
}


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint64"])
@pytest.mark.parametrize("name", CALLS)
def test_other_functions(name: str, dtype: str) -> None:
    for shape in ((3, 4), (1, 2), (3, 1)):
        if "take" == name and shape[1] == 1:
            continue
        if name == "unstack" and shape[1] == 1:
            continue
        x = np.random.default_rng(3).integers(0, 5, shape).astype(dtype)
        same(CALLS[name](xp, cb.tensor(x)), CALLS[name](np, x), exact=False)


def test_creation() -> None:
    for m in (xp, np):
        assert [a.shape for a in m.meshgrid(m.arange(3), m.arange(2))] == [(2, 3)] * 2
    same(xp.arange(2, 11, 3), np.arange(2, 11, 3))
    same(xp.arange(5, 0, -2, dtype=xp.int8), np.arange(5, 0, -2, np.int8))
    same(xp.arange(0.5, 3, 0.25, dtype=xp.float64), np.arange(0.5, 3, 0.25))
    for n in (0, 1, 2, 7):
        for end in (True, False):
            want = np.linspace(-1, 2, n, endpoint=end)
            same(xp.linspace(-1, 2, n, endpoint=end, dtype=xp.float64), want, exact=False)
    for k in (-9, -1, 0, 2, 9):
        same(xp.eye(3, 4, k=k, dtype=xp.float64), np.eye(3, 4, k=k))
    assert xp.zeros((2, 0)).dtype is xp.float32 and xp.full((2,), 3).dtype is xp.int64
    assert xp.full((), True).dtype is xp.bool and xp.empty((2, 3)).shape == (2, 3)
    a = np.arange(3.0)
    assert np.may_share_memory(xp.asarray(a).numpy(), a)
    assert not np.may_share_memory(xp.asarray(a, copy=True).numpy(), a)
    with pytest.raises(ValueError, match="needs a copy"):
        xp.asarray(a, dtype=xp.int8, copy=False)
    with pytest.raises(ArgumentError, match="step"):
        xp.arange(0, 3, 0)
    with pytest.raises(ShapeError, match="at least 0"):
        xp.zeros((-1,))


def test_dtypes() -> None:
    assert xp.result_type(xp.int8, xp.uint8) is xp.int16
    assert xp.result_type(cb.tensor(np.int8(1)), 3) is xp.int8
    assert xp.result_type(xp.float32, 1.5) is xp.float32
    assert xp.can_cast(xp.int8, xp.int16) and not xp.can_cast(xp.int16, xp.int8)
    assert xp.isdtype(xp.uint8, ("bool", "unsigned integer")) and not xp.isdtype(xp.bool, "numeric")
    assert xp.iinfo(xp.int16).min == -(2**15) and xp.iinfo(xp.uint64).max == 2**64 - 1
    info = xp.finfo(xp.float32)
    assert (info.bits, info.eps, info.dtype) == (32, 2.0**-23, xp.float32)
    assert xp.finfo(xp.bfloat16).eps == 2.0**-7
    with pytest.raises(DTypeError, match="finfo is of floats"):
        xp.finfo(xp.int8)
    about = xp.__array_namespace_info__()
    assert about.default_dtypes()["integral"] is xp.int64
    assert set(about.dtypes(kind="real floating")) == {"float32", "float64"}
    assert cb.current_device() in about.devices()
    assert xp.pi == math.pi and xp.newaxis is None


def test_tensors_know_their_namespace() -> None:
    x = cb.tensor([1.0, 2.0])
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match=r"2030\.12"):
        x.__array_namespace__(api_version="2030.12")
    assert x.to_device("cpu").tolist() == [1.0, 2.0] and complex(x[0]) == 1 + 0j


def test_what_the_namespace_refuses() -> None:
    x = cb.tensor(np.zeros((2, 3)))
    for call in (
        lambda: xp.take(x, [0]),
        lambda: xp.cumulative_sum(x),
        lambda: xp.squeeze(x, 0),
        lambda: xp.tensordot(x, x, axes=1),
        lambda: xp.vecdot(x, x[:, :2]),
        lambda: xp.nonzero(x[0, 0]),
        lambda: xp.searchsorted(x, x[:1]),
        lambda: xp.broadcast_arrays(x, x[:, :2]),
        lambda: xp.expand_dims(x, axis=(0, 0)),
    ):
        with pytest.raises(ShapeError):
            call()
    with pytest.raises(ArgumentError, match="indexing"):
        xp.meshgrid(x[0], indexing="yx")
    with pytest.raises(ArgumentError, match="side"):
        xp.searchsorted(x[0], x, side="middle")


def test_gradients_go_through_the_namespace() -> None:
    x = cb.tensor([[3.0, 1.0], [2.0, 5.0]], requires_grad=True)
    y = xp.take(xp.stack([xp.sort(x, axis=1), xp.clip(x, 0, 4)]), xp.asarray([1, 0]), axis=0)
    xp.sum(y * y).backward()
    assert x.grad is not None and x.grad.tolist() == [[12.0, 4.0], [8.0, 10.0]]


LENGTHS = dict(zip("abcdefghij", (2, 3, 4, 1, 5, 2, 3, 2, 4, 3), strict=True))

SUMS = [
    "ab,bc->ac",
    "ab,bc",
    "ab,ab->",
    "a,b->ab",
    "abc->cab",
    "abc->b",
    "abc,abd->acd",
    "ab->ba",
    "aab->b",
    "aa",
    "aa->a",
    "abab->ab",
    "ab,bc,ce->ae",
    "ab,ac,ae->bce",
    "abc,bce,ea,c->",
    "ab,ab,ab->ab",
    "abc,c,b->a",
    "abe,ce->abc",
]


def terms_of(subscripts: str) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    terms = subscripts.partition("->")[0].split(",")
    return [rng.uniform(-1, 1, tuple(LENGTHS[c] for c in term)) for term in terms]


@pytest.mark.parametrize("subscripts", SUMS)
def test_einsum_is_numpys(subscripts: str) -> None:
    xs = terms_of(subscripts)
    want = np.einsum(subscripts, *xs)
    got = cb.tensor.einsum(subscripts, *map(cb.tensor, xs))
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


def test_einsum_of_axes_without_letters_broadcast() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.uniform(size=(2, 1, 3, 4)), rng.uniform(size=(5, 4, 2))
    for subscripts in (
        "...ij,...jk->...ik",
        "...ij,...jk",
        "...ij,...jk->ik...",
        "...ij,...jk->...",
    ):
        want = np.einsum(subscripts, a, b)
        got = cb.tensor.einsum(subscripts, cb.tensor(a), cb.tensor(b))
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    ones = rng.uniform(size=(1, 3))
    np.testing.assert_allclose(
        cb.tensor.einsum("ij,ij->ij", cb.tensor(ones), cb.tensor(a[0, 0].T[:2, :3])).numpy(),
        np.einsum("ij,ij->ij", ones, a[0, 0].T[:2, :3]),
    )


@pytest.mark.parametrize("subscripts", ["ab,bc->ac", "abc,abd->acd", "aab->b", "ab,bc,ce->ae"])
def test_gradients_of_einsum(subscripts: str) -> None:
    check_gradients(lambda *xs: cb.tensor.einsum(subscripts, *xs), *terms_of(subscripts))


def test_what_is_no_sum_is_told() -> None:
    x = cb.tensor(np.ones((2, 3)))
    with pytest.raises(ArgumentError, match="2 terms got 1"):
        cb.tensor.einsum("ij,jk", x)
    with pytest.raises(ArgumentError, match="is not of its terms"):
        cb.tensor.einsum("ij->k", x)
    with pytest.raises(ShapeError, match="has the lengths"):
        cb.tensor.einsum("ij,ij", x, x.T)
    with pytest.raises(ShapeError, match="does not go with"):
        cb.tensor.einsum("ijk", x)


def test_no_axis_is_not_all_axes() -> None:
    x = xp.asarray([[1, 2], [3, 4]])
    assert xp.flip(x, axis=()).tolist() == [[1, 2], [3, 4]]
    assert xp.flip(x, axis=(0,)).tolist() == [[3, 4], [1, 2]]
    assert xp.flip(x).tolist() == [[4, 3], [2, 1]]


def test_numbers_of_numpy_are_numbers() -> None:
    half, two = np.float32(0.5), np.int64(2)
    assert xp.arange(0, np.float32(2), half).tolist() == [0, 0.5, 1, 1.5]
    assert xp.arange(two).dtype == cb.i64 and xp.arange(0, xp.asarray(1.0), half).dtype == cb.f32
    assert xp.full((two,), half).tolist() == [0.5, 0.5] and xp.full((1,), two).dtype == cb.i64
    assert xp.full((1,), np.True_).dtype == cb.bool_ and xp.full((1,), np.array(2.5)).item() == 2.5
    x = cb.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    one, outer = np.int8(1), (np.int64(0), np.int16(-1))
    assert x.sum(axis=one).tolist() == [6] and x.sum(axis=outer).item() == 6
    assert x.softmax(one).shape == x.cumsum(one).shape == (1, 3)
    assert xp.concat([x, x], axis=one).shape == (1, 6)
    cb.jit(lambda x: x.softmax(one).max(axis=one).sum())(x).backward()
    assert x.grad is not None


def test_what_is_no_number_is_refused() -> None:
    for wrong in (
        lambda: xp.eye(2.5),
        lambda: xp.eye(2, k=0.5),
        lambda: xp.arange("a"),
        lambda: xp.linspace(0, 1, 2.5),
        lambda: xp.linspace("a", 1, 2),
    ):
        with pytest.raises(ArgumentError, match="must be an? (int|number), not"):
            wrong()
