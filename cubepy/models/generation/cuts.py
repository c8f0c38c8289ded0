"""How texts are cut before byte pairs are joined, by `tokenizer.ggml.pre` of GGUF files.

The patterns are those of the models' own `tokenizer.json`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}{REST}"
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (
    rf"{SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?:{SHORT})?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?:{SHORT})?"
)
SLASHED = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = rf"{CASED}|\p{{N}}{{1,3}}{SLASHED}"
TEKKEN = GPT4O.replace(f"(?:{SHORT})?", "").replace("{1,3}", "")
HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
ALPHABETS = "[\\p{Lu}\\p{Ll}\\p{Lt}&&[^\u10d0-\u10ff]]"
"""Letters with cases, but for those of Georgian, which got them in Unicode 11."""
MARKS = "[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]"
DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

DIGITS, GPT2, PUNCTUATION = "digits", "gpt2", "punctuation"
"""Cuts that the library has under a name: each digit, GPT-2's words, runs of punctuation."""

CUTS: dict[str, tuple[str, ...]] = {
    "default": (GPT2,),
    "gpt-2": (GPT2,),
    "olmo": (GPT2,),
    "mpt": (GPT2,),
    "phi-2": (GPT2,),
    "jina-en": (GPT2,),
    "jais": (GPT2,),
    "trillion": (GPT2,),
    "granite-docling": (GPT2,),
    "smollm": (DIGITS, GPT2),
    "starcoder": (DIGITS, GPT2),
    "refact": (DIGITS, GPT2),
    "command-r": (DIGITS, GPT2),
    "codeshell": (DIGITS, GPT2),
    "exaone": (DIGITS, GPT2),
    "minerva-7b": (DIGITS, GPT2),
    "llama-bpe": (LLAMA3,),
    "llama3": (LLAMA3,),
    "llama-v3": (LLAMA3,),
    "lfm2": (LLAMA3,),
    "falcon3": (LLAMA3,),
    "dbrx": (LLAMA3,),
    "smaug-bpe": (LLAMA3,),
    "glm4": (LLAMA3,),
    "qwen2": (QWEN2,),
    "deepseek-r1-qwen": (QWEN2,),
    "stablelm2": (QWEN2,),
    "megrez": (QWEN2,),
    "qwen35": (QWEN35,),
    "gpt-4o": (GPT4O,),
    "llama4": (GPT4O,),
    "tekken": (TEKKEN,),
    "falcon": (PUNCTUATION, GPT2, "[0-9][0-9][0-9]"),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN, DIGITS),
    "deepseek-llm": (r"[\r\n]", rf"\s?{ALPHABETS}+", rf"\s?{MARKS}+", r"\s+$", HAN, r"\p{N}+"),
    "deepseek-v3": (r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK_V3),
    "gemma4": (r"[^\n]+|\n+",),
}
"""Cuts one after the other: patterns, or names."""

WHOLE = ("llama-bpe", "llama3", "llama-v3", "lfm2", "falcon3", "glm4", "tekken")
"""Of these a word that is a token is one, whatever pairs would be joined."""


def cutter(library: Any, kind: str, as_bytes: bool = True) -> Any:
    """What cuts texts, and writes bytes as letters where byte pairs are of bytes.

    Args:
        library: the package `tokenizers`.
        kind: a key of `CUTS`.
        as_bytes: whether pairs are of bytes.
    """
    make = library.pre_tokenizers
    steps, mapped = [], False
    for cut in CUTS[kind]:
        if cut == DIGITS:
            steps.append(make.Digits(individual_digits=True))
        elif cut == PUNCTUATION:
            steps.append(make.Punctuation(behavior="contiguous"))
        elif cut == GPT2:
            steps.append(make.ByteLevel(add_prefix_space=False, use_regex=True))
            mapped = True
        else:
            steps.append(make.Split(library.Regex(cut), "isolated"))
    if as_bytes and not mapped:
        steps.append(make.ByteLevel(add_prefix_space=False, use_regex=False))
    return make.Sequence(steps)


def whole_letters(parts: Sequence[str]) -> list[str]:
    """Tokens where bytes that make no letter are U+FFFD, so that they spoil no bytes beside them.

    Example:
        >>> whole_letters(["a", "<0x41>", "<0xC3>", "<0xC3>", "<0xA9>"])[2:] == [
        ...     "\\ufffd", "<0xC3>", "<0xA9>"]
        True
    """
    found: list[str] = []
    run: list[str] = []
    for part in [*parts, ""]:
        if BYTE_TOKEN.fullmatch(part):
            run.append(part)
            continue
        raw = bytes(int(one[3:5], 16) for one in run)
        letters = raw.decode("utf-8", "surrogateescape")
        at = 0
        for letter in letters:
            if "\udc80" <= letter <= "\udcff":
                found.append("\ufffd")
                at += 1
            else:
                size = len(letter.encode())
                found += run[at : at + size]
                at += size
        run = []
        found.append(part)
    return found[:-1]
