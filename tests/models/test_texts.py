"""Texts in and out: tokenizers of folders and GGUF files, chat templates, streams, the command."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.__main__ import main
from cubepy.errors import ArgumentError, FileFormatError
from cubepy.models.formats.gguf import GGUF
from cubepy.models.generation.chat import ChatTemplate
from cubepy.models.generation.tokenizer import gguf_ends, gguf_tokenizer
from tests.models import written
from tests.models.folders import fixture, folder
from tests.models.gguf_files import gguf_of

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def of(metadata: dict[str, Any]) -> Any:
    return gguf_tokenizer(GGUF(3, {f"tokenizer.{k}": v for k, v in metadata.items()}, {}), "x")


BYTES = [chr(c) for c in range(ord("!"), ord("~") + 1)] + ["Ġ", "Ċ"]
PAIRS: dict[str, Any] = {
    "ggml.model": "gpt2",
    "ggml.tokens": [*BYTES, "he", "ll", "hell", "hello", "Ġw", "<|im_end|>"],
    "ggml.merges": ["h e", "l l", "he ll", "hell o", "Ġ w"],
    "ggml.token_type": np.array([1] * (len(BYTES) + 5) + [3]),
    "ggml.bos_token_id": 2,
    "chat_template": TEMPLATE,
}


def shown(tokenizer: Any, text: str, tokens: list[str]) -> list[str]:
    return [tokens[n] for n in tokenizer.encode(text)]


def test_byte_pairs() -> None:
    t = of(PAIRS)
    tokens = PAIRS["ggml.tokens"]
    assert shown(t, "hello w1", tokens) == ["hello", "Ġw", "1"]
    assert shown(t, "hell<|im_end|>", tokens) == ["hell", "<|im_end|>"]
    assert t.decode(t.encode("hello w\n1")) == "hello w\n1"
    assert gguf_ends(GGUF(3, {f"tokenizer.{k}": v for k, v in PAIRS.items()}, {})) == {
        len(tokens) - 1
    }


@pytest.mark.parametrize(
    ("kind", "right"),
    [
        ("qwen2", ["1", "2", "3", "4"]),
        ("llama-bpe", ["12", "3", "4"]),
        ("gpt-2", ["12", "3", "4"]),
        ("smollm", ["1", "2", "3", "4"]),
    ],
)
def test_how_texts_are_cut(kind: str, right: list[str]) -> None:
    tokens = [*PAIRS["ggml.tokens"], "12"]
    kinds = np.append(PAIRS["ggml.token_type"], 1)
    more = {"ggml.tokens": tokens, "ggml.token_type": kinds, "ggml.pre": kind}
    t = of(PAIRS | more | {"ggml.merges": [*PAIRS["ggml.merges"], "1 2"]})
    assert shown(t, "1234", tokens) == right


PIECES = ["<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "▁", "a", "b", "ab", "▁a", "▁ab", "bb"]
SENTENCE: dict[str, Any] = {
    "ggml.model": "llama",
    "ggml.tokens": PIECES,
    "ggml.scores": np.array([0, 0, 0, 0, 0, -1, -2, -3, -5, -4, -6, -4.5], np.float32),
    "ggml.token_type": np.array([2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1]),
    "ggml.bos_token_id": 1,
    "ggml.unknown_token_id": 0,
}


def test_sentence_pieces() -> None:
    t = of(SENTENCE)
    assert shown(t, "ab", PIECES) in (["<s>", "▁a", "b"], ["<s>", "▁ab"])
    assert shown(t, "abb", PIECES) == ["<s>", "▁a", "bb"]  # the highest score comes first
    assert shown(t, "é", PIECES)[-2:] == ["<0xC3>", "<0xA9>"]
    assert t.decode(t.encode("ab é ab")[1:]) == "ab é ab"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"ggml.model": "rwkv"}, "of the kind 'rwkv'"),
        ({"ggml.pre": "magic"}, "cut as 'magic'"),
        ({"ggml.merges": ["zz yy"]}, "not in the vocabulary"),
        ({"ggml.merges": None}, "without merges"),
        ({"ggml.token_type": np.ones(3)}, "types"),
        ({"ggml.token_type": [[1], []]}, "with list types"),
        ({"ggml.token_type": 3}, "with int types"),
    ],
)
def test_bad_vocabularies(change: dict, rule: str) -> None:
    with pytest.raises(FileFormatError, match=rule):
        of(PAIRS | change)
    with pytest.raises(FileFormatError, match="without their scores"):
        of(SENTENCE | {"ggml.scores": None})


# Templates


def test_templates() -> None:
    t = ChatTemplate(TEMPLATE)
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    assert t.render(messages) == "<user>hi<assistant>ho<a>"
    assert t.render(messages, begin=False) == "<user>hi<assistant>ho"
    assert (
        ChatTemplate("{{ bos_token }}{{ x | default('y') }}", {"bos_token": "B"}).render([]) == "By"
    )
    assert ChatTemplate("{{ {'a': 'é'} | tojson }}").render([]) == '{"a": "é"}'


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%1000000000d' % 1 }}",
        "{% include '/etc/passwd' %}",
        "{{ raise_exception('not these') }}",
        "{{ open('/etc/passwd') }}",
        "{% for %}",
    ],
)
def test_templates_that_reach_out_or_loop(text: str) -> None:
    with pytest.raises(ArgumentError, match="template"):
        ChatTemplate(text).render([{"role": "user", "content": "hi"}])


# Models with texts


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer: letters are tokens."""
    found = folder(tmp_path_factory.mktemp("model"), fixture("decoders")["llama"])
    letters = {
        c: n for n, c in enumerate("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ<>/ ,.!?é")
    }
    assert len(letters) == 61
    pieces = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters, merges=[]))
    pieces.decoder = tokenizers.decoders.Fuse()
    pieces.save(str(found / "tokenizer.json"))
    (found / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    (found / "generation_config.json").write_text(json.dumps({"eos_token_id": [60]}))
    return found


def test_texts(path: Path) -> None:
    model = cb.load(path)
    assert model.ends == {60}
    text = model.generate("hello", max_new_tokens=20)
    tokens = model.generate(model.tokenizer.encode("hello"), max_new_tokens=20)
    assert text == model.tokenizer.decode(tokens) and len(text) == 20
    assert "".join(model.stream("hello", max_new_tokens=20)) == text
    stop = text[7:9]
    end = text.find(stop)
    assert model.generate("hello", max_new_tokens=20, stop=stop) == text[:end]
    assert "".join(model.stream("hello", max_new_tokens=20, stop=[stop])) == text[:end]
    assert model.generate(["hello", "ab"], max_new_tokens=20)[0] == text
    messages = [{"role": "user", "content": "hi"}]
    assert model.generate(messages, max_new_tokens=5) == model.generate(
        "<user>hi<a>", max_new_tokens=5
    )


def test_the_command(
    path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = cb.load(path)
    right = model.generate("hello", max_new_tokens=6)
    assert main(["generate", str(path), "hello", "--max-new-tokens", "6"]) == 0
    assert capsys.readouterr().out == right + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("hi\n\n"))
    assert main(["chat", str(path), "--max-new-tokens", "6"]) == 0
    assert model.generate("<user>hi<a>", max_new_tokens=6) in capsys.readouterr().out
    assert main(["look", str(path)]) == 0
    assert "LlamaForCausalLM" in capsys.readouterr().out
    assert main(["generate", str(path / "model.safetensors"), "x"]) == 2
    assert "no model that writes texts" in capsys.readouterr().err


# GGUF models


def test_a_gguf_model_is_the_same(path: Path, tmp_path: Path) -> None:
    model = cb.load(path)
    (tmp_path / "m.gguf").write_bytes(gguf_of(model))
    other = cb.load(tmp_path / "m.gguf")
    tokens = fixture("decoders")["llama"]["tokens"]
    with cb.no_grad():
        np.testing.assert_allclose(
            other(tokens).numpy(), model(tokens).numpy(), rtol=1e-4, atol=1e-6
        )
    assert other.generate([1, 2], max_new_tokens=8) == model.generate([1, 2], max_new_tokens=8)


@pytest.mark.parametrize(
    ("metadata", "rule"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba' cannot be loaded"),
        ({"llama.block_count": 3}, "missing: layers.2"),
        ({"llama.embedding_length": 32}, r"expected \(61, 32\)"),
        ({"llama.attention.head_count": 0}, "num_attention_heads must be a positive"),
    ],
)
def test_bad_gguf_models(path: Path, tmp_path: Path, metadata: dict, rule: str) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf_of(cb.load(path), **metadata))
    with pytest.raises(FileFormatError, match=rule):
        cb.load(tmp_path / "m.gguf")


@pytest.mark.parametrize("factors", [(1.0, 1.0), (1.0, 8.0)])
def test_divisors_of_frequencies(path: Path, tmp_path: Path, factors: tuple[float, ...]) -> None:
    model = cb.load(path)
    more = [written.plain("rope_freqs.weight", np.array(factors, np.float32))]
    (tmp_path / "m.gguf").write_bytes(gguf_of(model, more))
    other = cb.load(tmp_path / "m.gguf")
    right = model.config.rotary.frequencies / np.array(factors, np.float32)
    np.testing.assert_allclose(other.config.rotary.frequencies, right)


def test_models_with_texts_are_pickled(path: Path, tmp_path: Path) -> None:
    model = cb.load(path)
    right = model.generate([{"role": "user", "content": "hi"}], max_new_tokens=5)
    other = pickle.loads(pickle.dumps(model))
    assert other.generate([{"role": "user", "content": "hi"}], max_new_tokens=5) == right
    words = {
        f"tokenizer.{key}": value.astype(np.int32) if isinstance(value, np.ndarray) else value
        for key, value in PAIRS.items()
    }
    (tmp_path / "m.gguf").write_bytes(gguf_of(model, **words))
    first = cb.load(tmp_path / "m.gguf")
    other = pickle.loads(pickle.dumps(first))
    assert other.tokenizer.encode("the cat") == first.tokenizer.encode("the cat")


def test_what_is_no_text_and_no_token(path: Path) -> None:
    tokenizer = cb.load(path).tokenizer
    for given in (3, ["a"], None):
        with pytest.raises(ArgumentError, match="a text is encoded, not"):
            tokenizer.encode(given)
    for given in ([-1], "ab", [0.5], 3):
        with pytest.raises(ArgumentError, match="tokens are integers of at least 0, unlike"):
            tokenizer.decode(given)
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("ab")
    assert tokenizer.decode(cb.tensor([7, 8])) == tokenizer.decode(np.array([7, 8])) == "hi"
