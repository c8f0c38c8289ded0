"""Decoders of every family against transformers: logits, and what they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import FileFormatError
from cubepy.runtime.device import current
from tests.models.folders import fixture, folder, weights

FAMILIES = list(fixture("decoders"))


def error(found: Any, right: np.ndarray) -> float:
    return float(np.abs(found.numpy() - right).max() / np.abs(right).max())


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_and_text(name: str, tmp_path: Path) -> None:
    given = fixture("decoders")[name]
    model = cb.load(folder(tmp_path, given))
    with cb.no_grad():
        assert error(model(given["tokens"])[:, -5:], given["logits"]) < 1e-5
        assert error(model(given["long"])[:, -1], given["long_logits"]) < 1e-5
    prompts = given["tokens"].tolist()
    model.ends = frozenset()  # the right tokens go on behind it
    assert model.generate(prompts, max_new_tokens=20) == given["greedy"].tolist()
    steps = model.steps.several if current().backend == "cpu" else model.steps.greedy
    assert sum(steps.traces.values()) == 1
    alone = model.generate(prompts[1], max_new_tokens=20)
    assert alone == given["greedy"][1].tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_weights_stay_half(dtype: str, tmp_path: Path) -> None:
    import ml_dtypes

    given = fixture("decoders")["llama"]
    kind: Any = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    model = cb.load(folder(tmp_path, given, kind))
    kinds = {
        str(p.dtype)
        for name, p in model.named_parameters()
        if "norm" not in name and "before" not in name
    }
    assert kinds == {"cb.f16" if dtype == "float16" else "cb.bf16"}
    with cb.no_grad():
        assert error(model(given["tokens"])[:, -5:], given["logits"]) < (
            1e-5 if dtype == "float16" else 2e-2
        )


def test_heads_that_are_tied_are_one_parameter(tmp_path: Path) -> None:
    model = cb.load(folder(tmp_path, fixture("decoders")["gemma3"]))
    assert model.head.weight is model.words.weight
    assert not any(p.requires_grad for p in model.parameters())


def changed(path: Path, **values: Any) -> None:
    config = json.loads((path / "config.json").read_text())
    config.update(values)
    (path / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("kind", fixture("decoders"))
@pytest.mark.parametrize("layers", [9_999, 2**31 - 1])
def test_layers_that_are_not_there_are_not_made(kind: str, layers: int, tmp_path: Path) -> None:
    path = folder(tmp_path, fixture("decoders")[kind])
    config = json.loads((path / "config.json").read_text())
    changed(path, **{"n_layer" if "n_layer" in config else "num_hidden_layers": layers})
    with pytest.raises(
        FileFormatError, match=r"missing: layers|at most 10000|for \d+ of \d+ layers"
    ):
        cb.load(path)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"model_type": "mamba"}, "models of the kind 'mamba' cannot be loaded"),
        ({"quantization_config": {"quant_method": "awq"}}, "'awq' quantized"),
        ({"hidden_size": 32}, r"expected \(61, 32\), got \(61, 16\)"),
        ({"num_hidden_layers": 3}, "missing: layers.2"),
        ({"num_hidden_layers": 1}, "unexpected: layers.1"),
        ({"hidden_size": -1}, "hidden_size must be a positive integer"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_act": "magic"}, "the activation 'magic' is not known"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"rope_parameters": {"rope_type": "magic"}}, "scaled by 'magic'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "is damaged: 'factor'"),
        ({"vocab_size": 2**30, "hidden_size": 2**30, "head_dim": 4}, "fit"),
    ],
)
def test_bad_configs_are_refused(values: dict, rule: str, tmp_path: Path) -> None:
    path = folder(tmp_path, fixture("decoders")["llama"])
    changed(path, **values)
    with pytest.raises(FileFormatError, match=rule):
        cb.load(path)


def test_unknown_weights_are_named(tmp_path: Path) -> None:
    given = fixture("decoders")["llama"]
    path = folder(tmp_path, given | {"w:model.layers.0.magic.weight": np.zeros(3)})
    with pytest.raises(FileFormatError, match=r"model\.layers\.0\.magic\.weight"):
        cb.load(path)
    assert len(weights(given)) > 10


def test_a_quantized_copy_writes_by_itself(tmp_path: Path) -> None:
    model = cb.load(folder(tmp_path, fixture("decoders")["llama_biased"]))
    before = model.generate([1, 2, 3], max_new_tokens=6)
    found = cb.quant.quantize(model, "int8", measure_speed=False).model
    assert found.steps.model is found and model.steps.model is model
    tokens = [1, 2, 3]
    for _ in range(6):
        with cb.no_grad():
            tokens.append(int(found([tokens]).numpy()[0, -1].argmax()))
    assert found.generate([1, 2, 3], max_new_tokens=6) == tokens[3:]
    assert model.generate([1, 2, 3], max_new_tokens=6) == before
