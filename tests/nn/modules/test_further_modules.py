"""Unpooling, drawn pools, adaptive softmax, lazy layers, tables, channel dropout, first values."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, LaunchError, ShapeError
from cubepy.nn import functional as F
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_unpooled_maxima_are_where_they_were(axes: int) -> None:
    x = RNG.standard_normal((2, 3, *(7, 8, 5)[:axes]))
    pool = getattr(nn, f"MaxPool{axes}d")(2, return_indices=True)
    unpool = getattr(nn, f"MaxUnpool{axes}d")(2)
    y, index = pool(x)
    for run in (unpool, cb.jit(lambda y, i: unpool(y, i, x.shape))):
        found = run(y, index, x.shape) if run is unpool else run(y, index)
        want = np.where(np.isin(x, y.numpy()), x, 0)
        np.testing.assert_array_equal(found.numpy(), want)
    np.testing.assert_array_equal(unpool(y[0], index[0], x.shape[2:]).numpy(), want[0])
    assert unpool(y, index * 0).shape[2:] == tuple(n // 2 * 2 for n in x.shape[2:])
    check_gradients(lambda y: unpool(y, index, x.shape), y.numpy())
    with pytest.raises(ShapeError, match="output_size is .* not"):
        unpool(y, index, [n + 2 for n in x.shape])
    with pytest.raises(ShapeError, match="takes values and indices"):
        unpool(y, index[0])


def windows(u: float, length: int, count: int, k: int) -> list[int]:
    """Where windows begin, as Graham's pseudo-random sequences say."""
    step = (length - k) / (count - 1) if count > 1 else 0
    return [int((i + u) * step) - int(u * step) for i in range(count - 1)] + [length - k]


@pytest.mark.parametrize(("axes", "size"), [(2, (5, 4)), (3, (3, 1, 4))])
def test_pools_of_drawn_windows(axes: int, size: tuple[int, ...]) -> None:
    shape = (9, 8, 7)[:axes]
    x, u = RNG.standard_normal((2, 3, *shape)), RNG.random((2, 3, axes))
    pool = getattr(F, f"fractional_max_pool{axes}d")
    y, index = pool(x, 2, size, return_indices=True, _random_samples=u)
    for n, c in itertools.product(range(2), range(3)):
        own = u[n, c][::-1] if axes == 2 else u[n, c]  # columns come first for images
        begins = [windows(own[a], shape[a], size[a], 2) for a in range(axes)]
        for at in itertools.product(*map(range, size)):
            part = x[(n, c, *(slice(begins[a][i], begins[a][i] + 2) for a, i in enumerate(at)))]
            assert y.numpy()[(n, c, *at)] == part.max()
    flat = x.reshape(2, 3, -1)
    np.testing.assert_array_equal(
        np.take_along_axis(flat, index.numpy().reshape(2, 3, -1), 2), y.numpy().reshape(2, 3, -1)
    )
    few = x[:1, :1] if axes == 2 else x[:1, :1, :4, :4]  # differences are two calls a number
    check_gradients(lambda x: pool(x, 2, size, _random_samples=u[:1, :1]), few)
    module = getattr(nn, f"FractionalMaxPool{axes}d")(2, output_ratio=0.5)
    assert module(x[0]).shape == (3, *(n // 2 for n in shape))
    assert not np.array_equal(module(x).numpy(), module(x).numpy())
    with pytest.raises(ArgumentError, match="output_size or output_ratio"):
        pool(x, 2)
    with pytest.raises(ShapeError, match="there are no"):
        pool(x, 2, shape)


@pytest.mark.parametrize("head_bias", [False, True])
def test_a_softmax_in_two_steps(head_bias: bool) -> None:
    layer = nn.AdaptiveLogSoftmaxWithLoss(16, 50, [5, 20], 2.0, head_bias).double()
    assert list(layer.state_dict()) == [
        "head.weight", *(["head.bias"] if head_bias else []),
        *(f"tail.{n}.{k}.weight" for n in (0, 1) for k in (0, 1)),
    ]  # fmt: skip
    x, t = RNG.standard_normal((7, 16)), np.array([0, 4, 5, 19, 20, 49, 30])
    log = layer.log_prob(x).detach().numpy()
    np.testing.assert_allclose(np.exp(log).sum(1), 1, rtol=1e-12)
    want = np.take_along_axis(log, t[:, None], 1)[:, 0]
    for run in (layer, cb.jit(layer)):
        found = run(cb.tensor(x), cb.tensor(t))
        np.testing.assert_allclose(found.output.detach().numpy(), want, rtol=1e-12)
        assert found.loss.item() == pytest.approx(-want.mean(), rel=1e-12)
    alone = layer(x[3], 19)
    assert alone.output.shape == () and alone.loss.item() == pytest.approx(-want[3], rel=1e-12)
    np.testing.assert_array_equal(layer.predict(x).numpy(), log.argmax(1))
    check_gradients(lambda x: layer(x, t).loss, x)
    frequent = layer(x[:2], t[:2]).output.detach().numpy()
    np.testing.assert_allclose(frequent, want[:2], rtol=1e-12)
    with pytest.raises(ArgumentError, match="targets are from 0 to 49, not 50 to 50"):
        layer(x[:1], [50])
    with pytest.raises(ArgumentError, match="cutoffs rise between 1 and 9"):
        nn.AdaptiveLogSoftmaxWithLoss(4, 10, [5, 3])


def test_lazy_layers_learn_their_widths_of_an_input_or_a_state() -> None:
    def net() -> Any:
        return nn.Sequential(
            nn.LazyConv2d(4, 3, groups=2), nn.LazyBatchNorm2d(), nn.LazyConvTranspose2d(6, 2),
            nn.LazyInstanceNorm2d(affine=True), nn.Flatten(), nn.LazyLinear(3, bias=False),
        )  # fmt: skip

    first, second = net(), net()
    assert not list(first.parameters())
    x = np.ones((2, 2, 5, 5), np.float32)
    y = first.eval()(x)
    assert [type(m).__name__[:4] for m in first] == ["Conv", "Batc", "Conv", "Inst", "Flat", "Line"]
    assert second.load_state_dict(first.state_dict()) == ([], [])
    np.testing.assert_array_equal(second.eval()(x).numpy(), y.numpy())
    assert second[0].in_channels == 2 and not second[0].training
    assert nn.Linear is type(copy.deepcopy(second)[5])
    with pytest.raises(LaunchError, match="LazyLinear has no width yet"):
        cb.jit(nn.LazyLinear(3))(cb.tensor([[1.0]]))


@pytest.mark.parametrize("order", [2.0, 1.0])
def test_rows_that_are_looked_up_are_shortened(order: float) -> None:
    table = RNG.standard_normal((6, 3))
    layer = nn.Embedding(6, 3, max_norm=1.0, norm_type=order, _weight=table.copy())
    index = np.array([[1, 4], [1, 2]])
    norms = np.linalg.norm(table, order, 1, keepdims=True)
    used = np.isin(np.arange(6), index)[:, None] & (norms > 1)
    want = np.where(used, table / (norms + 1e-7), table)
    np.testing.assert_allclose(layer(index).detach().numpy(), want[index], rtol=1e-12)
    np.testing.assert_allclose(layer.weight.detach().numpy(), want, rtol=1e-12)
    assert layer.weight.is_leaf and layer.weight.requires_grad


def test_gradients_of_rows_by_how_often_they_are_looked_up() -> None:
    table = cb.tensor(RNG.standard_normal((4, 2)), requires_grad=True)
    index, upper = np.array([0, 2, 2, 2]), RNG.standard_normal((4, 2))
    rows = F.embedding(index, table, scale_grad_by_freq=True)
    np.testing.assert_array_equal(rows.detach().numpy(), table.detach().numpy()[index])
    (rows * cb.tensor(upper)).sum().backward()
    want = np.stack([upper[0], np.zeros(2), upper[1:].mean(0), np.zeros(2)])
    np.testing.assert_allclose(table.grad.numpy(), want, rtol=1e-12)
    bag = nn.EmbeddingBag.from_pretrained(table, mode="sum", scale_grad_by_freq=True)
    assert not bag.weight.requires_grad and bag([[0, 2]]).shape == (1, 2)
    free = nn.Embedding.from_pretrained(np.ones((3, 2)), freeze=False, padding_idx=-1)
    assert free.weight.requires_grad and free.padding_idx == 2
    assert free.weight.detach().numpy()[2].tolist() == [1.0, 1.0]
    with pytest.raises(ShapeError, match="a table has two axes"):
        nn.Embedding.from_pretrained(np.ones(3))


def test_dropout_of_whole_channels_keeps_mean_and_variance() -> None:
    x = RNG.standard_normal((400, 50, 4))
    y = nn.FeatureAlphaDropout(0.3)(x).numpy()
    low = y.min(axis=2) == y.max(axis=2)
    assert abs(low.mean() - 0.3) < 0.02 and len(np.unique(y[low])) == 1
    assert abs(y.mean()) < 0.05 and abs(y.var() - 1) < 0.05
    np.testing.assert_array_equal(F.feature_alpha_dropout(x, 1.0).numpy(), x * 0)


def test_attention_needs_no_batch() -> None:
    for first in (False, True):
        layer = nn.MultiheadAttention(8, 2, batch_first=first)
        x, key = (RNG.standard_normal((n, 8)).astype(np.float32) for n in (5, 6))
        padding = np.array([False] * 4 + [True] * 2)
        y, weights = layer(x, key, key, padding, attn_mask=np.zeros((5, 6), bool))
        axis = 0 if first else 1
        many = (np.expand_dims(a, axis) for a in (x, key, key))
        want, shares = layer(*many, padding[None])
        np.testing.assert_allclose(y.detach().numpy(), want.detach().numpy().squeeze(axis), 1e-5)
        np.testing.assert_allclose(weights.detach().numpy(), shares.detach().numpy()[0], 1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_filters_that_pass_channels_on(groups: int) -> None:
    layer = nn.Conv2d(4, 4, 3, padding=1, groups=groups, bias=False)
    nn.init.dirac_(layer.weight, groups)
    x = RNG.standard_normal((1, 4, 5, 5)).astype(np.float32)
    np.testing.assert_array_equal(layer(x).numpy(), x)
    with pytest.raises(ShapeError, match="3 groups do not divide 4 filters"):
        nn.init.dirac_(layer.weight, 3)


def test_columns_with_zeros() -> None:
    weight = nn.init.sparse_(nn.Linear(200, 40).weight, 0.1, std=2.0).numpy()
    assert ((weight == 0).sum(0) == 4).all() and abs(weight[weight != 0].std() - 2) < 0.1


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), (2, 4, 5, 5)),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), (2, 4, 5, 5)),
        (nn.ConvTranspose1d(4, 6, 3, bias=False), nn.BatchNorm1d(6, affine=False), (2, 4, 5)),
        (nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), (3, 4)),
    ],
)
def test_layers_and_the_norms_behind_them_are_one(
    layer: Any, norm: Any, shape: tuple[int, ...]
) -> None:
    norm(RNG.standard_normal((64, 6, *(9,) * (len(shape) - 2))).astype(np.float32) * 3 + 1)
    net = nn.Sequential(layer, norm).eval()
    x = RNG.standard_normal(shape).astype(np.float32)
    if isinstance(layer, nn.Linear):
        one = nn.utils.fuse_linear_bn_eval(layer, norm)
    else:
        one = nn.utils.fuse_conv_bn_eval(layer, norm, "Transpose" in type(layer).__name__)
    np.testing.assert_allclose(one(x).detach().numpy(), net(x).detach().numpy(), 1e-4, 1e-5)
    with pytest.raises(ArgumentError, match="layers that train"):
        nn.utils.fuse_linear_bn_eval(layer, norm.train())


def test_optimizers_take_how_torch_makes_steps() -> None:
    p = nn.Parameter([1.0])
    for kind in ("SGD", "Adam", "AdamW", "NAdam", "RMSprop", "Adagrad", "Rprop", "ASGD"):
        optimizer = getattr(nn.optim, kind)([p], lr=0.5, foreach=None, fused=True)
        assert "fused" not in optimizer.param_groups[0]
    with pytest.raises(ArgumentError, match="no gradients go through"):
        nn.optim.SGD([p], differentiable=True)
    with pytest.raises(TypeError, match="SGD has no argument 'momentun'"):
        nn.optim.SGD([p], momentun=0.9)
