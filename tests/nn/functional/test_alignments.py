"""CTC against the sum over all ways, layouts of labels, programs, what is too short, gradients."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import DTypeError, LaunchError, ShapeError
from cubepy.nn import functional as F
from cubepy.nn.functional.losses.alignments import formula
from tests.backends.hip.emulator.device import emulated
from tests.tensor.finite import check_gradients

T, N, C = 5, 4, 3
RNG = np.random.default_rng(0)
LOGITS = RNG.standard_normal((T, N, C))
TARGETS = np.array([[1, 2, 0], [1, 1, 2], [2, 0, 0], [2, 1, 2]])
STEPS, COUNTS = [5, 5, 4, 3], [2, 3, 0, 3]


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def told(way: tuple[int, ...], blank: int) -> list[int]:
    """What a way says: repetitions count once, blanks not at all."""
    return [k for k, _ in itertools.groupby(way) if k != blank]


def summed(log: np.ndarray, labels: list[int], blank: int) -> float:
    """Minus the logarithm of the sum over all ways that say the labels."""
    ways = itertools.product(range(log.shape[1]), repeat=len(log))
    total = sum(
        math.exp(sum(log[t, k] for t, k in enumerate(way)))
        for way in ways
        if told(way, blank) == labels
    )
    return -math.log(total) if total else math.inf


def losses(logits: np.ndarray, blank: int = 0, targets: np.ndarray = TARGETS) -> np.ndarray:
    log = log_softmax(logits)
    return np.array(
        [summed(log[: STEPS[n], n], targets[n, : COUNTS[n]].tolist(), blank) for n in range(N)]
    )


@pytest.mark.parametrize("device", ["cpu", "python"])
@pytest.mark.parametrize("rows", [False, True])
def test_losses_are_sums_over_all_ways(rows: bool, device: str) -> None:
    want = losses(LOGITS)
    labels = np.concatenate([t[:n] for t, n in zip(TARGETS, COUNTS, strict=True)])
    with cb.use(device):
        log = cb.tensor(LOGITS).log_softmax(-1)
        given = log, labels if rows else TARGETS, STEPS, cb.tensor(COUNTS)
        np.testing.assert_allclose(F.ctc_loss(*given, reduction="none").numpy(), want, rtol=1e-12)
        assert F.ctc_loss(*given, reduction="sum").item() == pytest.approx(want.sum(), rel=1e-12)
        mean = (want / np.maximum(COUNTS, 1)).mean()
        assert nn.CTCLoss()(*given).item() == pytest.approx(mean, rel=1e-12)


def test_losses_and_gradients_on_a_gpu() -> None:
    x = LOGITS.astype(np.float32)
    made = []
    with emulated("gfx1100"):
        for device in ("cpu", "gfx1100"):
            given = cb.tensor(x).to(device).requires_grad_()
            F.ctc_loss(given.log_softmax(-1), TARGETS, STEPS, COUNTS).backward()
            made.append(given.grad.to("cpu").numpy())
    np.testing.assert_allclose(made[1], made[0], rtol=1e-4, atol=1e-6)


def test_any_class_may_be_the_blank() -> None:
    targets = np.where(TARGETS == 2, 0, TARGETS)
    found = F.ctc_loss(cb.tensor(LOGITS).log_softmax(-1), targets, STEPS, COUNTS, 2, "none")
    np.testing.assert_allclose(found.numpy(), losses(LOGITS, 2, targets), rtol=1e-12)


def test_one_sequence_needs_no_batch() -> None:
    log = cb.tensor(LOGITS[:, 1]).log_softmax(-1)
    for steps, count in ((5, 3), (cb.tensor(5), cb.tensor([3]))):
        found = F.ctc_loss(log, TARGETS[1], steps, count, reduction="sum")
        assert found.shape == () and found.item() == pytest.approx(losses(LOGITS)[1], rel=1e-12)


def test_what_is_too_short_is_infinite_or_counts_as_zero() -> None:
    x = cb.tensor(LOGITS, requires_grad=True)
    given = TARGETS, [5, 3, 4, 2], COUNTS  # 1 1 2 needs four steps, 2 1 2 three
    found = F.ctc_loss(x.log_softmax(-1), *given, reduction="none")
    assert np.isinf(found.detach().numpy()).tolist() == [False, True, False, True]
    loss = F.ctc_loss(x.log_softmax(-1), *given, reduction="none", zero_infinity=True)
    assert loss.detach().numpy()[1] == 0
    loss.sum().backward()
    by_row = abs(x.grad.numpy()).sum((0, 2))
    assert np.isfinite(by_row).all() and (by_row > 0).tolist() == [True, False, True, False]
    empty = F.ctc_loss(x.log_softmax(-1), TARGETS, [0] * N, [0, 0, 1, 0], reduction="none")
    assert empty.detach().tolist() == [0.0, 0.0, math.inf, 0.0]


def test_gradients_of_any_order() -> None:
    def loss(x: Any) -> Any:
        return F.ctc_loss(x, TARGETS, STEPS, COUNTS, reduction="none")

    check_gradients(loss, LOGITS)
    check_gradients(lambda x: loss(x.log_softmax(-1)).sum(), LOGITS)


def test_the_formula_is_the_kernel() -> None:
    labels = cb.tensor(TARGETS.reshape(-1))
    sequences = cb.tensor(np.array([range(0, 12, 3), STEPS, COUNTS]))
    found = formula(cb.tensor(log_softmax(LOGITS)), labels, sequences, 3, 0)
    np.testing.assert_allclose(found.numpy(), losses(LOGITS), rtol=1e-12)


@pytest.mark.parametrize("rows", [False, True])
def test_programs_take_lengths_as_arguments(rows: bool) -> None:
    labels = np.concatenate([t[:n] for t, n in zip(TARGETS, COUNTS, strict=True)])

    @cb.jit
    def step(x: Any, targets: Any, steps: Any, counts: Any) -> Any:
        return cb.value_and_grad(
            lambda x: F.ctc_loss(x.log_softmax(-1), targets, steps, counts, reduction="sum")
        )(x)

    for scale in (1.0, 2.0, 0.5):
        given = [cb.tensor(np.array(x)) for x in (labels if rows else TARGETS, STEPS, COUNTS)]
        x = cb.tensor(LOGITS * scale, requires_grad=True)
        value, gradient = step(cb.tensor(LOGITS * scale), *given)
        F.ctc_loss(x.log_softmax(-1), *given, reduction="sum").backward()
        assert value.item() == pytest.approx(losses(LOGITS * scale).sum(), rel=1e-12)
        np.testing.assert_allclose(gradient.numpy(), x.grad.numpy(), rtol=1e-9, atol=1e-12)
    assert sum(step.traces.values()) == 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_narrow_floats_are_summed_in_f32(dtype: Any) -> None:
    x = log_softmax(RNG.standard_normal((60, 3, 7))).astype(dtype)
    targets = RNG.integers(1, 7, (3, 20))
    given = targets, [60, 55, 50], [20, 15, 10]
    want = F.ctc_loss(x.astype(np.float64), *given)
    found = F.ctc_loss(x, *given)
    assert found.numpy().dtype == dtype
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert float(found.numpy()) == pytest.approx(want.item(), rel=8 * eps)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"log_probs": np.ones((2, 3, 4, 5))}, ShapeError, r"\(T, N, C\) or \(T, C\)"),
        ({"targets": TARGETS * 1.0}, DTypeError, "labels are integers, not f64"),
        ({"targets": TARGETS[:2]}, ShapeError, r"4 sequences have no targets of shape \(2, 3\)"),
        ({"targets": np.array([1, 2])}, ShapeError, "from 0 to 2, not 0 to 3"),
        ({"targets": np.ones(4, int)}, ShapeError, "4 targets are not the 8 of all lengths"),
        ({"input_lengths": [6, 5, 5, 5]}, ShapeError, "input_lengths are from 0 to 5, not 5 to 6"),
        ({"target_lengths": [1, 2]}, ShapeError, "target_lengths are 4 integers"),
        ({"blank": 3}, LaunchError, "one of 3 classes, not 3"),
    ],
)
def test_what_does_not_go_together_is_refused(change: Any, error: Any, text: str) -> None:
    given = {"log_probs": LOGITS, "targets": TARGETS, "input_lengths": STEPS,
             "target_lengths": COUNTS}  # fmt: skip
    with pytest.raises(error, match=text):
        F.ctc_loss(**{**given, **change})
