"""Layers in blocks that read the same rows are one launch, and give what they give one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ShapeError
from cubepy.models.architectures.decoder import Decoder, DecoderConfig
from cubepy.models.architectures.rotary import rotary
from cubepy.models.architectures.weights import fill
from cubepy.models.packed import joined
from cubepy.models.packed.storage import Blocks
from tests.models.folders import fixture


def layer(kind: str, rows: int, columns: int = 512, activations: str = "int8") -> nn.Linear:
    raw = fixture("blocks")[kind]["raw"]
    raw = np.concatenate([raw] * (rows // len(raw) + 1))[:rows]
    raw = raw[:, : raw.shape[1] * columns // 512].copy()
    found = nn.Linear(columns, rows, bias=False)
    found.weight = nn.Parameter(cb.Tensor(Blocks(kind, raw, activations)))
    return found


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    "kinds", [("Q4_1", "Q4_1", "Q4_1"), ("Q5_0", "Q5_0", "Q8_0"), ("Q4_K", "Q6_K", "Q2_K")]
)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_joined_layers_are_those_one_by_one(kinds: tuple[str, ...], shape: tuple[int, int]) -> None:
    layers = [layer(kind, rows) for kind, rows in zip(kinds, (40, 19, 7), strict=True)]
    x = cb.tensor(np.random.default_rng(0).standard_normal((*shape, 512)).astype(np.float32))
    assert joined.fits(x, layers)
    for found, one in zip(joined.side_by_side(x, layers), layers, strict=True):
        np.testing.assert_array_equal(found.numpy(), one(x).numpy())
    gate, up = layer(kinds[0], 21), layer(kinds[2], 21)
    for activation in ("silu", None):
        found = joined.gated(x, gate, up, activation).numpy()
        right = gate(x, activation=activation) * up(x)
        np.testing.assert_allclose(found, right.numpy(), rtol=1e-6)


def test_what_does_not_go_together_is_not_joined() -> None:
    x = cb.tensor(np.ones((1, 512), np.float32))
    q4, q8 = layer("Q4_0", 8), layer("Q8_0", 8)
    assert joined.fits(x, [q4, q8, q8])
    assert not joined.fits(cb.tensor(np.ones((9, 512), np.float32)), [q4, q8, q8])
    assert not joined.fits(x, [q4, layer("Q4_K", 8), q8])
    assert not joined.fits(x, [q4, layer("Q8_0", 8, activations="float"), q8])
    assert not joined.fits(x, [q4, nn.Linear(512, 8, bias=False), q8])
    biased = nn.Linear(512, 8)
    biased.weight = q8.weight
    assert not joined.fits(x, [q4, biased])
    with pytest.raises(ShapeError, match="an input"):
        joined.gated(cb.tensor(np.ones((1, 64), np.float32)), q4, q8, None)
    with pytest.raises(ShapeError, match="lets through"):
        joined.gated(x, q4, layer("Q8_0", 9), None)


def test_a_decoder_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of a program with joined layers give what single layers give."""
    angles = rotary(16, 10000.0)
    sizes = {"width": 64, "layers": 2, "heads": 4, "groups": 2, "depth": 16, "inner": 96}
    c = DecoderConfig(vocabulary=40, context=64, rotary=angles, **sizes)
    model = Decoder(c)
    tensors: dict[str, Any] = {}
    for name, p in model.named_parameters():
        tensors[name] = p
        if name.startswith("layers.") and p.ndim == 2:
            one = layer("Q4_1" if ".k." in name else "Q8_0", p.shape[0], p.shape[1])
            tensors[name] = one.weight
    fill(model, tensors, "this test")
    tokens = cb.tensor(np.array([[3, 1, 4]]))
    step = cb.jit(model)
    with cb.no_grad():
        found = [step(tokens).numpy() for _ in range(4)]
        monkeypatch.setattr(joined, "fits", lambda *_: False)
        right = model(tokens).numpy()
    for one in found:
        np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-4 * np.abs(right).max())


def four_bits_layer(rows: int, device: str) -> nn.Linear:
    """A layer of blocks of four bits on a GPU."""
    found = layer("Q4_0", rows, 64)
    found.weight = nn.Parameter(found.weight.to(device))
    return found


@pytest.mark.turns(6)
@pytest.mark.parametrize("processor", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9)])
def test_packed_layers_on_a_gpu_become_one_weight(processor: str, shape: tuple[int, int]) -> None:
    from tests.backends.hip.emulator.device import emulated

    with emulated(processor), cb.use(processor):
        layers = [four_bits_layer(rows, processor) for rows in (32, 16, 5)]
        data = np.random.default_rng(7).standard_normal((*shape, 64)).astype(np.float32)
        x = cb.tensor(data, device=processor)
        right = [one(x).numpy() for one in layers]
        assert joined.aligned(x, layers) and not joined.fits(x, layers)
        for found, one in zip(joined.side_by_side(x, layers), right, strict=True):
            np.testing.assert_allclose(found.numpy(), one, rtol=1e-5, atol=1e-6)
        stores = [one.weight.storage for one in layers]
        whole = stores[0].whole
        assert whole is not None and all(s.whole is whole for s in stores)
        assert all(s.weight.codes.base is not None for s in stores)  # nothing is stored twice
        for one, single in zip(layers, right, strict=True):
            np.testing.assert_array_equal(one(x).numpy(), single)
        step = cb.jit(lambda x: joined.side_by_side(x, layers))
        for _ in range(3):
            for found, single in zip(step(x), right, strict=True):
                np.testing.assert_allclose(found.numpy(), single, rtol=1e-5, atol=1e-6)
        assert not joined.aligned(x, [layers[1], layers[0], layers[2]])  # another order
        layers[0].weight = four_bits_layer(48, processor).weight  # others stay parts of the first
        assert not joined.aligned(x, layers)
        for found, one in zip(step(x), layers, strict=True):
            np.testing.assert_allclose(found.numpy(), one(x).numpy(), rtol=1e-5, atol=1e-6)


def test_what_needs_a_gradient_is_not_joined() -> None:
    layers = [layer("Q4_0", 16) for _ in range(3)]
    x = cb.tensor(np.ones((1, 512), np.float32))
    assert joined.aligned(x, layers)
    x.requires_grad_()
    assert not joined.aligned(x, layers) and not joined.fits(x, layers)
