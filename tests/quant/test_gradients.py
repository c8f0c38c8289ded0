"""Gradients by what quantized layers read: adapters learn beside weights that stay packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn, quant
from cubepy.models.formats.dequantize import dequantize
from cubepy.models.packed.storage import Blocks

RNG = np.random.default_rng(5)
SCHEMES: list[dict[str, Any]] = [
    {"scheme": scheme, "activations": activations}
    for scheme in ("int4", "int8")
    for activations in ("int8", "float")
]


def quantized(scheme: str, activations: str) -> tuple[nn.Module, np.ndarray]:
    """A layer, and its weight in f64."""
    net = nn.Sequential(nn.Linear(64, 24))
    found = quant.quantize(net, scheme, activations=activations, measure_speed=False).model
    return found[0], found[0].weight.storage.weight.dequantize().astype(float)


def packed(kind: str, nbytes: int) -> tuple[nn.Module, np.ndarray]:
    """The same of blocks."""
    raw = RNG.integers(0, 256, (12, 2 * nbytes), np.uint8)
    halves = raw.view(np.float16)
    for at in (0, nbytes // 2) if kind == "Q4_0" else (nbytes // 2 - 1, nbytes - 1):
        halves[:, at] = np.float16(0.01 if kind == "Q4_0" else 1e-4)
    layer = nn.Linear(64 if kind == "Q4_0" else 512, 12)
    layer.weight.assign_(cb.Tensor(Blocks(kind, raw, "float")))
    return layer, dequantize(kind, raw).astype(float)


LAYERS = [*((quantized, options) for options in SCHEMES)]
BLOCKS = [(packed, {"kind": "Q4_0", "nbytes": 18}), (packed, {"kind": "Q6_K", "nbytes": 210})]


@pytest.mark.parametrize(
    ("made", "options"), LAYERS + BLOCKS, ids=lambda v: getattr(v, "__name__", str(v))
)
def test_gradients_by_inputs_are_those_of_the_unpacked_weight(
    made: Any, options: dict[str, Any]
) -> None:
    layer, weight = made(**options)
    function = cb.value_and_grad(lambda x: (layer(x).tanh() * 3).sum())
    program = cb.jit(function)
    for _ in range(4):
        x = cb.tensor(RNG.standard_normal((3, weight.shape[1]), np.float32))
        y = layer(x).numpy().astype(float)
        right = (3 * (1 - np.tanh(y) ** 2)) @ weight
        for run in (function, program):
            error = np.abs(run(x)[1].numpy() - right).max() / np.abs(right).max()
            assert error < 1e-5


class Adapted(nn.Module):
    """A layer with a product of two small matrices beside it (LoRA: Hu et al., 2022)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.down, self.up = nn.Linear(64, 4, bias=False), nn.Linear(4, 24, bias=False)

    def forward(self, x: cb.Tensor) -> cb.Tensor:
        found: cb.Tensor = self.layer(x) + self.up(self.down(x))
        return found


@pytest.mark.parametrize("options", SCHEMES, ids=str)
def test_adapters_learn_beside_packed_weights(options: dict[str, Any]) -> None:
    (first, _), (second, _) = quantized(**options), quantized(**options)
    net = nn.Sequential(Adapted(first), nn.Tanh(), nn.Linear(24, 64), Adapted(second))
    learnt = [p for name, p in net.named_parameters() if "layer." not in name]
    optimizer = nn.optim.Adam(learnt, lr=1e-2)
    x = cb.tensor(RNG.standard_normal((32, 64), np.float32))
    y = cb.tensor(RNG.standard_normal((32, 24), np.float32))

    @cb.jit
    def step() -> cb.Tensor:
        loss = ((net(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = [float(step().item()) for _ in range(60)]
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("scheme", ["int4", "int8"])
def test_second_derivatives_are_those_of_the_unpacked_weight(scheme: str) -> None:
    layer, weight = quantized(scheme, "float")
    plain = nn.Linear(64, 24)
    plain.weight.assign_(cb.tensor(weight.astype(np.float32)))
    plain.bias.assign_(layer.bias.detach())
    x, v = (cb.tensor(RNG.standard_normal((3, 64), np.float32)) for _ in range(2))

    def along(net: nn.Module) -> np.ndarray:
        def slope(x: cb.Tensor) -> cb.Tensor:
            return (cb.grad(lambda x: net(x).tanh().sum())(x) * v).sum()

        found: np.ndarray = cb.grad(slope)(x).numpy()
        return found

    right = along(plain)
    assert np.abs(along(layer) - right).max() / np.abs(right).max() < 1e-5


@pytest.mark.parametrize("scheme", ["int4", "int8"])
def test_gradients_of_weights_in_the_memory_of_a_gpu(scheme: str) -> None:
    from tests.backends.hip.emulator.device import emulated

    layer, weight = quantized(scheme, "float")
    x, g = (RNG.standard_normal((3, n), np.float32) for n in (64, 24))
    with emulated("gfx1100"), cb.use("gfx1100"):
        layer.to("gfx1100")
        given = cb.tensor(x, device="gfx1100", requires_grad=True)
        (layer(given) * cb.tensor(g, device="gfx1100")).sum().backward()
        found = given.grad.numpy()
    right = g.astype(float) @ weight
    assert np.abs(found - right).max() / np.abs(right).max() < 1e-5
