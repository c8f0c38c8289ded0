"""Encoders of every family against transformers; texts as vectors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, DTypeError, FileFormatError, LaunchError, ShapeError
from tests.models.folders import fixture, folder, weights

FAMILIES = list(fixture("encoders"))


@pytest.mark.parametrize("name", FAMILIES)
def test_vectors_of_tokens(name: str, tmp_path: Path) -> None:
    given = fixture("encoders")[name]
    model = cb.load(folder(tmp_path, given))
    right = given["hidden"]
    for found in (model(given["tokens"], given["mask"]), model(given["tokens"])):
        for b, length in enumerate(given["mask"].sum(1)):
            error = np.abs(found.numpy()[b, :length] - right[b, :length]).max()
            assert error < 1e-5 * np.abs(right).max()


def test_norms_with_gamma_and_beta(tmp_path: Path) -> None:
    """As the first files of BERT call them."""
    given = fixture("encoders")["bert"]
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): value
        for key, value in given.items()
    }
    assert sum(key.endswith((".gamma", ".beta")) for key in old) >= 10
    found = cb.load(folder(tmp_path / "old", old))(given["tokens"], given["mask"])
    right = cb.load(folder(tmp_path / "new", given))(given["tokens"], given["mask"])
    np.testing.assert_array_equal(found.numpy(), right.numpy())


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_of_16_bits(name: str, tmp_path: Path) -> None:
    given = fixture("encoders")[name]
    found = cb.load(folder(tmp_path, given, "float16"))(given["tokens"], given["mask"])
    assert found.dtype == cb.f32
    for b, length in enumerate(given["mask"].sum(1)):
        right = given["hidden"][b, :length]
        assert np.abs(found.numpy()[b, :length] - right).max() < 2e-2 * np.abs(right).max()


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_as_vectors(name: str, tmp_path: Path) -> None:
    given = fixture("encoders")[name]
    path = folder(tmp_path, given)
    texts = [row[:n].tolist() for row, n in zip(given["tokens"], given["mask"].sum(1), strict=True)]
    means = np.stack([h[: len(t)].mean(0) for h, t in zip(given["hidden"], texts, strict=True)])
    np.testing.assert_allclose(cb.load(path).embed(texts), means, atol=1e-5)
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (path / "modules.json").write_text(
        json.dumps([{"type": "sentence_transformers.models.Normalize"}])
    )
    first = given["hidden"][:, 0]
    right = first / np.linalg.norm(first, axis=1, keepdims=True)
    np.testing.assert_allclose(cb.load(path).embed(texts), right, atol=1e-5)


def pooled(hidden: np.ndarray, way: str) -> np.ndarray:
    """A vector (width,) of those of tokens (L, width)."""
    if way == "max":
        return np.asarray(hidden.max(0))
    return hidden.mean(0) if way == "mean" else hidden[-1 if way == "last" else 0]


@pytest.mark.parametrize("way", ["mean", "first", "cls", "last", "max"])
@pytest.mark.parametrize("name", ["bert", "mpnet", "llama", "gpt2", "gemma3"])
def test_a_call_says_how_vectors_are_made(name: str, way: str, tmp_path: Path) -> None:
    """Encoders and decoders alike, in batches of texts of any lengths."""
    decoder = name not in fixture("encoders")
    model = cb.load(folder(tmp_path, fixture("decoders" if decoder else "encoders")[name]))
    texts = [[5, 9, 2, 4], [7], [8, 2, 3, 4, 5, 6]]
    hidden = [
        (model.hidden(cb.tensor([t]), None, None) if decoder else model([t])).numpy()[0]
        for t in texts
    ]
    right = np.stack([pooled(h, way) for h in hidden])
    found = model.embed(texts, pooling=way)
    assert found.shape == right.shape and found.dtype == np.float32
    np.testing.assert_allclose(found, right, atol=2e-5)
    lengths = np.linalg.norm(right, axis=1, keepdims=True)
    np.testing.assert_allclose(
        model.embed(texts, pooling=way, normalize=True), right / lengths, atol=2e-5
    )
    if way == model.pooling:
        np.testing.assert_array_equal(model.embed(texts), found)
    with pytest.raises(ArgumentError, match="no pooling 'median'"):
        model.embed(texts, pooling="median")


def test_a_decoder_pools_as_its_folder_says(tmp_path: Path) -> None:
    """Weights may be those of the model below the head, under names without `model.`."""
    given = fixture("decoders")["qwen3"]
    path = folder(tmp_path, given)
    kept = {k.removeprefix("model."): v for k, v in weights(given).items() if "lm_head" not in k}
    nn.save_safetensors(kept, path / "model.safetensors")
    config = json.loads((path / "config.json").read_text()) | {"tie_word_embeddings": True}
    (path / "config.json").write_text(json.dumps(config))
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text('{"pooling_mode_lasttoken": true}')
    kinds = [{"type": f"sentence_transformers.models.{k}"} for k in ("Pooling", "Normalize")]
    (path / "modules.json").write_text(json.dumps(kinds))
    model = cb.load(path)
    assert (model.pooling, model.normalized) == ("last", True)
    right = model.hidden(cb.tensor([[1, 2, 3]]), None, None).numpy()[0, -1]
    np.testing.assert_allclose(
        model.embed([[1, 2, 3]])[0], right / np.linalg.norm(right), atol=1e-5
    )
    with pytest.raises(LaunchError, match="not in the vocabulary"):
        model.embed([[10**6]])


def test_vectors_of_texts_made_in_other_ways_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, fixture("encoders")["bert"])
    (path / "1_Pooling").mkdir()
    pooling, modules = path / "1_Pooling" / "config.json", path / "modules.json"
    for wrong, rule in (
        ({"pooling_mode_weightedmean_tokens": True, "pooling_mode_cls_token": False}, "by weig"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean_tokens, max"),
        ({"pooling_mode": "weightedmean"}, "by weightedmean"),
    ):
        pooling.write_text(json.dumps(wrong))
        with pytest.raises(FileFormatError, match=rule):
            cb.load(path)
    for fine, kind in (
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode_lasttoken": True, "pooling_mode_cls_token": False}, "last"),
        ({"pooling_mode_max_tokens": True, "include_prompt": False}, "max"),
        ({"word_embedding_dimension": 8}, "mean"),
    ):
        pooling.write_text(json.dumps(fine))
        assert cb.load(path).pooling == kind
    kinds = ["Transformer", "Pooling", "Dense", "Normalize"]
    modules.write_text(json.dumps([{"type": f"sentence_transformers.models.{k}"} for k in kinds]))
    with pytest.raises(FileFormatError, match="made by Dense"):
        cb.load(path)
    modules.write_text(json.dumps([{"type": "another.home.Normalize"}]))
    assert cb.load(path).normalized


@pytest.mark.parametrize("name", [*FAMILIES, "decoder"])
def test_tokens_of_other_shapes_are_refused(name: str, tmp_path: Path) -> None:
    given = fixture("decoders")["llama"] if name == "decoder" else fixture("encoders")[name]
    model = cb.load(folder(tmp_path, given))
    for tokens, wrong, rule in (
        ([1, 2, 3], ShapeError, r"\(batch, length\), at least one of each, not \(3,\)"),
        ([[[1, 2]]], ShapeError, r"not \(1, 1, 2\)"),
        ([[]], ShapeError, r"not \(1, 0\)"),
        ([[1.5, 2]], DTypeError, "integers, not f32"),
    ):
        with pytest.raises(wrong, match=rule):
            model(tokens)
    if name != "decoder":
        with pytest.raises(ShapeError, match=r"the shape of the tokens, \(2, 3\), not \(3, 2\)"):
            model([[1, 2, 3], [4, 5, 6]], [[1, 1], [1, 1], [0, 0]])


def test_texts_that_are_too_long_are_cut(tmp_path: Path) -> None:
    path = folder(tmp_path, fixture("encoders")["bert"])
    (path / "sentence_bert_config.json").write_text('{"max_seq_length": 5}')
    model = cb.load(path)
    np.testing.assert_array_equal(model.embed([[7] * 90]), model.embed([[7] * 5]))
    for wrong, rule in (
        (["a"], "no tokenizer"),
        ([[]], "at least one"),
        ([[0.5]], "a text or tokens"),
        (3, "a list"),
    ):
        with pytest.raises(ArgumentError, match=rule):
            model.embed(wrong)


def test_bad_configs_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, fixture("encoders")["bert"])
    config = json.loads((path / "config.json").read_text())
    for change, rule in (
        ({"num_attention_heads": 3}, "do not divide"),
        ({"num_hidden_layers": 3}, "missing: layers.2"),
    ):
        (path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(FileFormatError, match=rule):
            cb.load(path)
