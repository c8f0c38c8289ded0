"""Functions that code for PyTorch asks for: padding, norms of a batch, bags, dropout of channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, DTypeError, LaunchError, ShapeError
from cubepy.nn import functional as F
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2, 3, 4, 5))
TABLE = RNG.standard_normal((6, 3))
MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "constant": "constant"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_padding_is_that_of_numpy(mode: str, dtype: Any) -> None:
    x = (X * 8).astype(dtype)
    want = np.pad(x, [(0, 0), (0, 0), (1, 3), (4, 0)], MODES[mode])
    pad = cb.jit(lambda x: F.pad(x, (4, 0, 1, 3), mode))
    for _ in range(3):
        np.testing.assert_array_equal(pad(cb.tensor(x)).numpy(), want)
    np.testing.assert_array_equal(F.pad(x, [4, 0, 1, 3], mode=mode).numpy(), want)
    if dtype is np.float64:
        check_gradients(lambda x: F.pad(x, (2, -1, -1, 2), mode), X)


def test_padding_takes_a_number_and_takes_away() -> None:
    assert F.pad([1, 2, 3], (1, -2), value=7).tolist() == [7, 1]
    assert F.pad([1.0, 2.0], (0, 0)).tolist() == [1.0, 2.0]
    assert F.pad([1.0, 2.0, 3.0], (-1, 2), "replicate").tolist() == [2.0, 3.0, 3.0, 3.0]
    assert F.pad([1.0, 2.0, 3.0], (-1, 2), "circular").tolist() == [2.0, 3.0, 2.0, 3.0]


def test_a_batch_norm_moves_its_running_values() -> None:
    mean, var = cb.tensor(np.full(3, 2.0)), cb.tensor(np.full(3, 4.0))
    weight, bias = RNG.standard_normal((2, 3))
    layer = nn.BatchNorm2d(3).to("f64")
    layer.load_state_dict(
        {"weight": weight, "bias": bias, "running_mean": mean, "running_var": var}, strict=False
    )
    for training in (True, False, True):
        layer.train(training)
        found = F.batch_norm(X, mean, var, weight, bias, training)
        np.testing.assert_allclose(found.numpy(), layer(X).detach().numpy(), rtol=1e-9)
        np.testing.assert_allclose(mean.numpy(), layer.running_mean.numpy(), rtol=1e-12)
        np.testing.assert_allclose(var.numpy(), layer.running_var.numpy(), rtol=1e-12)
    alone = F.batch_norm(X, None, None, training=True).numpy()
    np.testing.assert_allclose(alone.mean((0, 2, 3)), 0, atol=1e-12)
    check_gradients(lambda x: F.batch_norm(x, None, None, training=True), X)


def test_a_batch_norm_moves_running_values_in_a_program() -> None:
    mean, var = cb.tensor(np.zeros(3)), cb.tensor(np.ones(3))
    step = cb.jit(lambda x: F.batch_norm(x, mean, var, training=True, momentum=0.5))
    for n in range(1, 4):
        step(cb.tensor(X))
        np.testing.assert_allclose(mean.numpy(), X.mean((0, 2, 3)) * (1 - 0.5**n), rtol=1e-9)


def test_pools_of_norms_are_norms() -> None:
    x = np.abs(X)
    want = (x.reshape(2, 3, 2, 2, 5)[..., :4].reshape(2, 3, 2, 2, 2, 2) ** 3).sum((3, 5)) ** (1 / 3)
    np.testing.assert_allclose(F.lp_pool2d(x, 3, 2).numpy(), want, rtol=1e-12)
    rows = x[:, :, 0]
    one = np.sqrt((rows[..., :4].reshape(2, 3, 2, 2) ** 2).sum(-1))
    np.testing.assert_allclose(F.lp_pool1d(rows, 2, 2).numpy(), one, rtol=1e-12)
    check_gradients(lambda x: F.lp_pool2d(x, 2, (2, 3), 1), x)


@pytest.mark.parametrize("factor", [1.3, 1.7, (2.4, 1.1)])
def test_factors_are_kept_or_worked_out_again(factor: Any) -> None:
    """Positions lie by the factor that was said, or by the sizes that came of it."""
    factors = factor if isinstance(factor, tuple) else (factor, factor)
    size = tuple(int(n * f) for n, f in zip(X.shape[2:], factors, strict=True))
    again = nn.Upsample(scale_factor=factor, mode="bilinear", recompute_scale_factor=True)(X)
    assert again.tolist() == F.interpolate(X, size, mode="bilinear").tolist()
    kept = nn.Upsample(scale_factor=factor, mode="bilinear")(X)
    assert kept.shape == again.shape and not kept.allclose(again)


def test_upsampling_is_interpolation() -> None:
    want = F.interpolate(X, (8, 9), mode="bilinear", align_corners=True).numpy()
    found = F.upsample(X, (8, 9), mode="bilinear", align_corners=True)
    np.testing.assert_array_equal(found.numpy(), want)
    np.testing.assert_array_equal(F.upsample_bilinear(X, (8, 9)).numpy(), want)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_are_cut_by_offsets(mode: str) -> None:
    index, offsets = np.array([4, 2, 2, 0, 5, 1, 1]), np.array([0, 3, 3, 4])
    bags = [index[0:3], index[3:3], index[3:4], index[4:]]
    of = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    want = np.stack([of(TABLE[b], axis=0) if len(b) else np.zeros(3) for b in bags])

    def bag(table: Any) -> Any:
        return F.embedding_bag(index, table, offsets, mode=mode)

    np.testing.assert_allclose(bag(cb.tensor(TABLE)).numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(cb.jit(bag)(cb.tensor(TABLE)).numpy(), want, rtol=1e-12)
    check_gradients(bag, TABLE, second=False)
    ends = F.embedding_bag(index, TABLE, [*offsets, 7], mode=mode, include_last_offset=True)
    np.testing.assert_allclose(ends.numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_leave_out_what_is_padding(mode: str) -> None:
    index = np.array([[1, 2, 4], [4, 4, 3], [4, 4, 4]])
    of = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    want = np.stack([of(TABLE[[1, 2]], axis=0), TABLE[3], np.zeros(3)])
    found = F.embedding_bag(index, TABLE, mode=mode, padding_idx=-2)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-12)
    flat = F.embedding_bag(index.ravel(), TABLE, [0, 3, 6], mode=mode, padding_idx=4)
    np.testing.assert_allclose(flat.numpy(), want, rtol=1e-12)
    assert F.embedding_bag(index[:, :0], TABLE, mode=mode).tolist() == [[0.0] * 3] * 3


@pytest.mark.parametrize(
    ("drop", "shape"),
    [
        (F.dropout1d, (8, 16, 4)),
        (F.dropout1d, (64, 4)),
        (F.dropout2d, (8, 16, 2, 3)),
        (F.dropout2d, (8, 16, 3)),
        (F.dropout3d, (8, 16, 2, 2, 2)),
        (F.dropout3d, (64, 2, 2, 2)),
    ],
)
def test_dropout_leaves_out_channels(drop: Any, shape: tuple[int, ...]) -> None:
    nn.init.manual_seed(0)
    channels = 1 if shape[0] == 64 else 2
    y = drop(np.ones(shape), 0.25).numpy()
    of_channels = y.reshape(*shape[:channels], -1)
    assert (of_channels.min(-1) == of_channels.max(-1)).all()
    assert set(np.unique(y).round(12)) == {0.0, round(4 / 3, 12)}
    assert (drop(np.ones(shape), 0.25, False).numpy() == 1).all()


def test_samples_of_classes_are_as_frequent_as_their_probabilities() -> None:
    nn.init.manual_seed(4)
    p = np.array([0.1, 0.2, 0.7])
    logits = cb.tensor(np.broadcast_to(np.log(p)[:, None], (3, 20000)).copy(), requires_grad=True)
    hard = F.gumbel_softmax(logits, hard=True, dim=0)
    np.testing.assert_allclose(hard.numpy().mean(1), p, atol=0.015)
    assert set(np.unique(hard.numpy().round(12))) == {0.0, 1.0}
    nn.init.manual_seed(4)
    soft = F.gumbel_softmax(logits, dim=0)
    np.testing.assert_allclose(soft.numpy().sum(0), 1, rtol=1e-12)
    np.testing.assert_array_equal(soft.numpy().argmax(0), hard.numpy().argmax(0))
    weights = RNG.standard_normal((3, 1))
    (hard * weights).sum().backward()
    by_hard = logits.grad.numpy()
    (soft * weights).sum().backward()
    np.testing.assert_allclose(logits.grad.numpy(), 2 * by_hard, rtol=1e-9, atol=1e-15)


def test_programs_draw_anew() -> None:
    nn.init.manual_seed(0)
    step = cb.jit(lambda x: F.rrelu(x, 0.25, 0.75, training=True))
    first, second = (step(cb.tensor(np.full(1000, -1.0))).numpy() for _ in range(2))
    assert (first != second).mean() > 0.9
    for y in (first, second):
        assert -0.75 <= y.min() < -0.7 and -0.3 < y.max() <= -0.25
    check_gradients(lambda x: F.rrelu(x), X)


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (ShapeError, lambda: F.pad(X, (1, 2, 3))),
        (ShapeError, lambda: F.pad(X[0, 0, 0], (1, 1, 1, 1))),
        (ShapeError, lambda: F.pad(X, (-3, -3))),
        (ShapeError, lambda: F.pad(X, (5, 0), "reflect")),
        (ShapeError, lambda: F.pad(X, (5, -1), "reflect")),
        (ShapeError, lambda: F.pad(X, (6, 0), "circular")),
        (ArgumentError, lambda: F.pad(X, (1, 1), "mirror")),
        (ArgumentError, lambda: F.pad(X, (1, 1), "reflect", 2.0)),
        (ArgumentError, lambda: F.pad(X, (1.5, 1))),
        (ArgumentError, lambda: F.batch_norm(X, None, None)),
        (ShapeError, lambda: F.batch_norm(X[:1, :, :1, :1], None, None, training=True)),
        (ShapeError, lambda: F.rms_norm(X, 4)),
        (ShapeError, lambda: F.local_response_norm(X[0, 0], 2)),
        (ShapeError, lambda: F.channel_shuffle(X, 2)),
        (ShapeError, lambda: F.pdist(X)),
        (ShapeError, lambda: F.bilinear(X, X, X[0])),
        (ShapeError, lambda: F.dropout1d(X)),
        (ShapeError, lambda: F.dropout3d(X[0])),
        (ShapeError, lambda: F.embedding_bag([0, 1], TABLE)),
        (ShapeError, lambda: F.embedding_bag([[0, 1]], TABLE, [0])),
        (ArgumentError, lambda: F.embedding_bag([[0, 1]], TABLE, mode="median")),
        (ArgumentError, lambda: F.embedding_bag([[0]], TABLE, per_sample_weights=[[1.0]])),
        (LaunchError, lambda: F.gumbel_softmax(X, 0)),
        (DTypeError, lambda: F.gumbel_softmax([1, 2])),
        (LaunchError, lambda: F.rrelu(X, 0.5, 0.25)),
        (LaunchError, lambda: F.lp_pool1d(X[0], 0, 2)),
    ],
)
def test_what_does_not_go_together_is_refused(error: Any, wrong: Callable[[], Any]) -> None:
    with pytest.raises(error):
        wrong()
