"""Scales and shifts of channels, residuals and activations behind convolutions are done by their
launch; images of wide networks have channels last.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.nn import functional as F
from cubepy.tensor import execute, record
from cubepy.tensor.fusion.optimise import optimise
from tests.tensor.fusion.test_rows import steps_of

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> cb.Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


def spread(net: nn.Module) -> nn.Module:
    """A network that does not train, whose norms have numbers of their own."""
    for name, value in net.state_dict().items():
        if value.dtype.is_float and value.ndim == 1:
            offset = 1.5 if name.endswith(("running_var", "weight")) else 0.0
            value.assign_(offset + 0.3 * cb.tensor(RNG.uniform(-1, 1, value.shape), "f32"))
    return net.eval()


def program(net: Any, *given: cb.Tensor, calls: int = 4) -> tuple[Any, Any]:
    """A program that was called, and how it runs."""

    @cb.jit
    def run(*xs: Any) -> Any:
        with cb.no_grad():
            return net(*xs)

    for _ in range(calls):
        run(*given)
    ((made,),) = run.programs.values()
    return run, made


def compared(net: Any, *given: cb.Tensor, scale: float = 1.0) -> Any:
    run, made = program(net, *given)
    assert made.plan is not None
    found = run(*given)
    with cb.no_grad():
        want = net(*given)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=2e-5, atol=2e-5 * scale)
    return made


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 2 * width, 1)
        self.bn3, self.down = nn.BatchNorm2d(2 * width), nn.Conv2d(channels, 2 * width, 1)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.down(x))


@pytest.mark.turns(6)
@pytest.mark.parametrize(("width", "size"), [(6, 9), (32, 12), (40, 7)])
def test_a_block_of_resnet_is_four_launches(width: int, size: int) -> None:
    net = spread(Bottleneck(16, width))
    made = compared(net, numbers(2, 16, size, size), scale=10)
    ops = [n.op for n in made.graph.nodes if n.op not in ("input", "packed_channels")]
    assert ops == ["fused_conv"] * 4
    last = [n for n in made.graph.nodes if n.op == "packed_channels"]
    assert len(last) == (1 if width >= 32 else 0)


@pytest.mark.turns(6)
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_norms_are_folded_into_filters(axes: int, groups: int) -> None:
    conv = getattr(nn, f"Conv{axes}d")(8, 16, 3, stride=2, padding=1, groups=groups)
    norm = getattr(nn, f"BatchNorm{axes}d")(16)
    net = spread(nn.Sequential(conv, norm, nn.GELU()))
    made = compared(net, numbers(2, 8, *(9,) * axes), scale=10)
    assert [n.op for n in made.graph.nodes if n.op != "input"] == ["fused_conv"]


@pytest.mark.parametrize(
    "tail",
    [
        lambda y, t: y * 0.5 + t,
        lambda y, t: (y + t) / 3,
        lambda y, t: t - y,
        lambda y, t: t / (y * y + 1),
        lambda y, t: (y - t).relu() + t,
        lambda y, t: y * t * y,
        lambda y, t: (y * t).relu().sum(axis=(2, 3)) + y.mean(),
    ],
)
def test_arithmetic_of_channels(tail: Any) -> None:
    w, bias, t = numbers(12, 5, 3, 3), numbers(12), numbers(12, 1, 1)
    for given in (None, bias):
        compared(lambda x, b=given: tail(F.conv2d(x, w, b), t), numbers(2, 5, 8, 8), scale=30)


def test_what_is_no_number_of_a_channel_stays_a_map() -> None:
    w, row = numbers(12, 5, 3, 3), numbers(6)
    made = compared(lambda x: F.conv2d(x, w) * row, numbers(2, 5, 8, 8), scale=10)
    assert "fused_map" in [n.op for n in made.graph.nodes] or "mul" in [
        n.op for n in made.graph.nodes
    ]


def test_a_result_that_others_read_is_stored() -> None:
    w = numbers(12, 5, 3, 3)

    def net(x: Any) -> Any:
        y = F.conv2d(x, w)
        return y.relu() + y.max(axis=1, keepdims=True)

    compared(net, numbers(2, 5, 8, 8), scale=10)


def test_without_weights_that_stay_nothing_is_folded() -> None:
    x, w, t = numbers(2, 5, 8, 8), numbers(12, 5, 3, 3), numbers(12, 1, 1)
    with record(x, w, t) as recorder:
        y = (F.conv2d(x, w) * t).relu()
        z = F.conv2d(x, w * 3).relu()
        u = F.relu(F.conv2d(x, w * 2) + z)
    graph = optimise(recorder.graph(y, u))
    assert steps_of(graph).count("fused_conv") == 2 and "conv" in steps_of(graph)
    for found, want in zip(execute(graph, recorder.inputs), (y, u), strict=True):
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-4)


def test_maps_between_convolutions_keep_channels_first() -> None:
    """Their results have channels first: an image would be turned again and again."""
    first, second = nn.Conv2d(16, 32, 3), nn.Conv2d(32, 32, 3)
    net = lambda x: second(F.conv2d(x, first.weight) * x[:, :1, 2:, 2:])
    made = compared(net, numbers(1, 16, 12, 12), scale=10)
    assert "packed_channels" not in [n.op for n in made.graph.nodes]


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_other_floats_stay_as_they_are(dtype: str) -> None:
    w, x = numbers(12, 5, 3, 3).astype(dtype), numbers(2, 5, 8, 8).astype(dtype)
    run, made = program(lambda x: F.relu(F.conv2d(x, w) * 2), x)
    np.testing.assert_array_equal(run(x).numpy(), F.relu(F.conv2d(x, w) * 2).numpy())
    assert "conv" in [n.op for n in made.graph.nodes]


def test_training_gives_the_gradients_of_ops() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    x = numbers(2, 3, 9, 9)

    def step(x: Any) -> Any:
        net.zero_grad()
        loss = (net(x) ** 2).mean()
        loss.backward()
        return loss

    step(x)
    want = [p.grad.numpy().copy() for p in net.parameters()]
    compiled = cb.jit(step)
    for _ in range(4):
        compiled(x)
    for p, g in zip(net.parameters(), want, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), g, rtol=1e-4, atol=1e-5)


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed: int) -> None:
    rng = random.Random(seed)
    channels, layers = rng.choice([3, 16, 32]), []
    wide = rng.choice([8, 32, 48])
    for _ in range(rng.randrange(1, 5)):
        kernel, groups = rng.choice([1, 3]), rng.choice([1, 1, channels])
        filters = wide if groups == 1 else channels
        conv = nn.Conv2d(channels, filters, kernel, stride=rng.choice([1, 1, 2]),
                         padding=kernel // 2, groups=groups, bias=rng.random() < 0.5)  # fmt: skip
        layers += [conv, *[nn.BatchNorm2d(filters)] * rng.randrange(2)]
        layers += rng.choice([[], [nn.ReLU()], [nn.SiLU()], [nn.MaxPool2d(2, 1)], [nn.ReLU6()]])
        channels = filters
    tail = rng.choice([[], [nn.AdaptiveAvgPool2d(1), nn.Flatten()], [nn.Flatten(2)]])
    net = spread(nn.Sequential(*layers, *tail))
    given = numbers(rng.choice([1, 2]), layers[0].in_channels, 17, rng.choice([8, 17, 19]))
    compared(net, given, scale=100)


class Residual(nn.Module):
    """1x1, 3x3 and 1x1 with norms, added to what came in."""

    def __init__(self, channels: int) -> None:
        super().__init__()

        def normed(n: int, m: int, window: int) -> nn.Module:
            conv = nn.Conv2d(n, m, window, padding=window // 2, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(m))

        half = channels // 2
        self.one, self.two = normed(channels, half, 1), normed(half, half, 3)
        self.three = normed(half, channels, 1)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.three(F.relu(self.two(F.relu(self.one(x))))))


@cb.kernel
def doubled(x: cb.Array) -> None:
    at = cb.ABSOLUTE_POS
    if at < x.shape[0]:
        x[at] = x[at] + x[at]


@pytest.mark.turns(6)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_norms_go_into_filters_on_a_gpu(dtype: str) -> None:
    """In f32, rounded once; no worse than one by one. Filters are made anew when a weight is."""
    from tests.backends.hip.emulator.device import emulated

    net, wide = spread(Residual(64)).to(dtype), Residual(64).eval()
    wide.load_state_dict({k: v.numpy() for k, v in net.state_dict().items()})
    wide.to("f64")
    x = numbers(1, 64, 5, 4).astype(dtype)

    def error(found: Any) -> float:
        with cb.use("cpu"), cb.no_grad():
            right = wide(x.astype("f64")).numpy()
        return float(np.linalg.norm(found.astype("f32").numpy() - right) / np.linalg.norm(right))

    with emulated("gfx1100"), cb.use("gfx1100"), cb.no_grad():
        net.to("gfx1100")
        given = x.to("gfx1100")
        run, made = program(net, given, calls=1)
        ops = [n.op for n in made.graph.nodes if n.op != "input"]
        assert ops == ["packed_channels"] + ["fused_conv"] * 3
        assert error(run(given)) <= 1.3 * error(net(given)) + 1e-6
        run(given)  # the eager call had the weights
        before = cb.stats().ops
        run(given)
        assert cb.stats().ops - before <= len(ops)
        norm, plain = net.two[1], wide.two[1]
        norm.weight.assign_(norm.weight * 2)
        with cb.use("cpu"):
            plain.weight.assign_(plain.weight * 2)
        assert error(run(given)) <= 1.3 * error(net(given)) + 1e-6
        doubled[1, 64](norm.bias)
        with cb.use("cpu"):
            plain.bias.assign_(plain.bias * 2)
        assert error(run(given)) <= 1.3 * error(net(given)) + 1e-6


class Drawn(nn.Module):
    """Convolutions of any kind with what may follow them: scales, shifts, functions, residuals."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        self.axes = rng.choice([1, 2, 2, 2])
        kind, norm = (nn.Conv1d, nn.BatchNorm1d) if self.axes == 1 else (nn.Conv2d, nn.BatchNorm2d)
        self.given = channels = rng.choice([3, 16, 32])
        self.parts = nn.ModuleList()
        self.functions: list[Any] = []
        for _ in range(rng.choice([1, 2, 3])):
            filters = rng.choice([8, 32, 48])
            groups = rng.choice([1, 1, channels, 2 if channels % 2 == 0 else 1])
            filters = channels * rng.choice([1, 2]) if groups == channels else filters
            window, stride = rng.choice([1, 2, 3]), rng.choice([1, 1, 2])
            step, pad = rng.choice([1, 1, 2]), rng.choice([window - 1, window])
            how = {"dilation": step, "groups": groups, "bias": rng.random() < 0.5}
            conv = kind(channels, filters, window, stride, step * pad, **how)
            self.parts.append(nn.Sequential(conv, norm(filters)) if rng.random() < 0.7 else conv)
            self.functions.append(
                rng.choice([F.relu, F.silu, lambda x: x, lambda x: x + F.relu(x)])
            )
            channels = filters

    def forward(self, x: Any) -> Any:
        for part, function in zip(self.parts, self.functions, strict=True):
            x = function(part(x))
        return x


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(8))
def test_random_convolutions_on_a_gpu(seed: int) -> None:
    """No further from f64 than one by one."""
    from tests.backends.hip.emulator.device import emulated

    net = spread(Drawn(seed))
    dtype = ("f16", "bf16", "f32")[seed % 3]
    x = numbers(2, net.given, *(9,) if net.axes == 1 else (5, 4)).astype(dtype)
    state = {k: v.numpy() for k, v in net.to(dtype).state_dict().items()}
    exact: Any = Drawn(seed)
    exact.load_state_dict(state)
    with cb.no_grad():
        right = exact.to("f64").eval()(x.astype("f64")).numpy()

    def error(found: Any) -> float:
        return float(np.linalg.norm(found.astype("f32").numpy() - right) / np.linalg.norm(right))

    with emulated("gfx1100"), cb.use("gfx1100"), cb.no_grad():
        net.to("gfx1100")
        given = x.to("gfx1100")
        run, _ = program(net, given, calls=1)
        found = run(given)
        assert found.shape == right.shape and str(found.dtype) == f"cb.{dtype}"
        limit = {"f16": 1e-3, "bf16": 8e-3, "f32": 1e-6}[dtype]
        assert error(found) <= max(limit, 1.3 * error(net(given)))


@pytest.mark.parametrize("seed", range(12))
def test_a_convolution_of_one_position_is_a_layer(seed: int) -> None:
    rng = random.Random(seed)
    axes = rng.choice((1, 1, 2, 3))
    count, channels = rng.choice((1, 1, 2, 20)), rng.choice((1, 1, 3))
    window = tuple(rng.randint(1, 9) for _ in range(axes))
    more = rng.randint(0, 4) if (axes, count, channels) == (1, 1, 1) else 0
    conv = getattr(nn, f"Conv{axes}d")(
        channels, rng.randint(1, 40), window, stride=8, bias=rng.random() < 0.7
    )
    act = rng.choice((lambda y: y, F.relu, lambda y: y.permute(1, 0, *range(2, axes + 2))))
    x = numbers(count, channels, *window[:-1], window[-1] + more)
    made = compared(lambda x: act(conv(x)), x, scale=10.0)
    assert not {"conv", "fused_conv"} & {n.op for n in made.graph.nodes}


@pytest.mark.parametrize(("length", "padding", "groups"), [(13, 0, 1), (6, 1, 1), (6, 0, 2)])
def test_other_convolutions_are_none(length: int, padding: int, groups: int) -> None:
    conv = nn.Conv1d(4, 4, 6, padding=padding, groups=groups)
    made = compared(conv, numbers(2, 4, length), scale=10.0)
    assert "fused_conv" in {n.op for n in made.graph.nodes}
