"""Vocabularies of GGUF files by their kinds, how texts are cut, and a tag of chat templates.

`scripts/golden_texts.py` compares whole vocabularies; these are small ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy.errors import ArgumentError, FileFormatError
from cubepy.models.formats.gguf import GGUF
from cubepy.models.generation.chat import ChatTemplate
from cubepy.models.generation.cuts import CUTS, WHOLE, cutter
from cubepy.models.generation.tokenizer import gguf_tokenizer

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

TEXT = "It's 12345 naïve, OKso?!\n\n  x 一か"
CUT = {
    "gpt-2": ["It", "'s", " 12345", " naïve", ",", " OKso", "?!", "\n\n ", " x", " 一か"],
    "llama-bpe": [
        "It",
        "'s",
        " ",
        "123",
        "45",
        " naïve",
        ",",
        " OKso",
        "?!\n\n",
        " ",
        " x",
        " 一か",
    ],
    "gpt-4o": ["It's", " ", "123", "45", " naïve", ",", " OKso", "?!\n\n", " ", " x", " 一か"],
    "falcon": [
        "It",
        "'",
        "s",
        " ",
        "123",
        "45",
        " naïve",
        ",",
        " OKso",
        "?!",
        "\n\n ",
        " x",
        " 一か",
    ],
    "deepseek-llm": [
        *["It", "'", "s", " ", "12345", " na", "ï", "ve", ",", " OKso", "?!", "\n"],
        *["\n", " ", " x", " ", "一か"],
    ],
    "deepseek-v3": [
        *["It", "'s", " ", "123", "45", " naïve", ",", " OKso", "?!\n\n", " ", " x", " ", "一か"]
    ],
    "gemma4": ["It's 12345 naïve, OKso?!", "\n\n", "  x 一か"],
}


def of(metadata: dict[str, Any]) -> Any:
    return gguf_tokenizer(GGUF(3, {f"tokenizer.ggml.{k}": v for k, v in metadata.items()}, {}), "x")


@pytest.mark.parametrize("kind", CUT)
def test_cuts(kind: str) -> None:
    cut = cutter(tokenizers, kind, as_bytes=False)
    assert [TEXT[a:b] for _, (a, b) in cut.pre_tokenize_str(TEXT)] == CUT[kind]


@pytest.mark.parametrize("kind", CUTS)
def test_no_cut_loses_a_letter(kind: str) -> None:
    text = TEXT + " ǅ\tᏃ\u0301 İ ١٢٣ 🙂\r\n'LL don'T /a/ \u200b"
    parts = cutter(tokenizers, kind, as_bytes=False).pre_tokenize_str(text)
    assert "".join(text[a:b] for _, (a, b) in parts) == text


def test_words_that_are_tokens_need_no_merges() -> None:
    assert set(WHOLE) <= set(CUTS)
    words = {"model": "gpt2", "tokens": ["a", "b", "c", "ab", "abc"], "merges": ["b c", "a b"]}
    right = {"llama-bpe": [4], "qwen2": [0, 1, 2]}
    for kind, tokens in right.items():
        words["merges"] = ["a b"] if kind == "llama-bpe" else []
        assert of({**words, "pre": kind}).encode("abc") == tokens


WORDS: dict[str, Any] = {
    "model": "bert",
    "tokens": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁play", "ing", "ed", "▁é", "▁,", "▁一", "▁e"],
    "token_type": np.array([3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1]),
    "unknown_token_id": 1,
    "cls_token_id": 2,
    "seperator_token_id": 3,
}


def test_word_pieces() -> None:
    t = of(WORDS)
    assert t.encode("Playing, played") == [2, 4, 5, 8, 4, 6, 3]
    assert t.encode("é一 playx") == [2, 10, 9, 1, 3]
    assert t.decode([4, 5, 8, 4, 6]) == "playing, played"
    kept = of({**WORDS, "normalizer.lowercase": False})
    assert kept.encode("é Play") == [2, 7, 1, 3]


def test_pairs_of_letters() -> None:
    """Gemma 4: spaces are a letter, what is not there are its bytes, lines are cut."""
    tokens = ["<unk>", "▁", "a", "b", "▁a", "ab", "\n", "\n\n", "<0xC3>", "<0xA9>", "<eos>"]
    kinds = np.array([2, *[1] * 7, 6, 6, 3])
    t = of(
        {
            "model": "gemma4",
            "tokens": tokens,
            "merges": ["▁ a", "a b", "\n \n"],
            "token_type": kinds,
            "unknown_token_id": 0,
        }
    )
    assert t.encode("ab ab\n\né<eos>") == [5, 4, 3, 7, 8, 9, 10]
    assert t.decode([5, 4, 3, 7, 8, 9]) == "ab ab\n\né"


def test_unknown_kinds() -> None:
    with pytest.raises(FileFormatError, match="texts are cut as 'mine', which is not known"):
        of({"model": "gpt2", "tokens": ["a"], "merges": [], "pre": "mine"})
    with pytest.raises(FileFormatError, match="a vocabulary of the kind 'rwkv'"):
        of({"model": "rwkv", "tokens": ["a"]})


def test_what_the_model_says_may_be_marked() -> None:
    text = (
        "{% for m in messages %}{% generation %}{% set x = m.content %}{{ x }}{% endgeneration %}"
    )
    found = ChatTemplate(text + "{{ x }}|{% endfor %}").render(
        [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    )
    assert found == "one|two|"
    with pytest.raises(ArgumentError, match="damaged"):
        ChatTemplate("{% generation %}").render([{"role": "user", "content": "one"}])
