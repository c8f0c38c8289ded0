"""ModernBERT against transformers, weights drawn by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import FileFormatError
from cubepy.models.architectures import modern_encoder
from tests.models.folders import drawn_folder, fixture

MODELS = fixture("more_encoders")


def changed(path: Path, **values: object) -> Path:
    config = json.loads((path / "config.json").read_text())
    for key in [key for key, value in values.items() if value is None]:
        config.pop(key, None)
    config |= {key: value for key, value in values.items() if value is not None}
    (path / "config.json").write_text(json.dumps(config))
    return path


def check(model: object, given: dict[str, np.ndarray]) -> None:
    right, tokens = given["hidden"], given["tokens"]
    with cb.no_grad():
        for found in (model(tokens), model(tokens, tokens != 0)):
            for b, length in enumerate((tokens != 0).sum(1)):
                off = np.abs(found.numpy()[b, :length] - right[b, :length]).max()
                assert off < 1e-5 * np.abs(right).max()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_vectors_of_tokens(name: str, dtype: str, tmp_path: Path) -> None:
    given = MODELS[name]
    model = cb.load(drawn_folder(tmp_path, given, dtype))
    check(model, given)
    texts = [row[row != 0].tolist() for row in given["tokens"]]
    means = np.stack([h[: len(t)].mean(0) for h, t in zip(given["hidden"], texts, strict=True)])
    np.testing.assert_allclose(model.embed(texts), means, atol=1e-5)


def test_configs_of_2024(tmp_path: Path) -> None:
    given = MODELS["modernbert"]
    path = drawn_folder(tmp_path, given)
    theta = {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    changed(path, rope_parameters=None, layer_types=None, global_attn_every_n_layers=3, **theta)
    check(cb.load(path), given)


@pytest.mark.parametrize("name", ["modernbert", "modernbert_biased", "modernbert_tanh"])
def test_neighbours_in_blocks_are_those_of_transformers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modern_encoder, "BLOCKS", 0.01)
    check(cb.load(drawn_folder(tmp_path, MODELS[name])), MODELS[name])


@pytest.mark.parametrize("seed", range(8))
def test_neighbours_in_blocks_see_what_masks_show(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches and lengths of all kinds, padding, and gradients."""
    rng = np.random.default_rng(seed)
    reach, length = int(rng.integers(1, 9)), int(rng.integers(1, 60))
    sizes = {"vocabulary": 30, "width": 16, "layers": 3, "heads": 2, "inner": 20, "context": 64}
    c = modern_encoder.ModernConfig(**sizes, reach=reach, local=(True, False, True))
    model, tokens = modern_encoder.ModernEncoder(c), rng.integers(1, 30, (3, length))
    mask = (np.arange(length) < rng.integers(1, length + 1, (3, 1))).astype(np.float32)
    found = []
    for blocks in (0.01, 1e9):
        monkeypatch.setattr(modern_encoder, "BLOCKS", blocks)
        for p in model.parameters():
            p.grad = None
        y = model(tokens, mask) * mask[..., None]
        (y * y * y).sum().backward()
        found.append([y.detach(), *(p.grad for p in model.parameters())])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"num_attention_heads": 3}, "do not divide"),
        ({"layer_types": ["full_attention"]}, "must name 4 layers"),
        ({"layer_types": ["magic"] * 4}, "must name 4 layers"),
        ({"hidden_activation": "magic"}, "'magic' is not known"),
        ({"num_hidden_layers": 5, "layer_types": ["full_attention"] * 5}, "missing: layers.4"),
        ({"attention_bias": True}, "missing: layers.0.qkv.bias"),
    ],
)
def test_bad_configs_are_refused(values: dict, rule: str, tmp_path: Path) -> None:
    path = changed(drawn_folder(tmp_path, MODELS["modernbert"]), **values)
    with pytest.raises(FileFormatError, match=rule):
        cb.load(path)
