"""The gradient of every op beside differences of its values, first and second; and of random
programs of ops.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import GradcheckError
from cubepy.tensor import Tensor, apply, concat, where
from cubepy.tensor.ops import OPS
from cubepy.testing import gradcheck, gradgradcheck
from tests.tensor.gradients.samples import OF_USERS, ONCE, SAMPLES, WITHOUT

FIRST: dict[str, Any] = {"eps": 1e-5, "atol": 5e-8, "rtol": 5e-8}
SECOND: dict[str, Any] = {"eps": 1e-5, "atol": 2e-6, "rtol": 2e-6}


def given(inputs: tuple[Any, ...]) -> list[Tensor | None]:
    return [None if x is None else cb.tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]


def test_every_op_has_samples() -> None:
    packed = {"packed_product"}  # needs packed weights: tests/quant/test_gradients.py
    differentiable = {n for n, op in OPS.items() if op.vjp is not None} - packed
    assert differentiable == SAMPLES.keys() | ONCE.keys()
    assert not SAMPLES.keys() & ONCE.keys()
    others = ("make", "effect")
    rest = {n for n, o in OPS.items() if o.vjp is None and not o.constant and o.kind not in others}
    made = ("fused_", "packed_", "joined_")  # of programs, which differentiate others
    fused = {n for n in rest if n.startswith(made)}
    assert rest - fused == WITHOUT.keys() | OF_USERS.keys()


@pytest.mark.turns(6)
@pytest.mark.parametrize("op", SAMPLES)
def test_gradients_are_what_differences_say(op: str) -> None:
    for inputs, attrs in SAMPLES[op]:
        tensors = given(inputs)

        def function(*xs: Any) -> Any:
            return apply(op, *xs, **attrs)

        assert gradcheck(function, tensors, **FIRST)
        assert gradgradcheck(function, tensors, **SECOND)


@pytest.mark.parametrize("op", WITHOUT)
def test_what_has_no_gradient_says_so(op: str) -> None:
    x = cb.tensor([0.5, 2.0], requires_grad=True)
    with pytest.raises(cb.errors.GradientError, match=f"'{op}' has no gradient"):
        apply(op, x).sum().backward()


UNARY: list[Callable[[Any], Any]] = [
    lambda x: -x,
    lambda x: x.tanh(),
    lambda x: x.sigmoid(),
    lambda x: x * 0.3,
    lambda x: 1 - x,
    lambda x: x.gelu(),
    lambda x: (x * 0.1).exp(),
    lambda x: x.sin() * 2,
    lambda x: x * x / 3,
    lambda x: (x * x + 1).log(),
    lambda x: x.softmax(-1),
    lambda x: x.T.reshape(x.shape) * x,
    lambda x: x[::-1],
    lambda x: x.cumsum(0),
    lambda x: x - x.mean(axis=0, keepdims=True),
    lambda x: x.var(axis=1, keepdims=True) + x,
    lambda x: x.logsumexp(axis=-1, keepdims=True) * x,
    lambda x: apply("layer_norm", x, None, None, normalized_shape=(3,), eps=1e-2),
    lambda x: x.sum(axis=0).expand(3, 3) * x,
    lambda x: x[cb.tensor([2, 0, 2])],
    lambda x: concat([x[1:], x[:1] * 2], axis=0),
    lambda x: x.unsqueeze(0).expand(2, 3, 3).sum(axis=0),
]
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / (b * b + 1),
    lambda a, b: a @ b / 3,
    lambda a, b: where(cb.tensor(np.eye(3) > 0), a, b * 2),
    lambda a, b: (a * a + 0.1) ** b.tanh(),
    lambda a, b: a + b[0],
    lambda a, b: a * b[:, 1:2],
    lambda a, b: concat([a[:2], b[2:]], axis=0),
    lambda a, b: a.T @ b.softmax(0),
]


def random_function(seed: int) -> Callable[..., Any]:
    """A function of two tensors of 3 x 3 whose steps are drawn."""
    draw = random.Random(seed)
    steps = []
    for n in range(draw.randrange(3, 9)):
        table = draw.choice([UNARY, BINARY])
        steps.append((draw.choice(table), table is BINARY, draw.randrange(99), draw.randrange(99)))

    def function(a: Tensor, b: Tensor) -> list[Tensor]:
        values = [a, b, a + b]
        for step, two, i, j in steps:
            first, second = values[-1 - i % 3], values[-1 - j % len(values)]
            values.append((step(first, second) if two else step(first)) * 0.7)
        return [values[-1], values[-2].sum()]

    return function


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(25))
def test_gradients_of_random_programs(seed: int) -> None:
    function, rng = random_function(seed), np.random.default_rng(seed)
    inputs = [cb.tensor(rng.uniform(-1, 1, (3, 3)), requires_grad=True) for _ in range(2)]
    loose = {"eps": 1e-5, "atol": 1e-6, "rtol": 1e-6}
    assert gradcheck(function, inputs, fast_mode=True, **loose)
    assert gradcheck(cb.jit(function), inputs, fast_mode=True, **loose)
    assert gradgradcheck(function, inputs, fast_mode=True, eps=1e-5, atol=1e-4, rtol=1e-4)


def test_a_wrong_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong: an element, a sum over a broadcast axis, a factor of the second one."""
    x, y = (cb.tensor(np.arange(1.0, 7).reshape(2, 3), requires_grad=True) for _ in range(2))
    mul = OPS["mul"].vjp
    assert mul is not None

    def one_element(b: Any, g: Any) -> Any:
        by_x, by_y = mul(b, g)
        off = np.zeros((2, 3))
        off[1, 2] = 1e-3
        return by_x, None if by_y is None else by_y * (1 + cb.tensor(off))

    monkeypatch.setattr(OPS["mul"], "vjp", one_element)
    for fast in (False, True):
        with pytest.raises(GradcheckError) as error:
            gradcheck(lambda a, b: a * b, (x, y), fast_mode=fast, rtol=1e-5)
        assert "output 0 with respect to input 1" in error.value.message
        assert "element (1, 2) of the output by element (1, 2) of the input" in error.value.message
        assert "expected 6, got 6.006; 1 of 36" in error.value.message.replace("00000", "")
    assert not gradcheck(lambda a, b: a * b, (x, y), raise_exception=False, rtol=1e-5)

    monkeypatch.setattr(OPS["mul"], "vjp", mul)
    monkeypatch.setattr(OPS["sin"], "vjp", lambda b, g: g * b.inputs[0].cos().detach())
    assert gradcheck(lambda a: a.sin(), x)
    with pytest.raises(GradcheckError, match="output 0 with respect to input 0"):
        gradgradcheck(lambda a: a.sin(), x)
    monkeypatch.setattr(OPS["cos"], "vjp", lambda b, g: g * 0 + 1)
    with pytest.raises(GradcheckError, match="not made of the gradients|mismatch"):
        gradcheck(lambda a: a.cos(), x)


def test_gradients_that_change_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    x, calls = cb.tensor([1.0, 2.0], dtype="f64", requires_grad=True), []

    def changing(b: Any, g: Any) -> Any:
        calls.append(1)
        return g * (1 + 1e-9 * len(calls))

    monkeypatch.setattr(OPS["neg"], "vjp", lambda b, g: -changing(b, g))
    with pytest.raises(GradcheckError, match="not the same when it is computed again"):
        gradcheck(lambda a: -a, x)
    assert gradcheck(lambda a: -a, x, nondet_tol=1e-6)


def test_what_is_asked_for() -> None:
    x = cb.tensor([1.0, 2.0], dtype="f64", requires_grad=True)
    with pytest.raises(cb.errors.ArgumentError, match="no input needs a gradient"):
        gradcheck(lambda a: a, x.detach())
    with pytest.raises(cb.errors.ArgumentError, match="2 gradients for 1 results"):
        gradgradcheck(lambda a: a * a, x, [x, x])
    with pytest.warns(UserWarning, match=r"inputs \[0\] are not f64"):
        gradcheck(lambda a: a * 2, x.astype("f32").detach().requires_grad_(), eps=1e-2)
    assert gradcheck(lambda a, n, flag: [a**n, a > 1, "text"], (x, 2, True))
    with pytest.raises(GradcheckError, match="expected 1, got 0"):
        gradcheck(lambda a: cb.tensor(a.numpy()), x)
    assert gradgradcheck(lambda a: a * a, x, cb.tensor([3.0, 4.0], dtype="f64"))
