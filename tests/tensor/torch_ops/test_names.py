"""Methods that are there for code that was written for PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ShapeError

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((3, 4)).astype(np.float32) for _ in range(2))
V, W = X[0], Y[1]
STACK = RNG.standard_normal((2, 3, 4)).astype(np.float32)


def t(a: Any) -> cb.Tensor:
    return cb.tensor(np.array(a))


CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "pow": (lambda: t(X).pow(2), X**2),
    "neg": (lambda: t(X).neg(), -X),
    "remainder": (lambda: t([-3, 5, 7]).remainder(4), np.array([1, 1, 3])),
    "eq": (lambda: t(X).eq(X[0, 0]), X == X[0, 0]),
    "ne": (lambda: t(X).ne(t(Y)), X != Y),
    "lt": (lambda: t(X).lt(t(Y)), X < Y),
    "le": (lambda: t(X).le(0.0), X <= 0),
    "gt": (lambda: t(X).gt(t(Y)), X > Y),
    "ge": (lambda: t(X).ge(t(Y)), X >= Y),
    "logical_not": (lambda: t([0.0, 2.0]).logical_not(), np.array([True, False])),
    "logical_and": (lambda: t([0, 2, 3]).logical_and(t([1, 1, 0])), np.array([False, True, False])),
    "logical_or": (lambda: t([0, 2, 0]).logical_or(t([1, 1, 0])), np.array([True, True, False])),
    "lerp": (lambda: t(X).lerp(t(Y), 0.25), X + 0.25 * (Y - X)),
    "addcmul": (lambda: t(X).addcmul(t(Y), t(Y), value=2), X + 2 * Y * Y),
    "addcdiv": (lambda: t(X).addcdiv(t(Y), t(Y) + 9, value=2), X + 2 * Y / (Y + 9)),
    "amax": (lambda: t(X).amax(1, keepdim=True), X.max(1, keepdims=True)),
    "amin": (lambda: t(X).amin((0, 1)), X.min()),
    "count_nonzero": (lambda: t([[0, 1], [2, 3]]).count_nonzero(0), np.array([1, 2])),
    "log_softmax": (lambda: t(X).log_softmax(0), X - np.log(np.exp(X).sum(0))),
    "mm": (lambda: t(X).mm(t(Y.T)), X @ Y.T),
    "bmm": (lambda: t(STACK).bmm(t(STACK.swapaxes(1, 2))), STACK @ STACK.swapaxes(1, 2)),
    "mv": (lambda: t(X).mv(t(V)), X @ V),
    "dot": (lambda: t(V).dot(t(W)), V @ W),
    "outer": (lambda: t(V).outer(t(W)), np.outer(V, W)),
    "addmm": (lambda: t(X @ Y.T).addmm(t(X), t(Y.T), beta=2, alpha=3), 5 * (X @ Y.T)),
    "t": (lambda: t(X).t(), X.T),
    "view_as": (lambda: t(X).view_as(t(np.zeros((4, 3)))), X.reshape(4, 3)),
    "expand_as": (lambda: t(X[:1]).expand_as(t(Y)), np.broadcast_to(X[:1], (3, 4))),
    "unflatten": (lambda: t(X).unflatten(1, (2, -1)), X.reshape(3, 2, 2)),
    "narrow": (lambda: t(X).narrow(1, -3, 2), X[:, 1:3]),
    "type_as": (lambda: t(X).type_as(t([1])), X.astype(np.int64)),
    "double": (lambda: t(X).double(), X.astype(np.float64)),
    "half": (lambda: t(X).half(), X.astype(np.float16)),
    "float": (lambda: t([1, 2]).float(), np.array([1, 2], np.float32)),
    "int": (lambda: t([1.7, -2.2]).int(), np.array([1, -2], np.int32)),
    "long": (lambda: t([1.7]).long(), np.array([1])),
    "bool": (lambda: t([0.0, 0.5]).bool(), np.array([False, True])),
    "cpu": (lambda: t(X).cpu(), X),
}


@pytest.mark.parametrize("name", CASES)
def test_methods(name: str) -> None:
    call, want = CASES[name]
    found, want = call(), np.asarray(want)
    assert found.shape == want.shape and found.numpy().dtype == want.dtype
    np.testing.assert_allclose(found.numpy(), want, rtol=2e-6, atol=1e-6)


def test_what_a_tensor_is() -> None:
    x = t(X)
    assert (x.numel(), x.nelement(), x.dim(), x.element_size()) == (12, 12, 2, 4)
    assert x.is_floating_point() and not t([1]).is_floating_point()
    assert t(X).bfloat16().dtype is cb.bf16
    assert sum(p.numel() for p in cb.nn.Linear(3, 2).parameters()) == 8


def test_gradients_go_through() -> None:
    x = t(X)
    x.requires_grad = True
    (x.pow(2).mm(t(Y.T)).lerp(t(np.zeros((3, 3), np.float32)), 0.5)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), X * Y.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", ["axis", "dim"])
@pytest.mark.parametrize("kept", ["keepdims", "keepdim"])
@pytest.mark.parametrize(
    "name", "sum prod mean max min amax amin argmax argmin any all var std logsumexp".split()
)
def test_reductions_take_the_words_of_both(name: str, axis: str, kept: str) -> None:
    plain = {"amax": "max", "amin": "min"}.get(name, name)
    found = getattr(t(X), name)(**{axis: 1, kept: True}).numpy()
    if plain == "logsumexp":
        want = np.log(np.exp(X).sum(1, keepdims=True))
    else:
        want = getattr(X, plain)(axis=1, keepdims=True)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_orders_and_scans_take_the_words_of_both() -> None:
    for axis in (0, 1, -1):
        for words in ({"axis": axis}, {"dim": axis}):
            np.testing.assert_allclose(t(X).cumsum(**words).numpy(), X.cumsum(axis), rtol=1e-6)
            np.testing.assert_allclose(t(X).cumprod(**words).numpy(), X.cumprod(axis), rtol=1e-5)
            np.testing.assert_array_equal(t(X).argsort(**words).numpy(), X.argsort(axis))
            np.testing.assert_array_equal(t(X).sort(**words)[0].numpy(), np.sort(X, axis))
    np.testing.assert_allclose(t(X).cumsum().numpy(), X.cumsum(), rtol=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: t(X).mm(t(V)),
        lambda: t(STACK).bmm(t(STACK[:1])),
        lambda: t(X).dot(t(V)),
        lambda: t(X).outer(t(V)),
        lambda: t(STACK).t(),
        lambda: t(X).unflatten(1, (3, 2)),
        lambda: t(X).narrow(0, 2, 2),
    ],
)
def test_shapes_that_do_not_fit_are_refused(wrong: Any) -> None:
    with pytest.raises(ShapeError):
        wrong()
