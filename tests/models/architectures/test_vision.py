"""Vision models of every family against transformers, weights drawn by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, DTypeError, FileFormatError, ShapeError
from tests.models.drawn import noise
from tests.models.folders import drawn_folder, fixture

MODELS = fixture("vision")
TOWERS = [name for name in MODELS if name not in ("clip", "clip_old", "clip_text")]


def pixels_of(name: str) -> np.ndarray:
    return noise(name, tuple(MODELS[name]["pixels"]))


def error(found: Any, right: np.ndarray) -> float:
    array = found.numpy() if isinstance(found, cb.Tensor) else found
    assert array.shape == right.shape
    return float(np.abs(array - right).max() / np.abs(right).max())


@pytest.mark.parametrize("name", TOWERS)
def test_images(name: str, tmp_path: Path) -> None:
    given = MODELS[name]
    model = cb.load(drawn_folder(tmp_path, given))
    pixels = pixels_of(name)
    with cb.no_grad():
        if "logits" in given:
            assert error(model(pixels), given["logits"]) < 1e-5
            assert len(model.labels) == given["logits"].shape[1]
        elif "image_embeds" in given:
            assert error(model.embed(pixels), given["image_embeds"]) < 1e-5
        elif name == "clip_image":
            assert error(model.embed(pixels), given["pooler_output"]) < 1e-5
        else:
            assert error(model(pixels), given["last_hidden_state"]) < 1e-5
        if name == "convnext_body":
            assert error(model.embed(pixels), given["pooler_output"]) < 1e-5
        if "wide_result" in given:
            assert error(model(noise("wide", (1, 3, 20, 8))), given["wide_result"]) < 1e-5
        program = cb.jit(model)
        for _ in range(2):
            right = model(pixels).numpy()
            found = program(cb.tensor(pixels)).numpy()
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["clip", "clip_old"])
def test_images_and_texts(name: str, tmp_path: Path) -> None:
    given = MODELS[name]
    model = cb.load(drawn_folder(tmp_path, given))
    pixels, tokens = pixels_of(name), given["input_ids"]
    with cb.no_grad():
        assert error(model(pixels, tokens), given["logits_per_image"]) < 1e-5
    assert error(model.embed_images(pixels), given["image_embeds"]) < 1e-5
    texts = [list(tokens[0, :6]), list(tokens[1])]
    assert error(model.embed(texts), given["text_embeds"]) < 1e-5
    longer = model.embed(texts, normalize=False)
    lengths = np.linalg.norm(longer, axis=1)
    assert np.abs(lengths - 1).max() > 1e-3
    assert error(longer / lengths[:, None], given["text_embeds"]) < 1e-5
    images = model.embed_images(pixels, normalize=False)
    assert (
        error(images / np.linalg.norm(images, axis=1, keepdims=True), given["image_embeds"]) < 1e-5
    )


def test_a_config_with_what_differs_alone(tmp_path: Path) -> None:
    """As transformers 4 wrote the tables of CLIP's towers."""
    given = MODELS["clip"]
    path = drawn_folder(tmp_path, given)
    config = json.loads((path / "config.json").read_text())
    for tower in ("text_config", "vision_config"):
        assert config[tower].pop("hidden_act") == "quick_gelu"
        config[tower].pop("layer_norm_eps")
    (path / "config.json").write_text(json.dumps(config))
    with cb.no_grad():
        found = cb.load(path)(pixels_of("clip"), given["input_ids"])
    assert error(found, given["logits_per_image"]) < 1e-5


def test_texts_alone(tmp_path: Path) -> None:
    given = MODELS["clip_text"]
    model = cb.load(drawn_folder(tmp_path, given))
    with cb.no_grad():
        assert error(model.hidden(given["input_ids"]), given["last_hidden_state"]) < 1e-5
        assert error(model(given["input_ids"]), given["pooler_output"]) < 1e-5
    long = [[*range(3, 59), 60]]
    np.testing.assert_allclose(model.embed(long), model.embed([[*range(3, 22), 60]]), 1e-5)
    for wrong, rule in (
        (["a text"], "no tokenizer"),
        ([[]], "one token"),
        ("a text", "no tokenizer"),
    ):
        with pytest.raises(ArgumentError, match=rule):
            model.embed(wrong)


@pytest.mark.parametrize("name", ["vit", "dinov2_gated", "convnext", "clip"])
def test_half_weights(name: str, tmp_path: Path) -> None:
    given = MODELS[name]
    model = cb.load(drawn_folder(tmp_path, given, "float16"))
    given_to = (pixels_of(name),)
    if name == "clip":
        given_to = (*given_to, given["input_ids"])
    key = next(k for k in ("logits", "logits_per_image", "last_hidden_state") if k in given)
    with cb.no_grad():
        assert error(model(*given_to), given[key]) < 1e-5
    kinds = {str(p.dtype) for n, p in model.named_parameters() if n.endswith("up.weight")}
    assert kinds == {"cb.f16"}


def test_images_of_other_shapes(tmp_path: Path) -> None:
    model = cb.load(drawn_folder(tmp_path / "vit", MODELS["vit"]))
    with pytest.raises(DTypeError, match="floats, scaled as the model was trained, not u8"):
        model(np.zeros((1, 3, 12, 12), np.uint8))
    with pytest.raises(ShapeError, match=r"images are \(batch, 3, height, width\), not \(3, 12"):
        model(np.zeros((3, 12, 12), np.float32))
    with pytest.raises(ShapeError, match="smaller than a patch"):
        model(np.zeros((1, 3, 3, 12), np.float32))
    model = cb.load(drawn_folder(tmp_path / "convnext", MODELS["convnext"]))
    with pytest.raises(ShapeError, match="must have 16 pixels"):
        model(np.zeros((1, 3, 15, 40), np.float32))


@pytest.mark.parametrize(
    ("name", "values", "rule"),
    [
        ("vit", {"num_attention_heads": 3}, "do not divide"),
        ("vit", {"num_hidden_layers": 3}, "missing: layers.2"),
        ("vit", {"patch_size": 40}, "larger than images"),
        ("vit", {"hidden_act": "magic"}, "'magic' is not known"),
        ("vit", {"image_size": [16, 8]}, r"expected \(9, 16\), got \(10, 16\)"),
        ("convnext", {"depths": [1, 2]}, "lists of one length"),
        ("convnext", {"depths": [1, 2, -1]}, "must be a positive integer"),
        ("clip", {"vision_config": 3}, "must be a table"),
        ("clip", {"projection_dim": 9}, r"expected \(9, 16\), got \(8, 16\)"),
    ],
)
def test_bad_configs_are_refused(name: str, values: dict, rule: str, tmp_path: Path) -> None:
    path = drawn_folder(tmp_path, MODELS[name])
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | values))
    with pytest.raises(FileFormatError, match=rule):
        cb.load(path)
