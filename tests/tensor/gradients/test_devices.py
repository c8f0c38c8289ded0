"""Gradients on a device with its own memory, which is pretended: nothing is computed on the host,
and calls that came before do not lose gradients.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import GradientError
from cubepy.nn import functional as F
from cubepy.tensor.array import constant
from tests.pretend import NAME, PretendBackend, pretend
from tests.tensor.gradients import test_composed as often
from tests.tensor.gradients import test_parts as slices
from tests.tensor.gradients.test_gradients import BINARY, UNARY
from tests.tensor.library_ops import CALLS

RNG = np.random.default_rng(4)
CANCELLED = frozenset(["batch_norm"])
"""Whose second gradients are little that is left of much: of numbers near 500, some near 0.03."""


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendBackend]:
    """The pretended device."""
    with pretend(monkeypatch) as b:
        yield b


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_those_of_the_host(name: str) -> None:
    function, shapes = CALLS[name]
    numbers = tuple(range(len(shapes)))
    dtype = np.float64 if name in CANCELLED else np.float32

    def total(*given: Any) -> Any:
        y = function(*given)
        return (y * y).sum()

    def twice(*given: Any) -> Any:
        return sum((g * g).sum() for g in cb.grad(total, numbers)(*given))

    for f in (cb.grad(total, numbers), cb.grad(twice, numbers)):
        for _ in range(3):
            inputs = [RNG.standard_normal(s).astype(dtype) for s in shapes]
            there = f(*(cb.tensor(x, device=NAME) for x in inputs))
            here = f(*(cb.tensor(x) for x in inputs))
            for a, b in zip(there, here, strict=True):
                assert str(a.device) == NAME
                scale = max(1.0, float(np.abs(b.numpy()).max()))
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=2e-4 * scale)


def test_calls_that_came_before_keep_gradients() -> None:
    x = cb.tensor(RNG.standard_normal((4, 5)).astype(np.float32), device=NAME)
    for _ in range(4):
        want = K.softmax(x, 0)
    wanted = x.detach().requires_grad_()
    for _ in range(4):
        y = K.softmax(wanted, 0)
        assert y.requires_grad and str(y.device) == NAME
        np.testing.assert_array_equal(y.numpy(), want.numpy())
        with cb.no_grad():
            assert not K.softmax(wanted, 0).requires_grad
        assert not K.softmax(x, 0).requires_grad
    with pytest.raises(GradientError, match=r"x\.detach"):
        K.softmax(wanted, 0, out=x)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", UNARY)
def test_gradients_on_the_host_while_another_device_is_current(name: str, order: int) -> None:
    function, low, high = UNARY[name]
    x = RNG.uniform(low, high, (5, 12))

    def total(a: Any) -> Any:
        y = function(a)
        return (y * y).sum()

    def twice(a: Any) -> Any:
        g = cb.grad(total)(a)
        return (g * g).sum()

    f = cb.grad(total if order == 1 else twice)
    want = f(cb.tensor(x, device="cpu")).numpy()
    with cb.use(NAME):
        for _ in range(3):
            got = f(cb.tensor(x, device="cpu"))
            assert str(got.device) == "cpu"
            np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("name", [*BINARY, *CALLS])
def test_calls_on_the_host_while_another_device_is_current(name: str) -> None:
    function, shapes = CALLS[name] if name in CALLS else (BINARY[name], ((3, 4), (4,)))
    given = [RNG.uniform(0.4, 2.0, s).astype(np.float32) for s in shapes]

    def total(*inputs: Any) -> Any:
        y = function(*inputs)
        return (y * y).sum()

    f = cb.grad(total, tuple(range(len(given))))
    want = f(*(cb.tensor(x, device="cpu") for x in given))
    with cb.use(NAME):
        for _ in range(3):
            for one, g in zip(f(*(cb.tensor(x, device="cpu") for x in given)), want, strict=True):
                assert str(one.device) == "cpu"
                np.testing.assert_array_equal(one.numpy(), g.numpy())


def test_numbers_of_numbers_are_at_home_everywhere() -> None:
    with cb.use(NAME):
        y = constant(2.0, cb.f32) * 3 + constant(1.0, cb.f32)
        for device in ("cpu", NAME):
            x = cb.tensor(np.ones(3, np.float32), device=device)
            assert str((x * y).device) == device and (x * y).tolist() == [7.0, 7.0, 7.0]


@pytest.mark.turns(6)
@pytest.mark.parametrize("op", often.OFTEN)
def test_gradients_that_come_often(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with cb.use(NAME):
        often.test_gradients_stay_what_they_were(op, monkeypatch)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", often.COMPOSED)
def test_functions_that_come_often(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with cb.use(NAME):
        often.test_functions_stay_what_they_were(name, monkeypatch)


def test_what_comes_often_is_a_program_beside_numbers_and_other_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The device of the tensors decides, not the current one (a host's are programs beside it)."""
    monkeypatch.setattr(often.repeated, "AFTER", 2)
    monkeypatch.setattr(often.functions, "AFTER", 2)
    monkeypatch.setattr(often.repeated, "_met", {})
    a = RNG.standard_normal((3, 4)).astype(np.float32)
    for n, there in ((n, there) for n in range(6) for there in (NAME, "cpu")):
        with cb.use("cpu"):
            x = cb.tensor(a, device=there, requires_grad=True)
            y = (F.gelu(x) * 2.5 + F.smooth_l1_loss(x, cb.tensor(a + n, device=there))).softmax(-1)
            (y * y).sum().backward()
            assert str(x.grad.device) == there
        if there == NAME:
            found = x.grad.numpy()
        else:
            np.testing.assert_allclose(found, x.grad.numpy(), rtol=1e-5, atol=1e-6)
    kinds = [made for made in often.repeated._met.values() if type(made) is not int]
    assert {made.on_gpu for made in kinds} == {True, False}


def test_numbers_that_were_made_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(often.repeated, "AFTER", 2)
    monkeypatch.setattr(often.functions, "AFTER", 2)
    number = 2.0 + float(RNG.integers(100, 1000))
    with cb.use("python"):
        constant(number, cb.f32)
    for there in ("cpu", NAME):
        for _ in range(6):
            x = cb.tensor([1.0, 3.0], device=there, requires_grad=True)
            (x * number).sum().backward()
            assert x.grad.tolist() == [number, number]
            x.grad = None
            F.mse_loss(x * number, x).backward()  # (n x - x)^2 / 2
            assert x.grad.tolist() == [(number - 1) ** 2, 3 * (number - 1) ** 2]


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(60))
def test_gradients_by_slices(seed: int) -> None:
    with cb.use(NAME):
        slices.test_gradients_by_slices_are_sums_of_what_goes_to_a_place(seed)
        slices.test_gradients_by_slices_of_what_was_computed()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("how", ["unbind", "split", "chunk"])
def test_gradients_by_all_slices_are_joined(how: str, axis: int) -> None:
    """Without zeros around each, and sums of these."""
    array = RNG.standard_normal((4, 6, 5)).astype(np.float32)
    x = cb.tensor(array, device=NAME, requires_grad=True)
    parts = {"unbind": x.unbind, "split": lambda d: x.split(2, d), "chunk": lambda d: x.chunk(3, d)}
    made = parts[how](axis)
    weights = [RNG.standard_normal(p.shape).astype(np.float32) for p in made]
    total = sum(
        (p * cb.tensor(w, device=NAME)).sum()
        for p, w in reversed([*zip(made, weights, strict=True)])
    )
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as m:
        engine = importlib.import_module("cubepy.tensor.gradients.engine")
        apply = engine._apply()
        m.setattr(
            engine, "_apply", lambda: lambda op, *a, **k: (seen.append(op), apply(op, *a, **k))[1]
        )
        total.backward()
    assert seen == ["concat"]
    join = np.stack if how == "unbind" else np.concatenate
    np.testing.assert_array_equal(x.grad.numpy(), join(weights, axis))
