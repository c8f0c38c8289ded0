"""Convolutions, pools and norms of images as modules: against NumPy, with gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import LaunchError, ShapeError
from cubepy.nn import functional as F
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(8)
SIZE = (6, 5, 4)


def images(axes: int, channels: int = 4, dtype: Any = np.float64) -> np.ndarray:
    return RNG.standard_normal((2, channels, *SIZE[:axes])).astype(dtype)


def convolved(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
) -> np.ndarray:
    """One output pixel after the other."""
    axes = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(padding, padding)] * axes])
    reach = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    size = [(n - r) // stride + 1 for n, r in zip(x.shape[2:], reach, strict=True)]
    out = np.zeros((len(x), len(w), *size))
    per = w.shape[1]
    for at in itertools.product(*map(range, size)):
        window = tuple(
            slice(i * stride, i * stride + r, dilation) for i, r in zip(at, reach, strict=True)
        )
        patch = x[(slice(None), slice(None), *window)]
        for o in range(len(w)):
            g = o // (len(w) // groups)
            part = patch[:, g * per : (g + 1) * per]
            out[(slice(None), o, *at)] = (part * w[o]).sum(axis=tuple(range(1, axes + 2))) + b[o]
    return out


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (1, 2, 2)])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions(axes: int, stride: int, padding: int, dilation: int, groups: int) -> None:
    kind = getattr(nn, f"Conv{axes}d")
    layer = kind(4, 6, 2, stride, padding, dilation, groups).to("f64")
    x = images(axes)
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    assert w.shape == (6, 4 // groups, *(2,) * axes)
    want = convolved(x, w, b, stride, padding, dilation, groups)
    np.testing.assert_allclose(layer(x).detach().numpy(), want, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(layer(x[0]).detach().numpy(), want[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_transposed_convolutions_turn_convolutions_over(axes: int) -> None:
    """The sum of conv(x) * y is the sum of x * transposed(y), for the same filters."""
    forth = getattr(nn, f"Conv{axes}d")(4, 6, 3, 2, 1, bias=False).to("f64")
    back = getattr(nn, f"ConvTranspose{axes}d")(6, 4, 3, 2, 1, bias=False).to("f64")
    assert back.weight.shape == forth.weight.shape
    back.load_state_dict(forth.state_dict())
    x = RNG.standard_normal((2, 4, *(5,) * axes))
    y = RNG.standard_normal(forth(x).shape)
    left = (forth(x).detach().numpy() * y).sum()
    assert left == pytest.approx((x * back(y).detach().numpy()).sum(), rel=1e-10)
    more = getattr(nn, f"ConvTranspose{axes}d")(6, 4, 3, 2, 1, output_padding=1).to("f64")
    assert more(y).shape == (2, 4, *(6,) * axes)


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_convolutions_have_gradients(name: str) -> None:
    function = getattr(F, name)
    shape = (4, 3, 2, 2) if name == "conv2d" else (3, 4, 2, 2)
    inputs = RNG.standard_normal((1, 3, 4, 3)), RNG.standard_normal(shape), RNG.standard_normal(4)
    check_gradients(lambda x, w, b: function(x, w, b, 2, 1), *inputs)


def test_padding_by_name_keeps_the_size() -> None:
    x = images(2, dtype=np.float32)
    assert nn.Conv2d(4, 5, 3, padding="same")(x).shape == (2, 5, *SIZE[:2])
    assert nn.Conv2d(4, 5, 3, padding="valid")(x).shape == (2, 5, SIZE[0] - 2, SIZE[1] - 2)


def pooled(x: np.ndarray, k: int, s: int, of: Any) -> np.ndarray:
    size = [(n - k) // s + 1 for n in x.shape[2:]]
    out = np.zeros((*x.shape[:2], *size))
    for at in itertools.product(*map(range, size)):
        window = tuple(slice(i * s, i * s + k) for i in at)
        out[(..., *at)] = of(x[(slice(None), slice(None), *window)], axis=tuple(range(2, x.ndim)))
    return out


def in_parts(x: np.ndarray, n: int, of: Any) -> np.ndarray:
    size = x.shape[2:]
    out = np.zeros((*x.shape[:2], *(n,) * len(size)))
    for at in itertools.product(*[range(n)] * len(size)):
        part = tuple(slice(i * m // n, -(-(i + 1) * m // n)) for i, m in zip(at, size, strict=True))
        out[(..., *at)] = of(x[(slice(None), slice(None), *part)], axis=tuple(range(2, x.ndim)))
    return out


@pytest.mark.parametrize(("name", "of"), [("Max", np.max), ("Avg", np.mean)])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_pools(axes: int, name: str, of: Any) -> None:
    x = images(axes, 3, np.float32)
    pool = getattr(nn, f"{name}Pool{axes}d")
    np.testing.assert_allclose(pool(2)(x).numpy(), pooled(x, 2, 2, of), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pool(3, 1)(x).numpy(), pooled(x, 3, 1, of), rtol=1e-5, atol=1e-6)
    parts = getattr(nn, f"Adaptive{name}Pool{axes}d")
    np.testing.assert_allclose(parts(3)(x).numpy(), in_parts(x, 3, of), rtol=1e-5, atol=1e-6)
    kept = parts((None,) * axes)(x)
    np.testing.assert_array_equal(kept.numpy(), x)


def test_pools_and_interpolation_have_gradients() -> None:
    x = RNG.permutation(80.0 + np.arange(80.0)).reshape(1, 2, 8, 5) / 7
    for function in (
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
        lambda x: F.adaptive_max_pool2d(x, (3, 2)),
        nn.Upsample(scale_factor=2, mode="bilinear"),
    ):
        check_gradients(function, x)


def test_places_of_the_largest() -> None:
    x = images(2, 3, np.float32)
    values, indices = nn.MaxPool2d(2, return_indices=True)(x)
    flat = x.reshape(2, 3, -1)
    got = np.take_along_axis(flat, indices.numpy().reshape(2, 3, -1), 2)
    np.testing.assert_array_equal(got, values.numpy().reshape(2, 3, -1))


@pytest.mark.parametrize("axes", [1, 2])
def test_group_norm(axes: int) -> None:
    layer, x = nn.GroupNorm(2, 4).to("f64"), images(axes)
    w, b = RNG.standard_normal(4), RNG.standard_normal(4)
    layer.load_state_dict({"weight": w, "bias": b})
    rows = x.reshape(2, 2, -1)
    h = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    channels = (4, *(1,) * axes)
    want = h.reshape(x.shape) * w.reshape(channels) + b.reshape(channels)
    np.testing.assert_allclose(layer(x).detach().numpy(), want, rtol=1e-10, atol=1e-12)
    check_gradients(lambda x, w, b: F.group_norm(x, 2, w, b), images(1)[:1], w, b)


def test_instance_norm() -> None:
    layer, x = nn.InstanceNorm2d(4), images(2, dtype=np.float32)
    want = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(layer(x).numpy(), want, rtol=1e-4, atol=1e-5)
    assert (
        not list(layer.parameters())
        and len(list(nn.InstanceNorm1d(3, affine=True).parameters())) == 2
    )
    np.testing.assert_array_equal(layer(x[0]).numpy(), layer(x)[0].numpy())  # one sample
    with pytest.raises(ShapeError, match="cannot take an input"):
        layer(x[0, 0])


@pytest.mark.parametrize("momentum", [0.3, None])
@pytest.mark.parametrize("program", [False, True])
def test_instance_norm_by_running_values(momentum: float | None, program: bool) -> None:
    layer = nn.InstanceNorm2d(4, momentum=momentum, affine=True, track_running_stats=True).double()
    run = cb.jit(layer) if program else layer
    mean, var = np.zeros(4), np.ones(4)
    for n in range(1, 4):
        x = np.random.default_rng(n).standard_normal((2, 4, 3, 5))
        share = 1 / n if momentum is None else momentum
        mean += (x.mean((0, 2, 3)) - mean) * share
        var += (x.var((2, 3), ddof=1).mean(0) - var) * share
        h = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5)
        np.testing.assert_allclose(run(cb.tensor(x)).detach().numpy(), h, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(layer.running_var.numpy(), var, rtol=1e-12)
    assert layer.num_batches_tracked.item() == 3
    want = (x - mean[:, None, None]) / np.sqrt(var[:, None, None] + 1e-5)
    np.testing.assert_allclose(layer.eval()(x).detach().numpy(), want, rtol=1e-9, atol=1e-12)
    assert list(layer.state_dict()) == [
        "weight", "bias", "running_mean", "running_var", "num_batches_tracked"
    ]  # fmt: skip
    layer.reset_running_stats()
    assert layer.running_var.tolist() == [1.0] * 4 and layer.num_batches_tracked.item() == 0
    with pytest.raises(ShapeError, match="more than 1 value per channel"):
        layer.train()(np.ones((2, 4, 1, 1)))


def test_norms_may_have_a_scale_alone() -> None:
    for layer in (nn.BatchNorm1d(3, bias=False), nn.GroupNorm(3, 3, bias=False),
                  nn.InstanceNorm1d(3, affine=True, bias=False)):  # fmt: skip
        assert [name for name, _ in layer.named_parameters()] == ["weight"]
        assert layer(np.ones((2, 3, 4), np.float32)).shape == (2, 3, 4)


def test_batch_norm_trains() -> None:
    layer, x = nn.BatchNorm2d(4).to("f64"), images(2)
    w, b = RNG.standard_normal(4), RNG.standard_normal(4)

    def norm(x: Any, w: Any, b: Any) -> Any:
        layer.__dict__["_parameters"].update(weight=w, bias=b)
        return layer(x)

    check_gradients(norm, images(2)[:, :, :2, :2], w, b)
    layer = nn.BatchNorm2d(4)
    first = cb.tensor(x.astype(np.float32), requires_grad=True)
    layer(first).sum().backward()
    assert not layer.running_mean.requires_grad, "what is tracked keeps no graph"
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * x.mean((0, 2, 3)), rtol=1e-4)


def test_batch_norm_without_momentum_keeps_the_mean_of_all() -> None:
    layer = nn.BatchNorm1d(4, momentum=None)
    batches = [RNG.standard_normal((8, 4)).astype(np.float32) for _ in range(3)]
    for x in batches:
        layer(x)
    mean = np.mean([x.mean(0) for x in batches], axis=0)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-4, atol=1e-6)


def test_pixels_are_shuffled_and_back() -> None:
    x = images(2, 8)
    y = nn.PixelShuffle(2)(x)
    assert y.shape == (2, 2, 12, 10)
    assert y.numpy()[1, 1, 5, 8] == x[1, 4 + 2 * (5 % 2) + 8 % 2, 5 // 2, 8 // 2]
    np.testing.assert_array_equal(nn.PixelUnshuffle(2)(y).numpy(), x)
    check_gradients(lambda x: F.pixel_shuffle(x, 2) ** 3, RNG.standard_normal((1, 4, 2, 1)))
    with pytest.raises(ShapeError, match="multiple of 4 channels"):
        F.pixel_shuffle(images(2, 3), 2)


def test_shapes_there_and_back() -> None:
    x = images(2)
    assert nn.Flatten()(x).shape == (2, 4 * 30) and nn.Flatten(0, 1)(x).shape == (8, 6, 5)
    assert nn.Unflatten(1, (2, -1))(x).shape == (2, 2, 2, 6, 5)
    assert nn.Unflatten(-1, (5, 1))(x).shape == (2, 4, 6, 5, 1)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.Conv2d(4, 6, 3, groups=4), ShapeError, "groups must divide"),
        (lambda: nn.Conv2d(0, 6, 3), ShapeError, "in_channels must be at least 1"),
        (lambda: nn.GroupNorm(3, 4), ShapeError, "3 groups do not divide 4"),
        (lambda: F.adaptive_avg_pool2d(images(2), (1, 2, 3)), ShapeError, "each of 2 axes"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.turns(6)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [1, "same", "valid", (2, 0)])
def test_convolutions_look_beyond_the_edge(padding: Any, mode: str) -> None:
    layer = nn.Conv2d(2, 3, (3, 2), padding=padding, dilation=(1, 2), padding_mode=mode).double()
    x = np.random.default_rng(0).standard_normal((2, 2, 6, 7))
    widths = {1: [(1, 1), (1, 1)], "same": [(1, 1), (1, 1)], "valid": [(0, 0)] * 2}.get(
        padding, [(2, 2), (0, 0)]
    )
    wide = np.pad(x, [(0, 0), (0, 0), *widths], MODES[mode])
    want = F.conv2d(wide, layer.weight, layer.bias, dilation=(1, 2))
    for run in (layer, cb.jit(layer)):
        np.testing.assert_allclose(run(cb.tensor(x)).numpy(), want.numpy(), rtol=1e-12)
    check_gradients(lambda x: layer(x), x[:1])
    line, box = (
        nn.Conv1d(2, 3, 3, padding=1, padding_mode=mode),
        nn.Conv3d(1, 1, 3, padding=1, padding_mode=mode),
    )
    assert line(np.ones((1, 2, 5), np.float32)).shape == (1, 3, 5)
    assert box(np.ones((1, 1, 4, 4, 4), np.float32)).shape == (1, 1, 4, 4, 4)


def test_modes_of_padding_have_names() -> None:
    with pytest.raises(LaunchError, match="padding_mode is zeros or reflect or .*, not 'mirror'"):
        nn.Conv2d(1, 1, 3, padding_mode="mirror")
    with pytest.raises(LaunchError, match="padding_mode is zeros, not 'reflect'"):
        nn.ConvTranspose2d(1, 1, 3, padding_mode="reflect")
