"""Methods for code that was written for PyTorch: those that torch's samples do not show."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, CubeError, DTypeError, ShapeError
from cubepy.nn import functional as F
from tests.backends.hip.emulator.device import emulated

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((2, 3, 4)).astype(np.float32)
ROW = np.array([3.0, np.nan, -np.inf, np.inf], np.float32)
INTS, OTHERS = np.array([-7, 7, 5, 0]), np.array([2, 2, -3, 4])


def t(a: Any) -> cb.Tensor:
    return cb.tensor(np.array(a))


CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "add": (lambda: t(X).add(t(Y), alpha=2), X + 2 * Y),
    "sub": (lambda: t(X).subtract(1, alpha=3), X - 3),
    "mul": (lambda: t(X).multiply(t(Y)), X * Y),
    "div": (lambda: t(INTS).divide(t(OTHERS)), INTS / OTHERS),
    "div floor": (lambda: t(INTS).div(t(OTHERS), rounding_mode="floor"), INTS // OTHERS),
    "div trunc": (
        lambda: t(INTS).div(t(OTHERS), rounding_mode="trunc"),
        np.trunc(INTS / OTHERS).astype(np.int64),
    ),
    "div trunc of floats": (
        lambda: t(X).div(0.3, rounding_mode="trunc"),
        np.trunc(X / np.float32(0.3)),
    ),
    "greater": (lambda: t(X).greater(t(Y)), X > Y),
    "greater_equal": (lambda: t(X).greater_equal(0), X >= 0),
    "less": (lambda: t(X).less(t(Y)), X < Y),
    "less_equal": (lambda: t(X).less_equal(0), X <= 0),
    "not_equal": (lambda: t(X).not_equal(t(Y)), X != Y),
    "logical_xor": (lambda: t([0, 1, 2]).logical_xor(t([0, 0, 3])), np.array([False, True, False])),
    "moveaxis": (lambda: t(X).moveaxis(0, 1), X.T),
    "swapaxes": (lambda: t(X).swapaxes(0, -1), X.T),
    "swapdims": (lambda: t(X).swapdims(0, 1), X.T),
    "broadcast_to": (lambda: t(X[:1]).broadcast_to((3, 4)), np.broadcast_to(X[:1], (3, 4))),
    "frac": (lambda: t(X * 3).frac(), X * 3 - np.trunc(X * 3)),
    "nan_to_num": (
        lambda: t(ROW).nan_to_num(1.0, neginf=-2.0),
        np.array([3, 1, -2, np.finfo(np.float32).max], np.float32),
    ),
    "nan_to_num of integers": (lambda: t(INTS).nan_to_num(1), INTS),
    "nansum": (lambda: t(ROW[:2]).nansum(), np.float32(3)),
    "nanmean of integers": (lambda: t(INTS).nanmean(), np.float64(1.25)),
    "isclose": (
        lambda: t([1.0, np.nan, np.inf, 2.0]).isclose(
            [1.000001, np.nan, np.inf, 2.1], equal_nan=True
        ),
        np.array([True, True, True, False]),
    ),
    "isclose of integers": (lambda: t([1, 2]).isclose(t([1, 3])), np.array([True, False])),
    "logit of integers": (lambda: t([0, 1]).logit(0.25), np.log([1 / 3, 3])),
    "median of integers": (lambda: t([[3, 1], [2, 9]]).median(1)[0], np.array([1, 2])),
    "median of NaN": (lambda: t(ROW).median(), np.float32(np.nan)),
    "quantile": (lambda: t(X).quantile(0.3, 1), np.quantile(X, 0.3, 1).astype(np.float32)),
    "quantile of several": (
        lambda: t(X).quantile([0.25, 1.0], 0, True),
        np.quantile(X, [0.25, 1.0], 0, keepdims=True).astype(np.float32),
    ),
    "quantile of NaN": (lambda: t(ROW).quantile(0.5), np.float32(np.nan)),
    "quantile of all": (
        lambda: t(X).quantile(0.5, keepdim=True),
        np.quantile(X, 0.5, keepdims=True),
    ),
    "tensor_split": (lambda: t(X).tensor_split((1, 3), 1)[1], X[:, 1:3]),
    "diag": (lambda: t(INTS).diag(-1), np.diag(INTS, -1)),
    "index_fill": (lambda: t(INTS).index_fill(0, [1, 1, -1], 5), np.array([-7, 5, 5, 5])),
    "where": (lambda: t(INTS).where(t(INTS) > 0, -1), np.where(INTS > 0, INTS, -1)),
    "unfold": (lambda: t(INTS).unfold(0, 2, 2), INTS.reshape(2, 2)),
    "new_zeros": (lambda: t(X).new_zeros(2, 3), np.zeros((2, 3), np.float32)),
    "new_ones": (lambda: t(INTS).new_ones((2,)), np.ones(2, np.int64)),
    "new_full": (lambda: t(X).new_full((2,), 7, dtype=cb.i32), np.full(2, 7, np.int32)),
    "new_empty": (lambda: t(X).new_empty(2, 0), np.zeros((2, 0), np.float32)),
    "new_tensor": (lambda: t(X).new_tensor([1, 2]), np.array([1, 2], np.float32)),
    "short": (lambda: t(INTS).short(), INTS.astype(np.int16)),
    "byte": (lambda: t([1.7, 200.2]).byte(), np.array([1, 200], np.uint8)),
    "char": (lambda: t(INTS).char(), INTS.astype(np.int8)),
    "type": (lambda: t(INTS).type(cb.f64), INTS.astype(np.float64)),
}


@pytest.mark.parametrize("name", CASES)
def test_methods(name: str) -> None:
    call, want = CASES[name]
    found, want = call(), np.asarray(want)
    assert found.shape == want.shape and found.numpy().dtype == want.dtype
    np.testing.assert_allclose(found.numpy(), want, rtol=2e-6, atol=1e-6)


def test_allclose_is_a_boolean() -> None:
    assert t(X).allclose(t(X) + 1e-9) is True
    assert t(X).allclose(t(Y)) is False


def test_strides_are_of_elements() -> None:
    x = t(X)
    assert x.stride() == (4, 1) and x.T.stride() == (1, 4) and x.stride(-1) == 1
    assert x.is_contiguous() and not x.T.is_contiguous() and x.T.contiguous().is_contiguous()
    assert x[:1].T.is_contiguous() and not x[:, ::2].is_contiguous()
    assert t(1.0).stride() == () and t(np.zeros((0, 3))).is_contiguous()
    assert x.type() == "f32"


STEPS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "add_": (lambda x: x.add_(t(Y), alpha=2), X + 2 * Y),
    "sub_": (lambda x: x.sub_(t(Y[0])), X - Y[0]),
    "mul_": (lambda x: x.mul_(2), X * 2),
    "div_": (lambda x: x.div_(t(Y)), X / Y),
    "div_ trunc": (lambda x: x.div_(0.3, rounding_mode="trunc"), np.trunc(X / np.float32(0.3))),
    "clamp_": (lambda x: x.clamp_(-0.5, 0.5), X.clip(-0.5, 0.5)),
    "copy_": (lambda x: x.copy_(t(Y[0])), np.broadcast_to(Y[0], X.shape)),
    "fill_": (lambda x: x.fill_(0.1), np.full_like(X, 0.1)),
    "zero_": (lambda x: x.zero_(), np.zeros_like(X)),
}


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_methods_with_a_line_give_the_handle_another_value(name: str, program: bool) -> None:
    step, want = STEPS[name]
    x = t(X)
    run = cb.jit(step) if program else step
    for n in range(3 if program else 1):
        before = x * 1
        kept = before.numpy().copy()
        result = run(x)
        np.testing.assert_array_equal(before.numpy(), kept)
        if n == 0:
            np.testing.assert_allclose(x.numpy(), want, rtol=2e-6)
            assert program or result is x
        x.copy_(X)


def test_they_keep_dtypes_leaves_and_gradients() -> None:
    f64 = t(X.astype(np.float64)).fill_(0.1)
    assert f64.numpy()[0, 0] == 0.1 and f64.numpy().flags.writeable
    assert t(INTS).div_(t(OTHERS), rounding_mode="trunc").tolist() == [-3, 3, -1, 0]
    assert t(INTS).fill_(2.7).dtype is cb.i64
    leaf = t(X)
    leaf.requires_grad = True
    with cb.no_grad():
        leaf.mul_(2).add_(1)
    assert leaf.requires_grad and leaf.is_leaf
    y = leaf * 3
    y.mul_(leaf)
    y.sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), 6 * (X * 2 + 1), rtol=1e-6)


def test_gradients_of_any_order_go_through_programs() -> None:
    x = cb.tensor(np.abs(X.astype(np.float64)), requires_grad=True)

    def f(x: Any) -> Any:
        parts = x.unfold(1, 2, 1).rot90().diagonal().add(x.xlogy(x).sum(), alpha=0.5)
        return parts.sum() + x.quantile(0.4, 1).sum() + x.div(2).logit(0.01).frac().sum()

    want = cb.grad(f)(x).numpy()
    for _ in range(3):
        np.testing.assert_allclose(cb.jit(cb.grad(f))(x).numpy(), want, rtol=1e-9)
    cb.testing.gradgradcheck(lambda x: x.xlogy(x).sum() + x.mul(x).median(1)[0].sum(), [x])


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (ArgumentError, lambda: t(X).div(2, rounding_mode="up")),
        (ArgumentError, lambda: t(X).quantile(0.5, interpolation="cubic")),
        (ShapeError, lambda: t(INTS).quantile(0.5)),
        (ShapeError, lambda: t(X).kthvalue(5, 1)),
        (ShapeError, lambda: t(X[:, :0]).median(1)),
        (ShapeError, lambda: t(X).rot90(1, (0,))),
        (ShapeError, lambda: t(X).select(1, 4)),
        (ShapeError, lambda: t(X).tensor_split(0)),
        (ShapeError, lambda: t(X).unfold(1, 5, 1)),
        (ShapeError, lambda: t(INTS).diagonal()),
        (ShapeError, lambda: t(np.zeros((2, 2, 2))).diag()),
        (ShapeError, lambda: t(INTS).trace()),
        (ShapeError, lambda: t(X).cross(t(X[:2]))),
        (ShapeError, lambda: t(X).baddbmm(t(X), t(X))),
        (ShapeError, lambda: t(X[0]).add_(t(X))),
        (ShapeError, lambda: t(X[0]).clamp_(t(X))),
        (ShapeError, lambda: t(X[0]).copy_(t(X))),
        (ShapeError, lambda: t(X).fill_(t(X))),
        (DTypeError, lambda: t(INTS).div_(2)),
        (CubeError, lambda: t(X).inverse()),
    ],
)
def test_what_does_not_go_together_is_refused(error: Any, wrong: Callable[[], Any]) -> None:
    with pytest.raises(error):
        wrong()


ON_A_GPU: dict[str, Callable[[Any], Any]] = {
    "new_zeros": lambda x: x.new_zeros(2),
    "new_tensor": lambda x: x.new_tensor([1, 2]),
    "diag": lambda x: x[0].diag(1),
    "index_fill": lambda x: x.index_fill(0, [1], 2.0),
    "quantile": lambda x: x.quantile([0.25, 0.5], 0),
    "median": lambda x: x.median(1)[0],
    "xlogy": lambda x: x.xlogy(2.0),
    "where": lambda x: x.where(x > 1, 0.0),
    "nan_to_num": lambda x: x.nan_to_num(),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "div_": lambda x: x.div_(0.3, rounding_mode="trunc"),
    "fill_": lambda x: x.fill_(3.0),
    "copy_": lambda x: x.copy_(Y),
    "pad": lambda x: F.pad(x, (-1, 2), "circular"),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, x.new_tensor([0, 1, 2], "i64")),
    "embedding_bag": lambda x: F.embedding_bag(x.new_tensor([[2, 0]], "i64"), x, mode="max"),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("name", ON_A_GPU)
def test_results_are_where_the_tensor_is(name: str) -> None:
    with emulated("gfx1100"):
        call = ON_A_GPU[name]
        found, want = call(cb.tensor(X, device="gfx1100")), call(t(X))
        assert str(found.device).startswith("gfx1100")
        np.testing.assert_allclose(found.numpy(), want.numpy(), 1e-5, 1e-5)


def test_the_mean_of_nothing_but_nan_is_nan() -> None:
    assert math.isnan(t([np.nan]).nanmean().item())


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i4"])
def test_sums_of_what_is_no_nan_stay_the_same_where_they_come_often(kind: str) -> None:
    rng = np.random.default_rng(12)
    for shape in ((7,), (0, 3), (6, 70), (3, 4, 5), (70, 300)):
        x = rng.integers(-4, 5, shape).astype(kind)
        if kind[0] == "f":
            x[rng.random(shape) < 0.2] = np.nan
            x[..., :1] = np.nan
        for axes in (None, 0, -1, tuple(range(len(shape)))):
            want = np.nansum(x.astype("f8"), axes)
            for _ in range(30):
                found = t(x).nansum(axes), t(x).nansum(axes, True)
            np.testing.assert_allclose(found[0].numpy(), want, rtol=2e-3 if kind == "f2" else 1e-6)
            assert found[1].numpy().shape == np.nansum(x, axes, keepdims=True).shape
    if kind[0] == "f":
        whole = t(np.array([[1.0, np.nan, np.inf], [2.0, 3.0, 4.0]], kind))
        assert whole.nansum().item() == math.inf
