"""T5 against transformers, weights drawn by name: scores, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, FileFormatError, LaunchError
from tests.models.folders import drawn_folder, fixture

MODELS = fixture("sequences")
WRITERS = [name for name in MODELS if name != "t5_encoder"]


def texts_of(given: dict[str, np.ndarray]) -> list[list[int]]:
    return [row[row != 0].tolist() for row in given["tokens"]]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scores_and_texts(name: str, dtype: str, tmp_path: Path) -> None:
    given = MODELS[name]
    model = cb.load(drawn_folder(tmp_path, given, dtype))
    with cb.no_grad():
        found = model(given["tokens"], given["later"]).numpy()[:, [0, 1, 2, 20, 39]]
    assert np.abs(found - given["logits"]).max() < 1e-5 * np.abs(given["logits"]).max()
    model.ends = frozenset()
    prompts = texts_of(given)
    assert model.generate(prompts, max_new_tokens=40) == given["greedy"].tolist()
    assert sum(model.programs[1].traces.values()) == 2  # two sizes of caches
    alone = model.generate(np.array(prompts[1]), max_new_tokens=40)
    assert alone == given["greedy"][1].tolist()


def test_steps_are_the_whole(tmp_path: Path) -> None:
    given = MODELS["t5_gated"]
    model = cb.load(drawn_folder(tmp_path, given))
    tokens = given["tokens"][:1]
    with cb.no_grad():
        whole = model(tokens, given["later"][:1]).numpy()[0]
        ids, looks = model.shown(tokens, None)
        crossed = model.crossed(model.encode(ids, looks))
        caches = model._caches(1, 64, ids.device)
        for at, token in enumerate(given["later"][0]):
            one = cb.tensor(np.array([token])), cb.tensor(np.array(at))
            scores, caches = model.step(*one, caches, crossed, looks)
            np.testing.assert_allclose(scores.numpy()[0], whole[at], rtol=1e-4, atol=1e-4)


def test_sampling_ends_and_seeds(tmp_path: Path) -> None:
    model = cb.load(drawn_folder(tmp_path, MODELS["t5"]))
    assert model.ends == {1}
    prompts, options = texts_of(MODELS["t5"]), {"temperature": 1.5, "max_new_tokens": 9}
    both = model.generate(prompts, seed=[3, 4], **options)
    assert both == [
        model.generate(p, seed=s, **options) for p, s in zip(prompts, (3, 4), strict=True)
    ]
    assert model.generate(prompts[0], seed=5, **options) != both[0]
    model.ends = frozenset(both[0][3:4])
    cut = model.generate(prompts[0], seed=3, **options)
    assert cut == both[0][: both[0].index(both[0][3]) + 1]
    for wrong, rule in (
        ("a text", "no tokenizer"),
        ([], "a text or tokens"),
        (3, "a text or tokens"),
        ([[1], "a"], "all texts, or all tokens"),
        ([[0.5]], "integers"),
    ):
        with pytest.raises(ArgumentError, match=rule):
            model.generate(wrong)
    with pytest.raises(LaunchError, match="token 61 is not in the vocabulary"):
        model.generate([61])
    with pytest.raises(ArgumentError, match="magic"):
        model.generate([3], magic=1)


def test_an_encoder_alone(tmp_path: Path) -> None:
    given = MODELS["t5_encoder"]
    model = cb.load(drawn_folder(tmp_path, given))
    right, texts = given["hidden"], texts_of(given)
    with cb.no_grad():
        found = model(given["tokens"]).numpy()
    for b, text in enumerate(texts):
        off = np.abs(found[b, : len(text)] - right[b, : len(text)]).max()
        assert off < 1e-5 * np.abs(right).max()
    means = np.stack([h[: len(t)].mean(0) for h, t in zip(right, texts, strict=True)])
    np.testing.assert_allclose(model.embed(texts), means, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"feed_forward_proj": "sparse-relu"}, "is not known: relu"),
        ({"feed_forward_proj": "gated-magic"}, "'magic' is not known"),
        ({"num_decoder_layers": 4}, "missing: decoder.layers.2"),
        ({"d_kv": 5}, r"expected \(10, 16\), got \(12, 16\)"),
        ({"relative_attention_num_buckets": 3}, "3 buckets"),
        ({"feed_forward_proj": "gated-gelu"}, "missing: encoder.layers.0.network.gate"),
    ],
)
def test_bad_configs_are_refused(values: dict, rule: str, tmp_path: Path) -> None:
    path = drawn_folder(tmp_path, MODELS["t5"])
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | values))
    with pytest.raises(FileFormatError, match=rule):
        cb.load(path)
