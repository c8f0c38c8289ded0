"""What comes often outside of programs, as programs: gradients of ops, functions of several ops.
Each gives what it gave the first times, and so do gradients of gradients.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.nn import functional as F
from cubepy.tensor.array import apply
from cubepy.tensor.control import composed as functions
from cubepy.tensor.control import repeated
from cubepy.tensor.ops import OPS
from tests.tensor.gradients.samples import SAMPLES

OFTEN = [op for op in SAMPLES if OPS[op].kind in repeated.KINDS and op not in repeated.SINGLE]


def given(inputs: tuple[Any, ...]) -> list[Any]:
    return [None if x is None else cb.tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]


@pytest.mark.parametrize("op", OFTEN)
def test_gradients_stay_what_they_were(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "AFTER", 2)
    monkeypatch.setattr(repeated, "_met", {})
    for inputs, attrs in SAMPLES[op]:
        found = []
        for _ in range(6):
            tensors = given(inputs)
            result = apply(op, *tensors, **attrs)
            parts = result if isinstance(result, list) else [result]
            parts = [p for p in parts if p.requires_grad]
            weights = [
                np.random.default_rng(n).standard_normal(p.shape) for n, p in enumerate(parts)
            ]
            total = (parts[0] * cb.tensor(weights[0])).sum()
            for p, w in zip(parts[1:], weights[1:], strict=True):
                total = total + (p * cb.tensor(w)).sum()
            total.backward()
            found.append([t.grad.numpy() for t in tensors if t is not None and t.grad is not None])
        assert found[0]
        for again in found[1:]:
            for one, first in zip(again, found[0], strict=True):
                np.testing.assert_allclose(one, first, rtol=1e-12, atol=1e-13)


RNG = np.random.default_rng(3)


def some(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def calls(name: str) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of a function in a random shape."""
    n, c = int(RNG.integers(1, 6)), int(RNG.integers(2, 9))
    x, y = some(n, c), some(n, c)
    signs, classes = np.sign(y) + (y == 0), RNG.integers(0, c, n)
    reduction = str(RNG.choice(["mean", "sum", "none"]))
    share = 1 / (1 + np.exp(-y))
    known: dict[str, list[Any]] = {
        "cross_entropy": [x, classes],
        "nll_loss": [x, classes],
        "multi_margin_loss": [x, classes],
        "binary_cross_entropy": [1 / (1 + np.exp(-x)), share],
        "binary_cross_entropy_with_logits": [x, share],
        "multilabel_soft_margin_loss": [x, (y > 0).astype(np.float64)],
        "gaussian_nll_loss": [x, y, np.exp(some(n, c))],
        "hinge_embedding_loss": [x, signs],
        "soft_margin_loss": [x, signs],
        "margin_ranking_loss": [x, y, signs],
        "triplet_margin_loss": [x, y, some(n, c)],
        "cosine_embedding_loss": [x, y, signs[:, 0]],
        "prelu": [x, some(1)],
        "leaky_relu": [x, 0.2],
        "group_norm": [some(n, 4, c), 2, some(4), some(4)],
        "normalize": [x],
        "local_response_norm": [some(n, c, 3), 2],
        "threshold": [x, 0.1, 20.0],
        "glu": [some(n, 2 * c)],
        "pixel_shuffle": [some(n, 4, c, 3), 2],
        "pixel_unshuffle": [some(n, 2, 4, 2 * c), 2],
    }
    two = "kl_div poisson_nll_loss mse_loss l1_loss huber_loss smooth_l1_loss".split()
    two += ["cosine_similarity", "pairwise_distance"]
    args = known.get(name) or ([x, y] if name in two else [x])
    names = getattr(F, name).__wrapped__.__code__
    options = names.co_varnames[: names.co_argcount + names.co_kwonlyargcount]
    return args, {"reduction": reduction} if "reduction" in options else {}


COMPOSED = sorted(n for n in F.__all__ if hasattr(getattr(F, n), "__wrapped__") and n != "ctc_loss")


def values(function: Any, args: list[Any], kwargs: dict[str, Any], second: bool) -> list[Any]:
    """The result, gradients by all floats, and gradients of a sum of their squares."""
    tensors = [
        cb.tensor(a, requires_grad=a.dtype.kind == "f") if isinstance(a, np.ndarray) else a
        for a in args
    ]
    leaves = [t for t in tensors if isinstance(t, cb.Tensor) and t.requires_grad]
    # no leaf is given: gradients go on to what comes before
    result = function(
        *[t * 1.0 if any(t is leaf for leaf in leaves) else t for t in tensors], **kwargs
    )
    weight = cb.tensor(np.random.default_rng(0).standard_normal(result.shape))
    (result * weight).sum().backward(create_graph=second)
    found = [result.numpy(), *[t.grad.numpy() for t in leaves if t.grad is not None]]
    if second:
        grads = [t.grad for t in leaves if t.grad is not None]
        if any(g.requires_grad for g in grads):
            for t in leaves:
                t.grad = None
            total = (grads[0] * grads[0]).sum()
            for g in grads[1:]:
                total = total + (g * g).sum()
            total.backward()
            found += [t.grad.numpy() for t in leaves if t.grad is not None]
    return found


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", COMPOSED)
def test_functions_stay_what_they_were(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "AFTER", 1)
    function = getattr(F, name)
    args, kwargs = calls(name)
    for second in (False, True):
        wanted = values(function.__wrapped__, args, kwargs, second)
        for _ in range(4):
            for one, first in zip(values(function, args, kwargs, second), wanted, strict=True):
                np.testing.assert_allclose(one, first, rtol=1e-10, atol=1e-12)


def test_options_and_dtypes_are_kinds_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "AFTER", 1)
    x = cb.tensor([-2.0, 3.0])
    for _ in range(4):
        for slope in (0.1, 0.5, 0, 1):
            np.testing.assert_allclose(F.leaky_relu(x, slope).numpy(), [-2 * slope, 3], rtol=1e-6)
        assert F.leaky_relu(x.astype("f16"), 0.5).dtype is cb.f16
        assert F.leaky_relu(x[None].T, 0.5).shape == (2, 1)
        assert F.mse_loss(x, x * 2, reduction="sum").item() == 13
        assert F.mse_loss(x, x * 2, reduction="mean").item() == 6.5


def test_in_place_changes_the_tensor_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "AFTER", 1)
    for _ in range(4):
        for args, kwargs in (((1.0, True), {}), ((), {"inplace": True})):
            x = cb.tensor([-1.0, 2.0])
            assert F.elu(x, *args, **kwargs) is x
            assert x.tolist()[0] == pytest.approx(np.expm1(-1))


def test_an_index_that_is_no_class_is_refused_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "AFTER", 1)
    x, good, bad = cb.tensor(np.zeros((2, 3), np.float32)), np.array([0, 2]), np.array([0, 3])
    for _ in range(4):
        F.cross_entropy(x, cb.tensor(good))
        with pytest.raises(cb.errors.CubeError):
            F.cross_entropy(x, cb.tensor(bad))


def test_threads_share_what_was_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "AFTER", 1)
    monkeypatch.setattr(repeated, "AFTER", 1)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            a, b = rng.standard_normal((2, 4, 3)).astype(np.float32)
            x = cb.tensor(a, requires_grad=True)
            F.smooth_l1_loss(x.tanh(), cb.tensor(b)).backward()
            t = np.tanh(a)
            by = np.clip(t - b, -1, 1) / a.size * (1 - t * t)
            if not np.allclose(x.grad.numpy(), by, atol=1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_equal_tuples_as_attributes_are_one_kind_and_others_are_not() -> None:
    x = cb.tensor(np.arange(6, dtype=np.float32).reshape(1, 2, 3))
    for _ in range(4):
        for axes in (tuple([0, 2]), (0, 1), tuple([0, 2])):
            np.testing.assert_array_equal(x.sum(axis=axes).numpy(), x.numpy().sum(axis=axes))
        with pytest.raises((cb.errors.CubeError, TypeError)):
            x.sum(axis=(0.0, 2.0))  # type: ignore[arg-type]


def test_numbers_and_tensors_of_rank_0_go_together_again_and_again() -> None:
    x = cb.tensor(np.float32(3), requires_grad=True)
    for _ in range(5):
        y = (x * x + 2) / (x - 1)
        y.backward()
        assert y.item() == 5.5 and x.grad is not None
        assert x.grad.item() == pytest.approx(6 / 2 - 11 / 4)
        x.grad = None
    assert (cb.tensor(2.0) * 3 - 1).item() == 5 and cb.tensor(2).astype("f32").dtype is cb.f32


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("max_pool", lambda x: F.max_pool2d(x, 2)),
        ("adaptive_max_pool", lambda x: F.adaptive_max_pool2d(x, 2)),
        ("batch_norm", lambda x: F.batch_norm(x, None, None, training=True)),
        ("topk", lambda x: x.topk(2, -1)[0]),
    ],
)
def test_results_that_gradients_read_are_not_computed_again(
    name: str, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = cb.tensor(RNG.standard_normal((2, 3, 4, 4)), requires_grad=True)
    y = function(x)
    ran: list[str] = []
    known = OPS[name].run
    monkeypatch.setattr(OPS[name], "run", lambda *a, **k: ran.append(name) or known(*a, **k))
    (y * y).sum().backward()
    assert x.grad is not None and not ran


def test_calls_of_the_library_bind_arguments_as_functions_do() -> None:
    x = cb.tensor(np.ones((1, 1, 4, 4), np.float32), requires_grad=True)
    assert cb.kernels.max_pool2d(x, 2, padding=1).shape == (1, 1, 3, 3)
    for args, kwargs in (((), {}), ((x, 2), {"size": 3}), ((x, 2), {"kernel_size": 2})):
        with pytest.raises(TypeError, match="max_pool2d"):
            cb.kernels.max_pool2d(*args, **kwargs)


@pytest.mark.parametrize("read", [(0,), (1,), (0, 1), (0, 2), (2,)], ids=str)
def test_several_results_have_gradients_as_far_as_they_are_read(
    read: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a tuple with a result that has none, too; and gradients of gradients."""
    monkeypatch.setattr(functions, "AFTER", 1)

    def split(x: Any, y: Any, by: float) -> tuple[Any, ...]:
        both = x * y
        return both.tanh() * by, x > 0, both + x * x

    often = functions.composed(split)
    wanted: list[list[Any]] = []
    for function in (split, *[often] * 4):
        rng = np.random.default_rng(5)
        x, y = (cb.tensor(rng.standard_normal((3, 4)), requires_grad=True) for _ in range(2))
        made = function(x * 1.0, y, 0.5)
        assert type(made) is tuple and not made[1].requires_grad
        total = x.sum() * 0 + y.sum() * 0
        for n in read:
            total = total + (made[n] * made[n]).sum() if n != 1 else total
        total.backward(create_graph=True)
        found = [x.grad, y.grad]
        second = sum((g * g).sum() for g in found)
        x.grad = y.grad = None
        if second.requires_grad:
            second.backward()
        found += [x.grad, y.grad]
        wanted.append([None if t is None else t.numpy().copy() for t in (*made, *found)])
    for again in wanted[1:]:
        for one, plain in zip(again, wanted[0], strict=True):
            assert (one is None) == (plain is None)
            if one is not None:
                np.testing.assert_allclose(one, plain, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("learns", [False, True])
def test_parameters_are_tensors_to_functions_that_come_again(
    learns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "AFTER", 1)
    for n in range(6):
        weight = cb.nn.Parameter(cb.tensor([0.5 + n]), requires_grad=learns)
        x = cb.tensor([-2.0, 3.0 + n])
        y = F.prelu(x, weight)
        assert y.tolist() == [-1.0 - 2 * n, 3.0 + n] and y.requires_grad is learns
        if learns:
            y.sum().backward()
            assert weight.grad is not None and weight.grad.tolist() == [-2.0]
