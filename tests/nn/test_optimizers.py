"""Optimizers against their formulas, step by step in f64; groups, states, clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, FileFormatError, LaunchError, ShapeError
from cubepy.nn.optim import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop

STEPS = 20
Step = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def sgd(
    lr: float = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: float = 0,
    nesterov: bool = False, maximize: bool = False,
) -> Step:  # fmt: skip
    buffers: list[np.ndarray] = []

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        d = (-g if maximize else g) + weight_decay * p
        if momentum:
            new = momentum * buffers[-1] + (1 - dampening) * d if buffers else d
            buffers.append(new)
            d = d + momentum * new if nesterov else new
        return p - lr * d

    return step


def adam(
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
    weight_decay: float = 0, amsgrad: bool = False, maximize: bool = False, decoupled: bool = False,
) -> Step:  # fmt: skip
    m, v, most = [np.zeros(())], [np.zeros(())], [np.zeros(())]

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        g = -g if maximize else g
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m.append(betas[0] * m[-1] + (1 - betas[0]) * g)
        v.append(betas[1] * v[-1] + (1 - betas[1]) * g * g)
        most.append(np.maximum(most[-1], v[-1]))
        second = most[-1] if amsgrad else v[-1]
        size = np.sqrt(second / (1 - betas[1] ** t)) + eps
        return p - lr * (m[-1] / (1 - betas[0] ** t)) / size

    return step


def rmsprop(
    lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0,
    momentum: float = 0, centered: bool = False, maximize: bool = False,
) -> Step:  # fmt: skip
    square, mean, velocity = [np.zeros(())], [np.zeros(())], [np.zeros(())]

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        g = (-g if maximize else g) + weight_decay * p
        square.append(alpha * square[-1] + (1 - alpha) * g * g)
        mean.append(alpha * mean[-1] + (1 - alpha) * g)
        spread = square[-1] - mean[-1] ** 2 if centered else square[-1]
        velocity.append(momentum * velocity[-1] + g / (np.sqrt(spread) + eps))
        return p - lr * velocity[-1]

    return step


def adagrad(
    lr: float = 1e-2, lr_decay: float = 0, weight_decay: float = 0,
    initial_accumulator_value: float = 0, eps: float = 1e-10, maximize: bool = False,
) -> Step:  # fmt: skip
    total = [np.full((), initial_accumulator_value)]

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        g = (-g if maximize else g) + weight_decay * p
        total.append(total[-1] + g * g)
        return p - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(total[-1]) + eps)

    return step


def nadam(
    lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
    weight_decay: float = 0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False,
) -> Step:  # fmt: skip
    m, v, product = [np.zeros(())], [np.zeros(())], [1.0]

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        if decoupled_weight_decay:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        now, then = (betas[0] * (1 - 0.5 * 0.96 ** (k * momentum_decay)) for k in (t, t + 1))
        product.append(product[-1] * now)
        m.append(betas[0] * m[-1] + (1 - betas[0]) * g)
        v.append(betas[1] * v[-1] + (1 - betas[1]) * g * g)
        size = np.sqrt(v[-1] / (1 - betas[1] ** t)) + eps
        p = p - lr * (1 - now) / (1 - product[-1]) * g / size
        return p - lr * then / (1 - product[-1] * then) * m[-1] / size

    return step


def radam(
    lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
    weight_decay: float = 0, decoupled_weight_decay: bool = False,
) -> Step:  # fmt: skip
    m, v = [np.zeros(())], [np.zeros(())]

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        if decoupled_weight_decay:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m.append(betas[0] * m[-1] + (1 - betas[0]) * g)
        v.append(betas[1] * v[-1] + (1 - betas[1]) * g * g)
        first, most = m[-1] / (1 - betas[0] ** t), 2 / (1 - betas[1]) - 1
        n = most - 2 * t * betas[1] ** t / (1 - betas[1] ** t)
        if n <= 5:
            return p - lr * first
        part = math.sqrt((n - 4) * (n - 2) * most / ((most - 4) * (most - 2) * n))
        return p - lr * part * first * math.sqrt(1 - betas[1] ** t) / (np.sqrt(v[-1]) + eps)

    return step


def adamax(
    lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
    weight_decay: float = 0, maximize: bool = False,
) -> Step:  # fmt: skip
    m, largest = [np.zeros(())], [np.zeros(())]

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        g = (-g if maximize else g) + weight_decay * p
        m.append(betas[0] * m[-1] + (1 - betas[0]) * g)
        largest.append(np.maximum(betas[1] * largest[-1], abs(g) + eps))
        return p - lr / (1 - betas[0] ** t) * m[-1] / largest[-1]

    return step


def adadelta(
    lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0,
) -> Step:  # fmt: skip
    square, moved = [np.zeros(())], [np.zeros(())]

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        g = g + weight_decay * p
        square.append(rho * square[-1] + (1 - rho) * g * g)
        by = np.sqrt(moved[-1] + eps) / np.sqrt(square[-1] + eps) * g
        moved.append(rho * moved[-1] + (1 - rho) * by * by)
        return p - lr * by

    return step


def adamw(**options: Any) -> Step:
    return adam(**{"weight_decay": 1e-2, **options}, decoupled=True)


CASES: list[tuple[Any, Callable[..., Step], dict[str, Any]]] = [
    (SGD, sgd, {}),
    (SGD, sgd, {"lr": 0.1, "weight_decay": 0.01, "maximize": True}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    (SGD, sgd, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    (Adam, adam, {}),
    (Adam, adam, {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (Adam, adam, {"lr": 0.1, "amsgrad": True, "maximize": True}),
    (AdamW, adamw, {}),
    (AdamW, adamw, {"lr": 0.1, "weight_decay": 0.5, "amsgrad": True}),
    (RMSprop, rmsprop, {}),
    (RMSprop, rmsprop, {"lr": 0.1, "alpha": 0.9, "eps": 1e-3, "weight_decay": 0.1}),
    (RMSprop, rmsprop, {"momentum": 0.9, "maximize": True}),
    (RMSprop, rmsprop, {"centered": True, "alpha": 0.9}),
    (RMSprop, rmsprop, {"centered": True, "momentum": 0.5}),
    (Adagrad, adagrad, {}),
    (
        Adagrad,
        adagrad,
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5},
    ),
    (Adagrad, adagrad, {"eps": 1e-3, "maximize": True}),
    (NAdam, nadam, {"lr": 0.1, "weight_decay": 0.1, "momentum_decay": 0.2}),
    (NAdam, nadam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    (RAdam, radam, {"lr": 0.1, "weight_decay": 0.1}),
    (RAdam, radam, {"betas": (0.8, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    (Adamax, adamax, {"lr": 0.1, "betas": (0.5, 0.6), "weight_decay": 0.1}),
    (Adamax, adamax, {"maximize": True}),
    (Adadelta, adadelta, {}),
    (Adadelta, adadelta, {"lr": 0.5, "rho": 0.5, "eps": 1e-3, "weight_decay": 0.1}),
]


def run(optimizer: Any, p: Any, grads: np.ndarray) -> np.ndarray:
    for g in grads:
        p.grad = cb.tensor(g)
        optimizer.step()
    return p.detach().numpy()


@pytest.mark.parametrize(("kind", "formula", "options"), CASES)
def test_twenty_steps_are_those_of_the_formula(kind: Any, formula: Any, options: Any) -> None:
    rng = np.random.default_rng(3)
    start, grads = rng.standard_normal((5, 7)), rng.standard_normal((STEPS, 5, 7))
    p = nn.Parameter(start.copy())
    optimizer, step, want = kind([p], **options), formula(**options), start
    for t, g in enumerate(grads, 1):
        p.grad = cb.tensor(g)
        optimizer.step()
        want = step(want, g, t)
        np.testing.assert_allclose(p.detach().numpy(), want, rtol=1e-12, atol=1e-13)
    assert p.requires_grad and p.is_leaf and isinstance(p, nn.Parameter)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (3,), (1000, 33)])
def test_narrow_parameters_stay_near(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    start = rng.standard_normal(shape).astype(dtype)
    grads = rng.standard_normal((STEPS, *shape)).astype(dtype)
    exact = np.asarray(start, np.float64)
    step = adamw(lr=0.01)
    for t, g in enumerate(grads, 1):
        exact = step(exact, np.asarray(g, np.float64), t)
    p = nn.Parameter(start)
    assert not np.shares_memory(run(AdamW([p], lr=0.01), p, grads), start)
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert p.dtype == cb.tensor(start).dtype
    np.testing.assert_allclose(
        p.detach().numpy().astype(np.float64), exact, atol=30 * eps, rtol=30 * eps
    )


def test_gradients_may_lie_in_any_order_and_parameters_may_be_empty() -> None:
    p, q = nn.Parameter(np.ones((3, 4))), nn.Parameter(np.ones((0, 4)))
    g = np.arange(12.0).reshape(4, 3)
    p.grad, q.grad = cb.tensor(g).T, cb.tensor(np.ones((0, 4)))
    SGD([p, q], lr=0.5, momentum=0.9).step()
    np.testing.assert_array_equal(p.detach().numpy(), 1 - 0.5 * g.T)


def test_what_was_computed_before_keeps_its_values() -> None:
    p = nn.Parameter([1.0, 2.0])
    loss = (p * p).sum()
    p.grad = cb.tensor([1.0, 1.0])
    SGD([p], lr=1.0).step()
    loss.backward()
    np.testing.assert_array_equal(p.grad.numpy(), [3.0, 5.0])  # 1 + 2 p with the p of then


def test_groups_have_their_own_options_and_rates_change_without_compiling() -> None:
    a, b, c = (nn.Parameter(np.ones(3)) for _ in range(3))
    optimizer = SGD([{"params": [a]}, {"params": [("b", b)], "lr": 0.5}], lr=0.25)
    optimizer.add_param_group({"params": c, "lr": 0.0})
    for p in (a, b, c):
        p.grad = cb.tensor(np.ones(3))
    optimizer.step()
    before = cb.stats().compiled
    optimizer.param_groups[0]["lr"] = 0.125
    optimizer.step()
    assert cb.stats().compiled == before
    assert [p.detach().tolist()[0] for p in (a, b, c)] == [0.625, 0.0, 1.0]


def test_parameters_without_gradients_stay() -> None:
    a, b = nn.Parameter([1.0]), nn.Parameter([1.0])
    optimizer = Adam([a, b], lr=0.5)
    a.grad = cb.tensor([1.0])
    optimizer.step()
    assert b.item() == 1.0 and a in optimizer.state and b not in optimizer.state
    optimizer.zero_grad()
    assert a.grad is None
    a.grad = cb.tensor([2.0])
    optimizer.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0.0]


@pytest.mark.parametrize(("kind", "formula", "options"), CASES[2::3])
def test_a_loaded_state_goes_on_as_before(kind: Any, formula: Any, options: Any) -> None:
    rng = np.random.default_rng(1)
    grads = rng.standard_normal((8, 4))
    whole, half = (nn.Parameter(np.linspace(-1, 1, 4)) for _ in range(2))
    want = run(kind([whole], **options), whole, grads)
    first = kind([half], **options)
    run(first, half, grads[:4])
    state = first.state_dict()
    again = nn.Parameter(half.detach().numpy().copy())
    run(first, half, grads[4:])  # does not change the state
    second = kind([again], lr=123.0)
    second.load_state_dict(state)
    np.testing.assert_array_equal(run(second, again, grads[4:]), want)


def test_a_closure_computes_the_loss() -> None:
    p = nn.Parameter([2.0])
    optimizer = SGD([p], lr=0.25)

    def loss() -> Any:
        optimizer.zero_grad()
        value = (p * p).sum()
        value.backward()
        return value

    with cb.no_grad():
        assert optimizer.step(loss).item() == 4.0
    assert p.item() == 1.0


def test_a_model_that_loads_keeps_its_optimizer() -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    optimizer = SGD(model.parameters(), lr=0.5)
    model.load_state_dict(other.state_dict())
    before = other.weight.numpy().copy()
    model([[1.0, 2.0, 3.0]]).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(model.weight.numpy(), before - 0.5 * np.array([[1.0, 2.0, 3.0]] * 2))
    np.testing.assert_array_equal(other.weight.numpy(), before)


@pytest.mark.parametrize("order", [2.0, 1.0, 3.0, math.inf])
def test_norms_of_gradients_are_clipped_together(order: float) -> None:
    rng = np.random.default_rng(0)
    params = [nn.Parameter(np.zeros(s)) for s in ((3, 4), (5,), ())]
    grads = [rng.standard_normal(p.shape) for p in params]
    for p, g in zip(params, grads, strict=True):
        p.grad = cb.tensor(g)
    params.append(nn.Parameter([1.0]))  # without a gradient
    norm = float(np.linalg.norm(np.concatenate([g.ravel() for g in grads]), order))
    assert nn.utils.clip_grad_norm_(params, 0.5, order).item() == pytest.approx(norm, rel=1e-12)
    for p, g in zip(params, grads, strict=False):
        np.testing.assert_allclose(p.grad.numpy(), g * 0.5 / (norm + 1e-6), rtol=1e-12)
    nn.utils.clip_grad_norm_(params, 10.0, order)  # small ones stay
    np.testing.assert_allclose(params[0].grad.numpy(), grads[0] * 0.5 / (norm + 1e-6), rtol=1e-12)


def test_the_norm_of_narrow_gradients_does_not_overflow() -> None:
    p = nn.Parameter(np.zeros(4, np.float16))
    p.grad = cb.tensor(np.full(4, 3e4, np.float16))
    assert nn.utils.clip_grad_norm_(p, 1.0).item() == pytest.approx(6e4)
    np.testing.assert_allclose(p.grad.numpy(), 0.5, rtol=1e-3)


def test_infinite_norms_may_be_errors() -> None:
    p = nn.Parameter([1.0])
    p.grad = cb.tensor([math.inf])
    with pytest.raises(LaunchError, match="the norm of the gradients is inf"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, np.inf])
def test_norms_of_all_tensors(norm_type: float) -> None:
    arrays = [np.float32([[3, -4], [0.5, 2]]), np.float32([-7, 1])]
    whole = np.concatenate([a.reshape(-1) for a in arrays]).astype(np.float64)
    found = nn.utils.get_total_norm([cb.tensor(a) for a in arrays], norm_type)
    np.testing.assert_allclose(found.item(), np.linalg.norm(whole, norm_type), rtol=1e-6)
    assert nn.utils.get_total_norm([]).item() == 0


def test_parameters_as_a_vector_and_back() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).half())
    before = [p.numpy().copy() for p in net.parameters()]
    vector = nn.utils.parameters_to_vector(net.parameters())
    assert vector.shape == (26,)
    (vector * 3).sum().backward()
    assert all((p.grad.numpy() == 3).all() for p in net.parameters())
    nn.utils.vector_to_parameters(vector * 2, net.parameters())
    for p, had in zip(net.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.numpy(), 2 * had)
        assert p.requires_grad and p.numpy().dtype == had.dtype
    with pytest.raises(ShapeError, match="26 elements, but vec has shape"):
        nn.utils.vector_to_parameters(vector[1:], net.parameters())
    with pytest.raises(ArgumentError, match="there are no parameters"):
        nn.utils.parameters_to_vector([])


def test_values_of_gradients_are_clipped() -> None:
    p = nn.Parameter([1.0, 1.0, 1.0])
    p.grad = cb.tensor([-3.0, 0.25, 7.0])
    nn.utils.clip_grad_value_([p], 0.5)
    assert p.grad.tolist() == [-0.5, 0.25, 0.5]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: SGD(p), ArgumentError, "takes a list of parameters"),
        (lambda p: SGD([]), ArgumentError, "no parameters"),
        (lambda p: SGD([p, p]), LaunchError, "twice"),
        (lambda p: SGD([p * 2]), ArgumentError, "computed"),
        (lambda p: SGD([3.0]), ArgumentError, "trains tensors, not 3.0"),
        (lambda p: SGD([p], lr=-1), LaunchError, "lr must be at least 0, not -1"),
        (lambda p: SGD([p], nesterov=True), LaunchError, "nesterov needs a momentum"),
        (lambda p: Adam([p], betas=(0.9, 1.0)), LaunchError, r"betas\[1\]"),
        (lambda p: RMSprop([p], alpha=-1), LaunchError, "alpha"),
        (lambda p: Adagrad([p], lr_decay=-1), LaunchError, "lr_decay"),
        (
            lambda p: SGD([p]).load_state_dict({"state": {}, "param_groups": []}),
            FileFormatError,
            "other groups",
        ),
    ],
)
def test_wrong_options_are_refused(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make(nn.Parameter([1.0]))
