"""ModernBERT against transformers, weights drawn by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import FileFormatError
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
