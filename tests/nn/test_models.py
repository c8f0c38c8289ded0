"""Models in `nn` beside the same in torch: results and all gradients, in f64 and f32, op by op and
as programs.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from tests.nn.models.convolutional import ConvNext, MobileNetV2, ResNet50
from tests.nn.models.recurrent import LstmModel
from tests.nn.models.transformers import Gpt2, LlamaBlock, Roberta, Vit

FILE = Path(__file__).parent / "fixtures" / "models.npz"
MODELS: dict[str, type[nn.Module]] = {
    "roberta": Roberta,
    "gpt2": Gpt2,
    "llama": LlamaBlock,
    "vit": Vit,
    "resnet50": ResNet50,
    "convnext": ConvNext,
    "mobilenetv2": MobileNetV2,
    "lstm": LstmModel,
}
LIMITS = {"f64": 1e-10, "f32": 1e-5}
"""How far a result or a gradient may be off, relative to its norm."""
SENSITIVE = {"resnet50_trained": 10.0}
"""How many times that in f32: torch's own result in f32 is off by 2.1e-5, ours by 1.6e-5, and
gradients by twice that."""
SMALL = 1e-2
"""Of the norm of all gradients: what smaller ones are held to (some are 0, as those of biases ahead
of a batch norm)."""


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """As `scripts/make_model_fixture.py` draws weights."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    numbers = rng.standard_normal(shape)
    if name.endswith("running_var"):
        numbers = np.abs(numbers) + 0.5
    elif len(shape) == 1:
        about = 1.0 if name.endswith(("weight", "gamma")) else 0.0
        numbers = about + 0.1 * numbers
    else:
        numbers = numbers / np.sqrt(np.prod(shape[1:]))
    return numbers.astype(np.float32)


def inputs() -> dict[str, np.ndarray]:
    """As the script."""
    rng = np.random.default_rng(5)
    padded = rng.integers(2, 50, (2, 12))
    padded[1, 8:] = 1
    return {
        "roberta": padded,
        "gpt2": rng.integers(0, 50, (2, 12)),
        "llama": rng.standard_normal((2, 9, 16)).astype(np.float32),
        "vit": rng.standard_normal((2, 3, 16, 16)).astype(np.float32),
        "resnet50": rng.standard_normal((2, 3, 64, 64)).astype(np.float32),
        "resnet50_trained": rng.standard_normal((4, 3, 64, 64)).astype(np.float32),
        "convnext": rng.standard_normal((2, 3, 32, 32)).astype(np.float32),
        "mobilenetv2": rng.standard_normal((2, 3, 32, 32)).astype(np.float32),
        "mobilenetv2_trained": rng.standard_normal((4, 3, 32, 32)).astype(np.float32),
        "lstm": rng.integers(0, 30, (2, 10)),
    }


def summary(name: str, array: np.ndarray) -> np.ndarray:
    """As the script: the norm, and products with four random vectors."""
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1)
    flat = array.astype(np.float64).reshape(-1)
    vectors = rng.standard_normal((4, flat.size))
    return np.concatenate([[np.linalg.norm(flat)], vectors @ flat])


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(FILE) as file:
        return dict(file)


def model_of(name: str, dtype: str) -> nn.Module:
    kind, _, trained = name.partition("_")
    model = MODELS[kind]()
    state = model.state_dict()
    model.load_state_dict(
        {
            key: cb.tensor(drawn(f"{kind}.{key}", value.shape)) if value.dtype.is_float else value
            for key, value in state.items()
        }
    )
    return model.to(dtype).train(bool(trained))


def close(name: str, key: str, got: np.ndarray, limit: float, scale: float) -> None:
    want = stored()[f"{name}/{key}"]
    size = max(float(np.linalg.norm(want)), SMALL * scale)
    off = float(np.linalg.norm(got - want)) / size
    assert off <= limit, f"{name}: {key} is off by {off:.2g} of {size:.3g}"


def step(model: nn.Module, x: Any, weights: Any) -> tuple[Any, dict[str, Any]]:
    """The result, and the gradients of its sum, weighed, by all parameters and the input."""
    y = model(x)
    (y * weights).sum().backward()
    grads = {key: p.grad for key, p in model.named_parameters()}
    return y, grads


@pytest.mark.parametrize("way", ["ops", "program"])
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", inputs())
def test_a_model_is_what_torch_gives(name: str, dtype: str, way: str) -> None:
    model, array = model_of(name, dtype), inputs()[name]
    result = stored()[f"{name}/result"]
    weights = np.random.default_rng(zlib.crc32(name.encode())).uniform(-1, 1, result.shape)
    limit = LIMITS[dtype] * (SENSITIVE.get(name, 1.0) if dtype == "f32" else 1.0)
    run = step if way == "ops" else cb.jit(step)
    for _ in range(1 if way == "ops" else 3):
        x = cb.tensor(array)
        if x.dtype.is_float:
            x = x.astype(dtype).requires_grad_()
        for p in model.parameters():
            p.grad = None
        y, grads = run(model, x, cb.tensor(weights, dtype))
        close(name, "result", y.numpy(), limit, 0)
        if x.requires_grad:
            grads["input"] = x.grad
        whole = np.sqrt(sum(float(np.linalg.norm(g.numpy())) ** 2 for g in grads.values()))
        for key, grad in grads.items():
            close(name, key, summary(key, grad.numpy()), limit, whole)
    if way == "ops" and model.training:
        for key, value in model.state_dict().items():
            if "running" in key:
                close(name, key, value.numpy(), limit, 0)
