"""Rprop, ASGD, Adafactor and Muon against their formulas, op by op and as programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, LaunchError, ShapeError
from cubepy.nn.optim import ASGD, LBFGS, Adafactor, Muon, Rprop
from tests.backends.hip.emulator.device import emulated
from tests.device.tensors.test_training import trained

Step = Callable[[np.ndarray, np.ndarray, int], np.ndarray]
STEPS = 50


def rprop(
    lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
    step_sizes: tuple[float, float] = (1e-6, 50), maximize: bool = False,
) -> Step:  # fmt: skip
    before, size = [np.zeros(())], [np.full((), lr)]

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        g = -g if maximize else g
        way = np.sign(g * before[-1])
        factor = np.where(way > 0, etas[1], np.where(way < 0, etas[0], 1))
        size.append(np.clip(size[-1] * factor, *step_sizes))
        before.append(np.where(way < 0, 0, g))
        return p - np.sign(before[-1]) * size[-1]

    return step


def asgd(
    lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
    weight_decay: float = 0, maximize: bool = False,
) -> Step:  # fmt: skip
    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        g = (-g if maximize else g) + weight_decay * p
        eta = lr / (1 + lambd * lr * (t - 1)) ** alpha if t > 1 else lr
        return p - lambd * eta * p - eta * g

    return step


def adafactor(
    lr: float = 1e-2, beta2_decay: float = -0.8, eps: tuple[Any, float] = (None, 1e-3),
    d: float = 1.0, weight_decay: float = 0, maximize: bool = False,
) -> Step:  # fmt: skip
    rows, columns, whole = [np.zeros(())], [np.zeros(())], [np.zeros(())]
    least = np.finfo(np.float64).eps if eps[0] is None else eps[0]

    def rms(x: np.ndarray) -> float:
        return float(np.sqrt((x * x).mean()))

    def step(p: np.ndarray, g: np.ndarray, t: int) -> np.ndarray:
        g, share = -g if maximize else g, t**beta2_decay
        rate = max(eps[1], rms(p)) * min(lr, 1 / math.sqrt(t))
        p = p * (1 - lr * weight_decay)
        if g.ndim > 1:
            rows.append(rows[-1] + share * ((g * g).mean(-1, keepdims=True) - rows[-1]))
            columns.append(columns[-1] + share * ((g * g).mean(-2, keepdims=True) - columns[-1]))
            mean = np.maximum(rows[-1].mean(-2, keepdims=True), least)
            square = rows[-1] * columns[-1] / mean
        else:
            whole.append(whole[-1] + share * (g * g - whole[-1]))
            square = whole[-1]
        by = g / np.sqrt(np.maximum(square, least * least))
        return p - by * rate / max(1.0, rms(by) / d)

    return step


CASES: list[tuple[Any, Callable[..., Step], dict[str, Any]]] = [
    (Rprop, rprop, {}),
    (Rprop, rprop, {"lr": 0.1, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.5), "maximize": True}),
    (ASGD, asgd, {}),
    (ASGD, asgd, {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "weight_decay": 0.1, "maximize": True}),
    (Adafactor, adafactor, {}),
    (Adafactor, adafactor, {"lr": 0.1, "eps": (1e-3, 0.1), "d": 1.5, "weight_decay": 0.1}),
    (Adafactor, adafactor, {"beta2_decay": -0.5, "maximize": True}),
]


@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize("shape", [(5, 7), (6,), (), (2, 3, 4)])
@pytest.mark.parametrize(("kind", "formula", "options"), CASES)
def test_steps_are_those_of_the_formula(
    kind: Any, formula: Any, options: Any, shape: tuple[int, ...], program: bool
) -> None:
    rng = np.random.default_rng(3)
    start, slopes = rng.standard_normal(shape), rng.standard_normal((STEPS, *shape))
    p = nn.Parameter(start.copy())
    optimizer, step, want = kind([p], **options), formula(**options), start

    def go(slope: Any) -> None:
        optimizer.zero_grad()
        (p * slope).sum().backward()
        optimizer.step()

    run = cb.jit(go) if program else go
    for t, slope in enumerate(slopes[: STEPS if program else 20], 1):
        run(cb.tensor(slope))
        want = step(want, slope, t)
        np.testing.assert_allclose(p.detach().numpy(), want, rtol=1e-11, atol=1e-12)
    assert not program or sum(run.traces.values()) <= 2


@pytest.mark.parametrize(("kind", "formula", "options"), CASES[::2])
def test_a_loaded_state_goes_on_as_before(kind: Any, formula: Any, options: Any) -> None:
    rng = np.random.default_rng(1)
    grads = rng.standard_normal((8, 4, 3))
    whole, half = (nn.Parameter(np.linspace(-1, 1, 12).reshape(4, 3)) for _ in range(2))
    first, second = kind([whole], **options), kind([half], **options)
    for g in grads:
        whole.grad = cb.tensor(g)
        first.step()
    for n, g in enumerate(grads):
        if n == 4:
            state = second.state_dict()
            second = kind([half], lr=0.5)
            second.load_state_dict(state)
        half.grad = cb.tensor(g)
        second.step()
    np.testing.assert_array_equal(half.detach().numpy(), whole.detach().numpy())


def test_asgd_averages_from_a_step_on() -> None:
    p, kept = nn.Parameter(np.array([1.0, -2.0])), []
    optimizer = ASGD([p], lr=0.1, t0=3)
    for t in range(1, 9):
        p.grad = p.detach() * 2
        optimizer.step()
        kept.append(p.detach().numpy().copy())
        want = kept[-1] if t <= 5 else np.mean(kept[4:], axis=0)
        np.testing.assert_allclose(optimizer.state[p]["ax"].numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(8, 20), (20, 8), (6, 6)])
@pytest.mark.parametrize("options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}])
def test_steps_of_muon_are_orthogonal(options: Any, shape: tuple[int, int], dtype: Any) -> None:
    """The iteration in f64 is a polynomial of singular values; ours is rounded to bf16."""
    rng = np.random.default_rng(0)
    start = rng.standard_normal(shape).astype(dtype)
    p = nn.Parameter(start.copy())
    optimizer = Muon([p], lr=0.1, weight_decay=0.5, **options)
    mean, want = np.zeros(shape), start.astype(np.float64)
    n, m = shape
    matched = 0.2 * math.sqrt(max(n, m))
    factor = matched if "adjust_lr_fn" in options else math.sqrt(max(1, n / m))
    for g in rng.standard_normal((4, *shape)):
        p.grad = cb.tensor(g.astype(dtype))
        optimizer.step()
        mean = 0.95 * mean + 0.05 * g
        by = mean if "nesterov" in options else 0.05 * g + 0.95 * mean
        u, s, vt = np.linalg.svd(by / np.linalg.norm(by), full_matrices=False)
        for _ in range(5):
            s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
        want = want * (1 - 0.05) - 0.1 * factor * (u * s) @ vt
    np.testing.assert_allclose(p.detach().numpy(), want, atol=0.02 * factor)


def test_a_state_of_torch_is_read() -> None:
    """Counts and rates are tensors there, absent buffers None, and groups have other options."""
    p = nn.Parameter(np.array(2.0))  # a number: counts have its shape
    group = {"lr": np.array(0.25), "foreach": None, "params": [0]}
    states = {
        nn.optim.Adam: {"step": np.array(3.0, np.float32), "exp_avg": np.array(0.5),
                        "exp_avg_sq": np.array(0.25)},
        nn.optim.SGD: {"momentum_buffer": None},
    }  # fmt: skip
    for kind, state in states.items():
        optimizer = kind([p])
        optimizer.load_state_dict({"state": {0: state}, "param_groups": [group]})
        p.grad = cb.tensor(np.array(1.0))
        optimizer.step()
        assert optimizer.param_groups[0]["lr"] == 0.25
    assert p.item() == pytest.approx(2.0 - 0.25 * 0.55 / (1 - 0.9**4) / math.sqrt(
        (0.25 * 0.999 + 0.001) / (1 - 0.999**4)) - 0.25, rel=1e-7)  # fmt: skip


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: Rprop([p], etas=(1.5, 2.0)), LaunchError, "etas are below and above 1"),
        (lambda p: Rprop([p], etas=0.5), ArgumentError, "etas are 2 numbers, not 0.5"),
        (lambda p: Rprop([p], step_sizes=(2, 1)), LaunchError, "the least and the largest"),
        (lambda p: ASGD([p], lambd=-1), LaunchError, "lambd"),
        (lambda p: Adafactor([p], d=0.5), LaunchError, "d must be at least 1"),
        (lambda p: Adafactor([p], eps=(None,)), ArgumentError, "eps are 2 numbers"),
        (lambda p: Muon([p]), ShapeError, r"trains matrices, not a parameter of shape \(1,\)"),
        (lambda p: LBFGS([p], line_search_fn="armijo"), ArgumentError, "'strong_wolfe'"),
        (lambda p: LBFGS([p]).step(), ArgumentError, "needs a closure"),
        (
            lambda p: LBFGS([p]).add_param_group({"params": [nn.Parameter([1.0])]}),
            LaunchError,
            "one group",
        ),
    ],
)
def test_wrong_options_are_refused(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make(nn.Parameter([1.0]))


@pytest.mark.parametrize("kind", [Adafactor, Muon])
def test_programs_on_a_gpu_compute_with_numbers_of_a_step(kind: Any) -> None:
    """Numbers of a step are taken from an array of the host, which is at home on every device."""
    found = []
    with emulated("gfx1100"):
        for device, program in (("gfx1100", True), ("gfx1100", False), ("cpu", False)):
            rng = np.random.default_rng(0)
            p = nn.Parameter(cb.tensor(rng.standard_normal((4, 6)).astype("f"), device=device))
            optimizer = kind([p], lr=0.1)

            def step(slope: Any, p: Any = p, optimizer: Any = optimizer) -> None:
                optimizer.zero_grad()
                (p * slope).sum().backward()
                optimizer.step()

            run = cb.jit(step) if program else step
            for _ in range(4):
                run(cb.tensor(rng.standard_normal((4, 6)).astype("f"), device=device))
            found.append(p.detach().numpy())
    for one in found[:2]:  # steps of Muon, of 0.1 at most, are rounded to bf16 on the way
        off = {"atol": 0.01} if kind is Muon else {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(one, found[2], **off)


LOSSES: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: (x * x).mean(),
    "var": lambda x: x.var() + x.mean() * 3 - 1,
    "std": lambda x: (x.std() / 2) ** 2,
    "rows": lambda x: x.softmax(-1).mean(-1).mean() + x.exp().sum(0).mean().log(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_that_begin_with_numbers(loss: str) -> None:
    """What is computed of constants in a program on a GPU is no step of the GPU."""
    given = np.random.default_rng(0).standard_normal((5, 7)).astype("f")
    found = []
    with emulated("gfx1100"):
        for device, program in (("gfx1100", True), ("gfx1100", False), ("cpu", False)):

            def step(x: Any) -> Any:
                x = x.detach().requires_grad_()
                value = LOSSES[loss](x)
                value.backward()
                return value.detach(), x.grad

            run = cb.jit(step) if program else step
            for _ in range(3):
                value, grad = run(cb.tensor(given, device=device))
            found.append((value.numpy(), grad.numpy()))
    for one in found[:2]:
        for got, want in zip(one, found[2], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.day(0, 3)  # steps of two others run there daily
def test_steps_of_a_network_on_an_emulated_gpu() -> None:
    with emulated("gfx1100"):
        for got, want in zip(
            trained("SGD", "gfx1100", True), trained("SGD", "cpu", False), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4)
