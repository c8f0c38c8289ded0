"""Losses of margins and distributions: what torch's samples do not say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, DTypeError, LaunchError, ShapeError
from cubepy.nn import functional as F
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(3)


def some(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape)


def signs(*shape: int) -> np.ndarray:
    return RNG.choice([-1.0, 1.0], shape)


X, OTHER, T, LABELS = some(4, 5), some(4, 5), signs(4, 5), RNG.integers(0, 5, 4)
SEVERAL = np.array([[3, 0, -1, 1, 2], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0], [2, 2, -1, 0, 0]])
LOSSES: dict[str, Callable[..., Any]] = {
    "margin_ranking_loss": lambda x, **how: F.margin_ranking_loss(x, OTHER, T, 0.3, **how),
    "hinge_embedding_loss": lambda x, **how: F.hinge_embedding_loss(x, T, **how),
    "triplet_margin_loss": lambda x, **how: F.triplet_margin_loss(x, OTHER, OTHER[::-1], **how),
    "soft_margin_loss": lambda x, **how: F.soft_margin_loss(x, T, **how),
    "multi_margin_loss": lambda x, **how: F.multi_margin_loss(x, LABELS, 2, **how),
    "multilabel_margin_loss": lambda x, **how: F.multilabel_margin_loss(x, SEVERAL, **how),
    "multilabel_soft_margin_loss": lambda x, **how: F.multilabel_soft_margin_loss(x, T > 0, **how),
    "gaussian_nll_loss": lambda x, **how: F.gaussian_nll_loss(x, OTHER, T * T + 1, True, **how),
    "poisson_nll_loss": lambda x, **how: F.poisson_nll_loss(x, OTHER * OTHER, full=True, **how),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_have_reductions_programs_and_narrow_floats(name: str) -> None:
    loss = LOSSES[name]
    each = loss(cb.tensor(X), reduction="none").numpy()
    np.testing.assert_allclose(loss(cb.tensor(X)).numpy(), each.mean(), rtol=1e-12)
    np.testing.assert_allclose(loss(cb.tensor(X), reduction="sum").numpy(), each.sum(), rtol=1e-12)
    program = cb.jit(loss)
    for _ in range(3):
        np.testing.assert_allclose(program(cb.tensor(X)).numpy(), each.mean(), rtol=1e-12)
    narrow = loss(cb.tensor(X).half())
    assert narrow.dtype is cb.f16 and abs(narrow.item() - each.mean()) < 0.01 * abs(each.mean())
    with pytest.raises(LaunchError, match="reduction is"):
        loss(cb.tensor(X), reduction="median")


def test_a_row_of_several_labels_is_the_sum_that_it_is() -> None:
    want = []
    for x, t in zip(X, SEVERAL, strict=True):
        labels = [int(j) for j in t[: list(t).index(-1) if -1 in t else len(t)]]
        others = [i for i in range(5) if i not in labels]
        want.append(sum(max(0.0, 1 - x[j] + x[i]) for j in labels for i in others) / 5)
    found = F.multilabel_margin_loss(X, SEVERAL, reduction="none")
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12)
    check_gradients(lambda x: F.multilabel_margin_loss(x, SEVERAL), X, second=False)


def test_triplets_take_any_distance() -> None:
    def angle(a: Any, b: Any) -> Any:
        return 1 - F.cosine_similarity(a, b)

    a, p, n = some(6, 3), some(6, 3), some(6, 3)

    def loss(*given: Any) -> Any:
        return F.triplet_margin_with_distance_loss(
            *given, distance_function=angle, margin=0.5, swap=True, reduction="none"
        )

    def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)

    away = np.minimum(1 - cosine(a, n), 1 - cosine(p, n))
    want = np.maximum(0, 0.5 + 1 - cosine(a, p) - away)
    np.testing.assert_allclose(loss(*map(cb.tensor, (a, p, n))).numpy(), want, rtol=1e-9)
    check_gradients(loss, a, p, n, second=False)
    same = F.triplet_margin_with_distance_loss(a, p, n)
    np.testing.assert_array_equal(same.numpy(), F.triplet_margin_loss(a, p, n).numpy())


def test_losses_of_huge_numbers_are_finite() -> None:
    assert F.soft_margin_loss([1e4, -1e4], [-1, -1], reduction="none").tolist() == [1e4, 0.0]
    assert F.gaussian_nll_loss([0.0], [0.0], [0.0], eps=1.0).item() == 0.0
    x = cb.tensor([0.0], requires_grad=True)
    F.poisson_nll_loss(x, [0.0], log_input=False, eps=0.5).backward()
    assert x.grad.tolist() == [1.0]


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (ShapeError, lambda: F.margin_ranking_loss(X, X, 1.0)),
        (ShapeError, lambda: F.triplet_margin_loss(X, X, X[0])),
        (ShapeError, lambda: F.multi_margin_loss(X, LABELS[:2])),
        (ShapeError, lambda: F.multi_margin_loss(X, LABELS, weight=[1.0])),
        (DTypeError, lambda: F.multi_margin_loss(X, X[:, 0])),
        (LaunchError, lambda: F.multi_margin_loss(X, LABELS, 3)),
        (ShapeError, lambda: F.multilabel_margin_loss(X, SEVERAL[:, :2])),
        (ShapeError, lambda: F.multilabel_soft_margin_loss(X, X[:2])),
        (ShapeError, lambda: F.gaussian_nll_loss(X, X, X[:2])),
        (ArgumentError, lambda: F.margin_ranking_loss(X, X, X, margin="wide")),
    ],
)
def test_what_does_not_go_together_is_refused(error: Any, wrong: Callable[[], Any]) -> None:
    with pytest.raises(error):
        wrong()


def test_the_losses_of_one_row_have_the_target_s_shape() -> None:
    row = cb.tensor([0.5, 0.0, 1.0, -4.0])
    for target, shape in ((0, ()), ([0], (1,))):
        found = F.multi_margin_loss(row, target, reduction="none")
        assert found.shape == shape and float(found.numpy().reshape(())) == 0.5
