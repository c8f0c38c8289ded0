"""Losses against their formulas in NumPy, their gradients against differences, hard cases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import DTypeError, LaunchError, ShapeError
from cubepy.nn import functional as F
from cubepy.nn.functional.losses import classes as losses
from tests.backends.hip.emulator.device import emulated
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(5)


def some(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape)


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    x = x - x.max(axis=axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


def entropy(
    x: np.ndarray, t: np.ndarray, w: np.ndarray, ignored: int, smooth: float, reduction: str
) -> Any:
    """One sample after the other, as the definition says."""
    log = np.moveaxis(log_softmax(x, 1), 1, -1).reshape(-1, x.shape[1])
    losses, weights = [], []
    for row, c in zip(log, t.ravel(), strict=True):
        if c == ignored:
            losses.append(0.0)
            continue
        spread = sum(-row[k] * w[k] for k in range(len(w))) / len(w)
        losses.append((1 - smooth) * -row[c] * w[c] + smooth * spread)
        weights.append(w[c])
    if reduction == "none":
        return np.reshape(losses, t.shape)
    return sum(losses) / (sum(weights) if reduction == "mean" else 1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smooth", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 2), (2, 4, 3, 2)])
def test_cross_entropy_of_classes(
    shape: tuple[int, ...], weighted: bool, smooth: float, reduction: str
) -> None:
    x, t = some(*shape), RNG.integers(0, 4, (shape[0], *shape[2:]))
    t.flat[1] = 2
    w = some(4, low=0.5) if weighted else np.ones(4)
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smooth, "ignore_index": 2}

    def loss(x: Any) -> Any:
        return F.cross_entropy(x, t, w if weighted else None, **options)

    want = entropy(x, t, w, 2, smooth, reduction)
    np.testing.assert_allclose(loss(cb.tensor(x)).numpy(), want, rtol=1e-12, atol=1e-14)
    if shape == (3, 4, 2):
        check_gradients(loss, x)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smooth", [0.0, 0.2])
def test_cross_entropy_of_probabilities(smooth: float, reduction: str) -> None:
    x, t, w = some(3, 4, 2), some(3, 4, 2, low=0), some(4, low=0.5)
    share = (t * (1 - smooth) + smooth / 4) * w[:, None]
    each = -(log_softmax(x, 1) * share).sum(1)
    want = each if reduction == "none" else each.sum() / (each.size if reduction == "mean" else 1)

    def loss(x: Any, t: Any) -> Any:
        return F.cross_entropy(x, t, w, label_smoothing=smooth, reduction=reduction)

    np.testing.assert_allclose(loss(cb.tensor(x), cb.tensor(t)).numpy(), want, rtol=1e-12)
    check_gradients(loss, x, t)


def test_cross_entropy_of_one_sample_and_of_huge_numbers() -> None:
    assert F.cross_entropy([0.0, 0.0], 1).item() == pytest.approx(math.log(2))
    x = cb.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    loss = F.cross_entropy(x, [2])
    loss.backward()
    assert loss.item() == 2e4 and x.grad.tolist() == [[1.0, 0.0, -1.0]]


def test_cross_entropy_of_nothing_that_counts_is_nan() -> None:
    assert math.isnan(F.cross_entropy([[1.0, 2.0]], [-100]).item())
    assert F.cross_entropy([[1.0, 2.0]], [-100], reduction="sum").item() == 0.0


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_losses_are_summed_in_f32(dtype: Any) -> None:
    x = (RNG.standard_normal((3000, 11)) * 3).astype(dtype)
    t = RNG.integers(0, 11, 3000)
    got = F.cross_entropy(x, t)
    want = entropy(x.astype(np.float64), t, np.ones(11), -100, 0.0, "mean")
    assert got.dtype == cb.tensor(x).dtype
    assert got.item() == pytest.approx(want, rel=float(ml_dtypes.finfo(dtype).eps))
    ones = np.full(70000, 1.0, dtype)
    assert F.mse_loss(ones, ones * 0).item() == 1.0


def bce(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return -(y * np.log(x) + (1 - y) * np.log(1 - x))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def kl(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(y * (np.log(y) - x))


def piecewise(x: np.ndarray, y: np.ndarray, delta: float) -> np.ndarray:
    d = abs(x - y)
    return np.where(d <= delta, d * d / 2, delta * (d - delta / 2))


W = some(3, 4, low=0.5)
POSITIVE = some(4, low=0.5)
PAIRS: dict[str, tuple[Any, Any, float, float]] = {
    "mse_loss": (F.mse_loss, lambda x, y: (x - y) ** 2, -2, 2),
    "l1_loss": (F.l1_loss, lambda x, y: abs(x - y), -2, 2),
    "huber": (
        lambda x, y, **o: F.huber_loss(x, y, delta=0.7, **o),
        lambda x, y: piecewise(x, y, 0.7),
        -2,
        2,
    ),
    "smooth_l1": (
        lambda x, y, **o: F.smooth_l1_loss(x, y, beta=0.7, **o),
        lambda x, y: piecewise(x, y, 0.7) / 0.7,
        -2,
        2,
    ),
    "smooth_l1_of_0": (
        lambda x, y, **o: F.smooth_l1_loss(x, y, beta=0.0, **o),
        lambda x, y: abs(x - y),
        -2,
        2,
    ),
    "bce": (F.binary_cross_entropy, bce, 0.1, 0.9),
    "bce_weight": (
        lambda x, y, **o: F.binary_cross_entropy(x, y, W, **o),
        lambda x, y: bce(x, y) * W,
        0.1,
        0.9,
    ),
    "bce_logits": (F.binary_cross_entropy_with_logits, lambda x, y: bce(sigmoid(x), y), -2, 2),
    "bce_logits_weights": (
        lambda x, y, **o: F.binary_cross_entropy_with_logits(x, y, W, pos_weight=POSITIVE, **o),
        lambda x, y: -W * (POSITIVE * y * np.log(sigmoid(x)) + (1 - y) * np.log(sigmoid(-x))),
        -2,
        2,
    ),
    "kl_div": (F.kl_div, kl, 0.2, 2),
    "kl_div_log": (
        lambda x, y, **o: F.kl_div(x, y, log_target=True, **o),
        lambda x, y: kl(x, np.exp(y)),
        -2,
        2,
    ),
}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", PAIRS)
def test_losses_of_pairs(name: str, reduction: str) -> None:
    loss, formula, low, high = PAIRS[name]
    x, y = some(3, 4, low=low, high=high), some(3, 4, low=low, high=high)
    want = formula(x, y)
    want = want if reduction == "none" else getattr(want, reduction)()
    got = loss(cb.tensor(x), cb.tensor(y), reduction=reduction)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-14)
    if reduction == "none":
        check_gradients(loss, x, y)


def test_bce_at_the_ends() -> None:
    p = cb.tensor([0.0, 1.0, 0.0, 1.0], requires_grad=True)
    loss = F.binary_cross_entropy(p, [0.0, 1.0, 1.0, 0.0], reduction="none")
    assert loss.tolist() == [0.0, 0.0, 100.0, 100.0]
    loss.sum().backward()
    assert np.isfinite(p.grad.numpy()).all()


def test_bce_with_logits_of_huge_numbers() -> None:
    x = cb.tensor([1e4, -1e4, 1e4, -1e4, 0.0], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(x, [1.0, 0.0, 0.0, 1.0, 0.5], reduction="none")
    np.testing.assert_allclose(loss.detach().numpy(), [0, 0, 1e4, 1e4, math.log(2)], rtol=1e-6)
    loss.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 1.0, -1.0, 0.0]


def test_kl_div_takes_zeros_and_batches() -> None:
    x, y = np.log(np.array([[0.25, 0.75], [0.5, 0.5]])), np.array([[0.0, 1.0], [0.5, 0.5]])
    assert F.kl_div(x, y, reduction="batchmean").item() == pytest.approx(-math.log(0.75) / 2)


def test_cosines() -> None:
    a, b, t = some(5, 3), some(5, 3), np.array([1, -1, 1, -1, 1])
    cosine = (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))
    np.testing.assert_allclose(F.cosine_similarity(a, b).numpy(), cosine, rtol=1e-12)
    each = np.where(t == 1, 1 - cosine, np.maximum(cosine + 0.2, 0))
    got = F.cosine_embedding_loss(a, b, t, -0.2, reduction="none")
    np.testing.assert_allclose(got.numpy(), each, rtol=1e-12)
    check_gradients(F.cosine_similarity, a, b)
    check_gradients(lambda a, b: F.cosine_embedding_loss(a, b, t, -0.2), a, b)


def test_the_cosine_of_zeros_is_zero_and_has_a_gradient() -> None:
    x = cb.tensor([[0.0, 0.0]], requires_grad=True)
    F.cosine_similarity(x, [[1.0, 2.0]]).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


MODULES: list[tuple[Any, Any]] = [
    (nn.MSELoss(reduction="sum"), lambda x, y: F.mse_loss(x, y, reduction="sum")),
    (nn.L1Loss(), F.l1_loss),
    (nn.SmoothL1Loss(beta=0.5), lambda x, y: F.smooth_l1_loss(x, y, beta=0.5)),
    (nn.HuberLoss(delta=0.5), lambda x, y: F.huber_loss(x, y, delta=0.5)),
    (nn.BCELoss(W), lambda x, y: F.binary_cross_entropy(x, y, W)),
    (
        nn.BCEWithLogitsLoss(pos_weight=POSITIVE),
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=POSITIVE),
    ),
    (nn.KLDivLoss("batchmean"), lambda x, y: F.kl_div(x, y, reduction="batchmean")),
    (
        nn.CrossEntropyLoss(POSITIVE, label_smoothing=0.1),
        lambda x, y: F.cross_entropy(x, y, POSITIVE, label_smoothing=0.1),
    ),
]


@pytest.mark.parametrize(("module", "function"), MODULES, ids=lambda m: type(m).__name__)
def test_modules_are_the_functions(module: Any, function: Any) -> None:
    x, y = some(3, 4, low=0.1, high=0.9), some(3, 4, low=0.1, high=0.9)
    assert module(x, y).item() == function(x, y).item()


def test_modules_of_classes() -> None:
    x, t = log_softmax(some(3, 4), 1), np.array([1, 2, 3])
    assert nn.NLLLoss(ignore_index=2)(x, t).item() == pytest.approx(-(x[0, 1] + x[2, 3]) / 2)
    assert nn.CosineEmbeddingLoss(0.1)(x, x, t * 0 - 1).item() == pytest.approx(0.9)
    assert list(nn.CrossEntropyLoss(POSITIVE).state_dict()) == ["weight"]


def test_one_hot() -> None:
    assert F.one_hot([[1], [0]], 3).tolist() == [[[0, 1, 0]], [[1, 0, 0]]]
    with pytest.raises(LaunchError, match="classes are 0 to 1"):
        F.one_hot([2], 2)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: F.mse_loss([1.0], [1.0, 2.0]), ShapeError, "has a target of shape"),
        (lambda: F.mse_loss([1.0], [1.0], reduction="most"), LaunchError, "reduction is"),
        (lambda: F.cross_entropy([[1.0, 2.0]], [0.5]), DTypeError, "classes are integers"),
        (lambda: F.cross_entropy([[1.0, 2.0]], [0, 1]), ShapeError, "has a target of shape"),
        (lambda: F.cross_entropy([[1.0, 2.0]], [0], [1.0]), ShapeError, "each of 2 classes"),
        (lambda: F.binary_cross_entropy([1.0], [1.0, 2.0]), ShapeError, "no target"),
        (lambda: F.cross_entropy([[1.0]], [0], label_smoothing=2), LaunchError, "from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


@pytest.fixture(params=["cpu", "python", "gfx1100"])
def rows_on_a_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A device whose losses are computed as on a GPU: of rows, without all logarithms."""
    if request.param == "gfx1100":
        with emulated("gfx1100"):
            yield request.param
        return

    def always(x: Any, target: Any, axis: int, smooth: float) -> bool:
        return axis == x.ndim - 1 and not smooth and target.dtype.is_int and x.size > 0

    monkeypatch.setattr(losses, "target_rows", always)
    yield request.param


@pytest.mark.turns(6)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_rows_of_a_gpu_need_no_logarithms_of_all(rows_on_a_gpu: str, dtype: str) -> None:
    """The loss, and its gradient, of rows of odd lengths, large numbers, -inf, ignored ones."""
    for shape in ((7, 33), (1, 1), (5, 130)):
        x = cb.tensor(some(*shape, high=9.0)).astype(dtype).numpy().copy()
        t = RNG.integers(0, shape[1], shape[0])
        if shape[0] > 1:
            t[0], x[1, 0], x[2] = -100, 60.0, x[2] + 40
            x[3, (t[3] + 1) % shape[1]] = -np.inf
        wide = x.astype(np.float64)
        one = np.eye(shape[1])[np.where(t == -100, 0, t)]
        counted = (t != -100)[:, None]
        right = ((np.exp(log_softmax(wide, 1)) - one) * counted) / max(counted.sum(), 1)
        with cb.use(rows_on_a_gpu):
            given = cb.tensor(x, device=rows_on_a_gpu, requires_grad=True)
            of = cb.tensor(t, device=rows_on_a_gpu)
            for run in (lambda a: F.cross_entropy(a, of), cb.jit(lambda a: F.cross_entropy(a, of))):
                given.grad = None
                loss = run(given)
                loss.backward()
                want = -(log_softmax(wide, 1)[one > 0] * counted[:, 0]).sum() / counted.sum()
                step = {"f32": 2e-6, "bf16": 8e-3, "f16": 1e-3}[dtype]
                assert abs(loss.item() - want) <= step * max(1.0, abs(want))
                found = given.grad.numpy().astype(np.float64)
                assert np.abs(found - right).max() <= step * np.abs(right).max() + 1e-9


def test_rows_of_a_gpu_have_second_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "target_rows", lambda x, t, axis, smooth: True)
    t, w = np.array([2, 0, 4, -100]), some(5, low=0.5)
    x = some(4, 5)
    check_gradients(lambda a: F.cross_entropy(a, t), x)
    check_gradients(lambda a: F.cross_entropy(a, t, w, reduction="sum"), x)
    first = cb.grad(
        lambda a: (F.cross_entropy(a, t, reduction="none") * [1.0, 2.0, 3.0, 4.0]).sum()
    )
    check_gradients(lambda a: (first(a) * np.arange(20.0).reshape(4, 5)).sum(), x)


def test_one_hot_in_a_program_is_told_how_many_classes() -> None:
    run = cb.jit(lambda x: F.one_hot(x, 4))
    for x in ([[0, 3], [1, 1]], [[2, 5], [0, 3]]):  # 5 is no class: nobody looks
        want = np.array(x)[..., None] == np.arange(4)
        np.testing.assert_array_equal(run(cb.tensor(x)).numpy(), want)
    with pytest.raises(LaunchError, match="one_hot needs num_classes in a program"):
        cb.jit(lambda x: F.one_hot(x))(cb.tensor([1]))
    with pytest.raises(LaunchError, match="classes are 0 to 3; the largest integer is 5"):
        F.one_hot([5], 4)
