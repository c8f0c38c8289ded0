"""Gradients of ops against finite differences in f64, first and second; the rules of the walk."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, GradientError
from cubepy.tensor import Tensor, apply, concat, where
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(7)


def some(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape)


UNARY: dict[str, tuple[Callable[..., Any], float, float]] = {
    "neg": (lambda x: -x, -2, 2),
    "abs": (abs, 0.2, 2),
    "relu": (lambda x: x._unary("relu"), 0.1, 2),
    "exp": (Tensor.exp, -2, 2),
    "expm1": (Tensor.expm1, -2, 2),
    "log": (Tensor.log, 0.3, 3),
    "log1p": (Tensor.log1p, -0.5, 3),
    "sqrt": (Tensor.sqrt, 0.3, 3),
    "rsqrt": (Tensor.rsqrt, 0.3, 3),
    "sin": (Tensor.sin, -2, 2),
    "cos": (Tensor.cos, -2, 2),
    "tanh": (Tensor.tanh, -2, 2),
    "sigmoid": (lambda x: x._unary("sigmoid"), -2, 2),
    "silu": (lambda x: x._unary("silu"), -2, 2),
    "erf": (Tensor.erf, -2, 2),
    "gelu": (lambda x: x.gelu(), -2, 2),
    "gelu_tanh": (lambda x: x.gelu("tanh"), -2, 2),
    "pow": (lambda x: x**3.5, 0.3, 2),
    "softmax": (lambda x: x.softmax(-1), -2, 2),
    "softmax_0": (lambda x: x.softmax(0), -2, 2),
    "log_softmax": (lambda x: x._unary("log_softmax", axis=-1), -2, 2),
    "log_softmax_0": (lambda x: x._unary("log_softmax", axis=0), -2, 2),
    "sum": (lambda x: x.sum(axis=1), -2, 2),
    "mean": (lambda x: x.mean(axis=(0, 1)), -2, 2),
    "prod": (lambda x: x.prod(axis=1), 0.5, 2),
    "max": (lambda x: x.max(axis=1), -2, 2),
    "min": (lambda x: x.min(), -2, 2),
    "reshape": (lambda x: x.reshape(2, -1) * x.reshape(2, -1), -2, 2),
    "permute": (lambda x: x.T.exp(), -2, 2),
    "slice": (lambda x: x[1:, ::2].exp(), -2, 2),
    "element": (lambda x: x[1, None, -1:].exp(), -2, 2),
    "back": (lambda x: x[::-1].exp(), -2, 2),
    "expand": (lambda x: x.unsqueeze(0).expand(3, *x.shape).exp(), -2, 2),
    "concat": (lambda x: concat([x, x.exp(), x[:, :1]], axis=1).sin(), -2, 2),
}


@pytest.mark.parametrize("name", UNARY)
def test_of_one(name: str) -> None:
    function, low, high = UNARY[name]
    check_gradients(function, some(3, 4, low=low, high=high))


BINARY: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "mod": lambda a, b: a % b,
    "maximum": lambda a, b: apply("maximum", a, b),
    "minimum": lambda a, b: apply("minimum", a, b),
    "where": lambda a, b: where(a > b, a * a, b.exp()),
}


@pytest.mark.parametrize(
    "shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (5,))]
)
@pytest.mark.parametrize("name", BINARY)
def test_of_two_that_broadcast(name: str, shapes: Any) -> None:
    a, b = (some(*s, low=0.4, high=2.0) for s in shapes)
    check_gradients(BINARY[name], a, b)


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 2)), ((4,), (3, 4, 2)), ((2, 3, 4), (4,)),
        ((3, 4), (2, 4, 5)),
    ],
)  # fmt: skip
def test_of_products(shapes: Any) -> None:
    check_gradients(lambda a, b: a @ b, *(some(*s) for s in shapes))


@pytest.mark.parametrize(
    "activation", [None, "gelu", "gelu_tanh", "relu", "silu", "sigmoid", "tanh"]
)
def test_of_linear_layers(activation: str | None) -> None:
    def layer(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        return apply("linear", x, w, bias, residual, activation=activation)

    check_gradients(layer, some(2, 3, 4), some(5, 4), some(5), some(2, 3, 5))


def test_of_layer_norm() -> None:
    def norm(x: Any, w: Any, b: Any) -> Any:
        return apply("layer_norm", x, w, b, normalized_shape=(3, 4), eps=1e-5)

    check_gradients(norm, some(2, 3, 4), some(3, 4), some(3, 4))


def test_of_embeddings() -> None:
    rows = cb.tensor(np.array([[0, 2], [2, 1]]))
    check_gradients(lambda table: apply("embedding", rows, table).exp(), some(4, 3))


def test_third_derivatives() -> None:
    def f(x: Any) -> Any:
        return (x * x * x * x).sum()

    third = cb.grad(lambda x: cb.grad(lambda y: cb.grad(f)(y).sum())(x).sum())
    assert third(cb.tensor(np.array([1.0, 2.0]))).tolist() == [24.0, 48.0]


def test_backward_adds_up() -> None:
    x = cb.tensor([1.0, 2.0], requires_grad=True)
    for n in range(1, 4):
        (x * 3).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [3.0 * n, 3.0 * n]
    x.grad = None
    y = x * x
    (y + y.detach()).sum().backward(retain_graph=True)
    assert x.grad.tolist() == [2.0, 4.0]


def test_shared_parts_are_walked_once() -> None:
    x = cb.tensor([2.0], requires_grad=True)
    y = x
    for _ in range(60):
        y = y * 0.5 + y * 0.5
    y.sum().backward()
    assert x.grad is not None and abs(x.grad.item() - 1) < 1e-6


def test_long_chains() -> None:
    x = cb.tensor([1.0], requires_grad=True)
    y = x
    for _ in range(3000):
        y = y + 1
    y.sum().backward()
    assert x.grad is not None and x.grad.item() == 1
    del y


def test_a_graph_is_walked_once() -> None:
    x = cb.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(GradientError, match=r"'\w+' was walked already[\s\S]*y = \(x \* x\)"):
        y.backward()
    z = (x * x).sum()
    z.backward(retain_graph=True)
    z.backward()


def test_what_has_no_gradient_is_told() -> None:
    x = cb.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(GradientError, match="no single number"):
        (x * 2).backward()
    with pytest.raises(GradientError, match="was not computed from"):
        (x.detach() * 2).sum().backward()
    with pytest.raises(GradientError, match="only floats"):
        cb.tensor([1, 2], requires_grad=True)
    with pytest.raises(GradientError, match="said of leaves"):
        (x * 2).requires_grad = False
    assert not (x > 1).requires_grad and not x.argmax().requires_grad


def test_no_grad_keeps_nothing() -> None:
    x = cb.tensor([1.0, 2.0], requires_grad=True)
    with cb.no_grad():
        y = x * 2
        with cb.enable_grad():
            z = x * 2

    @cb.no_grad()
    def f() -> Tensor:
        return x * 2

    assert not y.requires_grad and z.requires_grad and not f().requires_grad
    assert cb.is_grad_enabled()
    before = weakref.ref((x * 3).value)
    gc.collect()
    assert before() is None


def test_in_place_gives_a_new_value() -> None:
    x = cb.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    z = y * y
    same = y
    y *= 10
    assert y is same and y.tolist() == [10.0, 20.0]
    (z.sum() + y.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [12.0, 14.0]
    with pytest.raises(GradientError, match="changed in place"):
        x += x
    with cb.no_grad():
        x -= 0.5
    assert x.tolist() == [0.5, 1.5] and x.requires_grad and x.is_leaf
    (x * x).sum().backward()
    assert x.grad.tolist() == [13.0, 17.0]


def test_in_place_keeps_shape_and_dtype() -> None:
    x = cb.tensor([1, 2])
    x += 1
    assert x.tolist() == [2, 3]
    with pytest.raises(cb.CubeError, match="keeps its dtype"):
        x += 0.5
    y = cb.tensor([1.0])
    with pytest.raises(cb.CubeError, match="keeps its shape"):
        y += cb.tensor([1.0, 2.0])
    h = cb.tensor([1.0, 2.0], dtype="f16")
    h += cb.tensor([1.0, 2.0])
    assert h.dtype == cb.f16


def test_gradients_of_forms() -> None:
    params = {"w": cb.tensor([[1.0, 2.0]]), "b": [cb.tensor([0.5])]}

    def loss(p: Any, x: Any) -> Any:
        return ((x @ p["w"].T + p["b"][0]) ** 2).sum()

    value, found = cb.value_and_grad(loss)(params, cb.tensor([[1.0, 1.0]]))
    assert value.item() == 12.25 and not value.requires_grad
    assert found["w"].tolist() == [[7.0, 7.0]] and found["b"][0].tolist() == [7.0]
    unused = cb.grad(lambda a, b: (a * a).sum(), argnums=1)
    assert unused(cb.tensor([1.0]), cb.tensor([2.0, 3.0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("wrap", [lambda f: f, cb.jit])
def test_what_a_differentiated_function_assigns_are_elements(wrap: Any) -> None:
    """Each call goes on from the state of the call before, and keeps nothing of its graph."""
    state, other = cb.tensor([1.0, 1.0]), cb.tensor([0.0, 0.0])

    def function(x: cb.Tensor) -> cb.Tensor:
        y = x * state
        state.assign_(y * 2)
        other.assign_(x + other)  # nothing that the result depends on
        return y.sum()

    gradient, x = wrap(cb.grad(function)), cb.tensor([3.0, 4.0])
    factor = np.ones(2, np.float32)
    for n in range(5):
        np.testing.assert_array_equal(gradient(x).numpy(), factor)
        factor = factor * x.numpy() * 2
        np.testing.assert_array_equal(state.numpy(), factor)
        np.testing.assert_array_equal(other.numpy(), x.numpy() * (n + 1))
        assert state.is_leaf and not state.requires_grad and not other.requires_grad


def test_what_is_assigned_keeps_the_gradients_of_others() -> None:
    weight, state = cb.tensor([2.0], requires_grad=True), cb.tensor([0.0])

    def function(x: cb.Tensor) -> cb.Tensor:
        state.assign_(x * weight)
        return (x * x * weight).sum()

    assert cb.grad(function)(cb.tensor([3.0])).item() == 12
    assert state.requires_grad
    state.sum().backward()
    assert weight.grad.item() == 3

    def outer(x: cb.Tensor) -> cb.Tensor:  # the state carries a gradient to the outer call
        cb.grad(lambda y: (state.assign_(y * y) * y).sum())(x)
        return state.sum()

    assert cb.grad(outer)(cb.tensor([3.0])).item() == 6
    assert not state.requires_grad
    with cb.no_grad():
        cb.grad(function)(cb.tensor([3.0]))
    assert not state.requires_grad


def test_what_a_function_gives_besides_is_handed_on() -> None:
    def loss(w: Any, x: Any) -> Any:
        y = x @ w
        return (y * y).sum(), {"y": y, "n": 3, "parts": (y.mean(), "text")}

    w, x = cb.tensor(some(3, 2)), cb.tensor(some(4, 3))
    plain = cb.grad(lambda w, x: loss(w, x)[0])(w, x)
    for wrapped in (lambda f: f, cb.jit):
        gradient, more = wrapped(cb.grad(loss, has_aux=True))(w, x)
        (value, again), same = wrapped(cb.value_and_grad(loss, has_aux=True))(w, x)
        np.testing.assert_allclose(value.numpy(), ((x @ w) ** 2).sum().numpy())
        for found in (gradient, same):
            np.testing.assert_allclose(found.numpy(), plain.numpy())
        for found in (more, again):
            np.testing.assert_allclose(found["y"].numpy(), (x @ w).numpy())
            assert found["n"] == 3 and found["parts"][1] == "text"
            assert not found["y"].requires_grad and not value.requires_grad
    other = cb.tensor(some(2)).requires_grad_()  # from outside: the way back to it stays
    _, more = cb.grad(lambda w, x: (loss(w, x)[0], w.sum() * other), has_aux=True)(w, x)
    more.sum().backward()
    np.testing.assert_allclose(other.grad.numpy(), np.full(2, w.numpy().sum()))
    with pytest.raises(ArgumentError, match=r"gives \(number, more\), not Tensor"):
        cb.grad(lambda x: x.sum(), has_aux=True)(x)
    with pytest.raises(ArgumentError, match="of a function, not of Tensor"):
        cb.grad(x)
