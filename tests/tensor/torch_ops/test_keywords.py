"""Keywords and shapes that code written for PyTorch says; NumPy gives the results, in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import CubeError, DTypeError, ShapeError
from cubepy.nn import functional as F

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def drawn(rng: np.random.Generator, dtype: Any, n: int) -> np.ndarray:
    """Integers of all sizes of a dtype, its extremes among them."""
    info = np.iinfo(dtype)
    bits = rng.integers(0, info.bits, n)
    full = rng.integers(info.min, info.max, n, dtype, endpoint=True)
    some = (full >> bits.astype(dtype)).astype(dtype)
    some[:2] = info.min, info.max
    return some


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_rest_of_integers_is_exact_and_of_their_dtype(dtype: Any) -> None:
    rng = np.random.default_rng(np.dtype(dtype).num)
    a, b = drawn(rng, dtype, 200), rng.permutation(drawn(rng, dtype, 200))
    b[(b == 0) | (b == -1 if np.iinfo(dtype).min else False)] = 3
    for found, want in (
        (cb.tensor(a).fmod(cb.tensor(b)), np.fmod(a, b)),
        (cb.jit(lambda x, y: x.fmod(y))(cb.tensor(a), cb.tensor(b)), np.fmod(a, b)),
        (cb.tensor(a).clone().fmod_(7), np.fmod(a, dtype(7))),
    ):
        assert found.numpy().dtype == dtype
        np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 1.0, 2.0, 3.0, 4.0, 2.5])
def test_powers_have_the_dtype_of_other_operators(exponent: float) -> None:
    rng = np.random.default_rng(3)
    for dtype in (np.bool_, np.float32, np.float64, *INTEGERS):
        a = rng.integers(0, 2 if dtype is np.bool_ else 100, 50).astype(dtype)
        x = cb.tensor(a)
        wide = (x + exponent).numpy().dtype
        want = a.astype(wide) ** wide.type(exponent)
        for found in (x**exponent, x.pow(exponent), cb.jit(lambda x: x**exponent)(x)):
            assert found.numpy().dtype == wide, (dtype, exponent)
            np.testing.assert_allclose(found.numpy(), want, 1e-5)


@pytest.mark.parametrize("dtype", [np.bool_, *INTEGERS])
def test_no_method_in_place_cuts_floats_to_integers(dtype: Any) -> None:
    """As `x += 0.5` does not."""
    for name in "add sub mul div pow fmod remainder floor_divide clamp_min clip".split():
        x = cb.tensor(np.ones(3, dtype))
        with pytest.raises(DTypeError, match="keeps its dtype"):
            getattr(x, f"{name}_")(2.5)
        assert x.tolist() == [1, 1, 1]
    for name in "exp sqrt sigmoid log1p reciprocal".split():
        with pytest.raises(DTypeError, match="keeps its dtype"):
            getattr(cb.tensor(np.ones(3, dtype)), f"{name}_")()


def test_rests_of_integers_and_floats_are_floats() -> None:
    np.testing.assert_allclose(cb.tensor([-7, 7]).fmod(2.5).numpy(), np.fmod([-7.0, 7.0], 2.5))


@pytest.mark.parametrize("seed", range(6))
def test_keywords_say_what_they_say_in_torch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 7, rng.integers(1, 4)))
    a, d = rng.standard_normal(shape), int(rng.integers(len(shape)))
    x, n = cb.tensor(a), shape[d]
    e = np.exp(a - a.max(d, keepdims=True))
    soft = e / e.sum(d, keepdims=True)
    times, order = rng.integers(0, 4, n), tuple(int(i) for i in rng.permutation(len(shape)))
    where, more = rng.integers(0, n, n), rng.standard_normal(shape)
    added = a.copy()
    np.add.at(np.moveaxis(added, d, 0), where, 1.5 * np.moveaxis(more, d, 0))
    half, f32 = x.to("f16"), cb.f32
    cases: list[tuple[Any, Any]] = [
        (x.softmax(dim=d, dtype=f32), soft.astype(np.float32)),
        (F.softmax(x, dim=d, dtype=f32), soft.astype(np.float32)),
        (x.log_softmax(d, dtype=f32), np.log(soft).astype(np.float32)),
        (F.log_softmax(x, d, dtype=f32), np.log(soft).astype(np.float32)),
        (F.softmin(-x, d, dtype=f32), soft.astype(np.float32)),
        (F.softmax(half, d, dtype=f32), F.softmax(half.float(), d).numpy()),
        (x.sort(dim=d, stable=True)[0], np.sort(a, d)),
        (x.argsort(dim=d, stable=True), np.argsort(a, d, kind="stable")),
        (x.topk(1, dim=d, sorted=True)[0], a.max(d, keepdims=True)),
        (x.norm("fro"), np.sqrt((a * a).sum())),
        (x.norm(dtype=f32), np.float32(np.sqrt((a * a).sum()))),
        (x.round(decimals=2), np.round(a, 2)),
        ((x * 1000).round(decimals=-2), np.round(a * 1000, -2)),
        (x.flip(dims=(d,)), np.flip(a, d)),
        (x.permute(dims=order), a.transpose(order)),
        (x.tile(dims=(2,)), np.tile(a, 2)),
        (x.repeat_interleave(cb.tensor(times), dim=d), np.repeat(a, times, d)),
        (x.repeat_interleave(times.tolist(), d), np.repeat(a, times, d)),
        (x.index_add(d, cb.tensor(where), cb.tensor(more), alpha=1.5), added),
        (x.to("cpu", non_blocking=True), a),
        (x.to("cpu", f32, False, True), a.astype(np.float32)),
    ]
    for at, (found, want) in enumerate(cases):
        assert (found.shape, found.numpy().dtype) == (want.shape, want.dtype), at
        np.testing.assert_allclose(found.numpy(), want, 1e-6, 1e-6, err_msg=str(at))


def test_numbers_of_repeats_that_do_not_fit_are_refused() -> None:
    x = cb.tensor([1.0, 2.0])
    for wrong in ([1, 2, 3], [1.0, 2.0], [1, -1], [[1, 2]]):
        with pytest.raises(ShapeError, match="repeat_interleave"):
            x.repeat_interleave(wrong, 0)


def test_a_copy_is_another_tensor() -> None:
    x = cb.tensor([1.0, 2.0])
    y = x.to(x.device, copy=True)
    y += 1
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0], [2.0, 3.0])
    assert x.to(x.device) is x


CHANGES: dict[str, Any] = {
    "+=": lambda y: y.__iadd__(1),
    "item": lambda y: y.__setitem__(0, 9.0),
    "fill_": lambda y: y.fill_(7),
    "assign_": lambda y: y.assign_(y * 3),
    **{f"{n}_": lambda y, n=n: getattr(y, f"{n}_")() for n in "neg exp sigmoid sqrt".split()},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_tensor_of_a_tensor_is_another_handle(change: str) -> None:
    """So is one of a tensor on the way to a gradient, which passes through."""
    for dtype in (None, cb.f32, cb.f64):
        x = cb.tensor([1.0, 2.0])
        y = cb.tensor(x, dtype)
        CHANGES[change](y)
        assert x.tolist() == [1.0, 2.0] and y is not x and y.tolist() != [1.0, 2.0]
        w = cb.tensor([3.0, 5.0], requires_grad=True)
        made = w * 2
        again = cb.tensor(made, dtype)
        CHANGES[change](again)
        assert made.tolist() == [6.0, 10.0] and not cb.tensor(x).requires_grad
        cb.tensor(made, dtype).sum().backward()
        assert w.grad.tolist() == [2.0, 2.0]
        leaf = cb.tensor(w, dtype, requires_grad=True)
        assert leaf.is_leaf and leaf is not w and leaf.grad is None


@pytest.mark.parametrize("spec", ["", ".3f", "8.2e", "g", "<12"])
def test_one_number_is_formatted_as_a_number(spec: str) -> None:
    x = cb.tensor(2.34567, dtype=cb.f64)
    assert format(x, spec) == format(2.34567, spec)
    assert f"{cb.tensor(7):05d}" == "00007"
    assert f"{cb.tensor([1.0], device='cpu')}" == "tensor([1.])"


def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("front", [(), (3,), (2, 3), (2, 1, 3), (2, 2, 1, 3)])
def test_attention_takes_any_axes_in_front(front: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(len(front))
    q, k = (rng.standard_normal((*front, n, 4)).astype(dtype) for n in (5, 6))
    v = rng.standard_normal((*front, 6, 3 if dtype is np.float64 else 4)).astype(dtype)
    for shape in ((5, 6), (*front, 5, 6), (*(1,) * len(front), 5, 6), (*front[1:], 1, 6)):
        mask = rng.uniform(size=shape) > 0.4
        mask[..., 0] = True
        found = F.scaled_dot_product_attention(*map(cb.tensor, (q, k, v)), cb.tensor(mask))
        assert found.shape == (*front, 5, v.shape[-1])
        np.testing.assert_allclose(found.numpy(), attention(q, k, v, mask), 1e-5, 1e-5)


def test_heads_that_share_keys_may_be_announced() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 4, 5, 8)), rng.standard_normal((2, 2, 5, 8))
    found = F.scaled_dot_product_attention(*map(cb.tensor, (q, k, k)), enable_gqa=True)
    wide = np.repeat(k, 2, 1)
    np.testing.assert_allclose(found.numpy(), attention(q, wide, wide), 1e-9)


def test_attention_of_different_ranks_is_refused() -> None:
    x = cb.tensor(np.ones((2, 3), np.float32))
    with pytest.raises(CubeError):
        F.scaled_dot_product_attention(x, x[None], x)
