"""Texts to tokens and back, by the library `tokenizers`: from `tokenizer.json`, or from what a GGUF
file says of its vocabulary.
"""

from __future__ import annotations

import importlib
import sys
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, FileFormatError
from cubepy.kernels.entry.options import shown
from cubepy.models.formats.gguf import GGUF
from cubepy.models.formats.shards import read_json
from cubepy.models.generation.chat import ChatTemplate
from cubepy.models.generation.cuts import CUTS, WHOLE, cutter, whole_letters

NORMAL, UNKNOWN, CONTROL, USER, _UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Kinds of tokens in `tokenizer.ggml.token_type`."""
ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
)
"""Control tokens after which a text is done, whatever the metadata say."""
WINDOW, BESIDE = 64, 8
"""Tokens that are decoded together while a text grows, and how many of them come again."""


def library() -> Any:
    """The package `tokenizers`.

    Raises:
        ArgumentError: it is not installed.
    """
    try:
        return importlib.import_module("tokenizers")
    except ImportError:
        raise ArgumentError(
            "texts need the package tokenizers", hint="pip install 'cubepy[models]', or give tokens"
        ) from None


class Tokenizer:
    """Texts to tokens and back.

    Attributes:
        pieces: a `tokenizers.Tokenizer`.
        first: the token that begins a text, where texts of GGUF files get one; else None.
        template: how messages become a text, or None.
    """

    def __init__(
        self, pieces: Any, template: ChatTemplate | None = None, first: int | None = None
    ) -> None:
        self.pieces, self.template, self.first = pieces, template, first
        self.control: tuple[int, frozenset[int]] | None = None

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that begin one.

        Raises:
            ArgumentError: it is no text.
        """
        if not isinstance(text, str):
            raise ArgumentError(f"a text is encoded, not {shown(text)}")
        found: list[int] = self.pieces.encode(_whole_letters(text)).ids
        return found if self.first is None or found[:1] == [self.first] else [self.first, *found]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; control tokens are left out.

        Of bytes that are tokens those that make letters do so, whatever is beside them; of others
        each is U+FFFD. (The library makes U+FFFD of all neighbours of a wrong byte.)

        Raises:
            ArgumentError: something else than numbers of tokens.
        """
        try:
            given = [index(token) for token in tokens]
        except TypeError:
            given = [-1]
        if min(given, default=0) < 0:
            raise ArgumentError(f"tokens are integers of at least 0, unlike {shown(tokens)}")
        found: str = self.pieces.decode(given)
        if "\ufffd" in found and self._bytes_are_tokens():
            special = self._special()
            parts = [self.pieces.id_to_token(t) for t in given if t not in special]
            found = self.pieces.decoder.decode(whole_letters([p for p in parts if p is not None]))
        return found

    def _bytes_are_tokens(self) -> bool:
        """Whether tokens such as <0x41> stand for bytes."""
        decoder = self.pieces.decoder
        return decoder is not None and decoder.decode(["<0x41>"]) == "A"

    def _special(self) -> frozenset[int]:
        """Control tokens; looked for again when there are more tokens."""
        size = self.pieces.get_vocab_size()
        if self.control is None or self.control[0] != size:
            added = self.pieces.get_added_tokens_decoder()
            self.control = size, frozenset(n for n, token in added.items() if token.special)
        return self.control[1]

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The tokens of messages, up to where the answer begins.

        Raises:
            ArgumentError: there is no template, or it does not take these messages.
        """
        if self.template is None:
            raise ArgumentError("the model has no chat template", hint="give a text")
        text = _whole_letters(self.template.render(messages))
        found: list[int] = self.pieces.encode(text, add_special_tokens=False).ids
        return found


def _whole_letters(text: str) -> str:
    """A text whose halves of letters, as cut JSON has them, are joined or replaced."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Growing:
    """The text of tokens that come one after the other: new ones are decoded beside a few before
    them, not beside all.

    The few move on where they give the text of all tokens; where they do not, since a token changes
    what is far before it, all tokens are decoded from then on.

    Args:
        decode: gives the text of tokens.

    Example:
        >>> grows = Growing(lambda tokens: " ".join(map(str, tokens)))
        >>> [grows.add(n) for n in (7, 8)]
        ['7', '7 8']
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self.decode, self.tokens, self.window = decode, list[int](), WINDOW
        self.first, self.before, self.known = 0, "", ""

    def add(self, token: int) -> str:
        """The text of all tokens, with one more."""
        self.tokens.append(token)
        text = self.decode(self.tokens[self.first :])
        if not text.startswith(self.known):
            return self.as_whole()
        text = self.before + text[len(self.known) :]
        if len(self.tokens) - self.first < self.window:
            return text
        if text != self.decode(self.tokens):
            return self.as_whole()
        known = self.decode(self.tokens[-BESIDE:])
        if known and not known.endswith("\ufffd"):  # else bytes of a letter are missing
            self.first, self.before, self.known = len(self.tokens) - BESIDE, text, known
        return text

    def as_whole(self) -> str:
        """The text of all tokens, which are decoded together from now on."""
        self.first, self.before, self.known, self.window = 0, "", "", sys.maxsize
        return self.decode(self.tokens)


def folder_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a folder, or None where it has no `tokenizer.json`.

    Raises:
        FileFormatError: it is damaged.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        pieces = library().Tokenizer.from_file(str(path))
    except ArgumentError:
        raise
    except Exception as error:  # the library raises this class itself
        raise FileFormatError(f"{path}: no tokenizer: {str(error)[:200]}") from None
    pieces.no_padding()
    pieces.no_truncation()
    values = {}
    if (folder / "tokenizer_config.json").is_file():
        values = read_json(folder / "tokenizer_config.json")
    text = values.get("chat_template")
    if isinstance(text, list):  # named ones
        named = {t.get("name"): t.get("template") for t in text if isinstance(t, dict)}
        text = named.get("default")
    if (folder / "chat_template.jinja").is_file():
        text = (folder / "chat_template.jinja").read_text("utf-8")
    marks = {name: _content(values.get(name)) for name in ("bos_token", "eos_token", "pad_token")}
    return Tokenizer(pieces, ChatTemplate(text, marks) if isinstance(text, str) else None)


def _content(value: Any) -> str:
    """A token in a config: a text, or a table with its content."""
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""


def gguf_tokenizer(file: GGUF, source: str) -> Tokenizer | None:
    """The tokenizer that metadata describe, or None where they have no vocabulary.

    Raises:
        FileFormatError: a kind that is not known, or tables that do not fit each other.
    """
    data = file.metadata
    tokens, model = data.get("tokenizer.ggml.tokens"), data.get("tokenizer.ggml.model")
    if not isinstance(tokens, list):
        return None
    if not all(isinstance(token, str) for token in tokens):
        raise FileFormatError(f"{source}: tokens that are no texts")
    if len(set(tokens)) != len(tokens):
        tokens = _distinct(tokens)
    kinds = data.get("tokenizer.ggml.token_type")
    kinds = np.ones(len(tokens), int) if kinds is None else kinds
    if not isinstance(kinds, np.ndarray) or kinds.shape != (len(tokens),):
        shape = kinds.shape if isinstance(kinds, np.ndarray) else type(kinds).__name__
        raise FileFormatError(f"{source}: {len(tokens)} tokens with {shape} types")
    model = model if isinstance(model, str) else repr(model)[:40]
    if model in ("gpt2", "gemma4"):
        pieces = _byte_pairs(data, tokens, source, model)
    elif model == "bert":
        pieces = _word_pieces(data, tokens, kinds, source)
    elif model == "llama":
        pieces = _sentence_pieces(data, tokens, kinds, source)
    else:
        raise FileFormatError(
            f"{source}: a vocabulary of the kind {model!r} cannot be read",
            hint="give tokens, or load the model's folder with tokenizer.json",
        )
    added = library().AddedToken
    marks = [
        added(tokens[n], special=bool(kinds[n] == CONTROL), normalized=False)
        for n in np.flatnonzero((kinds == CONTROL) | (kinds == USER))
    ]
    pieces.add_tokens(marks)
    return Tokenizer(pieces, _template(data, tokens), _first(data, model))


def _distinct(tokens: list[str]) -> list[str]:
    """Tokens of which none comes twice: later ones get a number that no text has."""
    seen: set[str] = set()
    found = []
    for n, token in enumerate(tokens):
        found.append(f"{token}\0{n}" if token in seen else token)
        seen.add(token)
    return found


def _first(data: Mapping[str, Any], model: str) -> int | None:
    first = data.get("tokenizer.ggml.bos_token_id")
    wanted = _said(data, "add_bos_token", model == "llama")
    return int(first) if wanted and isinstance(first, int) else None


def _said(data: Mapping[str, Any], name: str, default: bool) -> bool:
    """Whether metadata say that something is so."""
    found = data.get(f"tokenizer.ggml.{name}")
    return bool(found) if isinstance(found, (bool, int)) else default


def _token(data: Mapping[str, Any], name: str, tokens: list[str]) -> str | None:
    """The token that metadata give a meaning; None where they do not, or there is no such one."""
    at = data.get(f"tokenizer.ggml.{name}_token_id")
    return tokens[at] if isinstance(at, int) and 0 <= at < len(tokens) else None


def _template(data: Mapping[str, Any], tokens: list[str]) -> ChatTemplate | None:
    text = data.get("tokenizer.chat_template")
    if not isinstance(text, str):
        return None
    marks = {}
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding")):
        marks[name] = _token(data, key, tokens) or ""
    return ChatTemplate(text, marks)


def _byte_pairs(data: Mapping[str, Any], tokens: list[str], source: str, family: str) -> Any:
    """Pairs of bytes, or (Gemma 4) of letters, that are joined in the order of `merges`."""
    lib = library()
    merges = data.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise FileFormatError(f"{source}: a vocabulary of byte pairs without merges")
    letters = family == "gemma4"
    kind = "gemma4" if letters else str(data.get("tokenizer.ggml.pre", "default"))
    if kind not in CUTS:
        raise FileFormatError(
            f"{source}: texts are cut as {kind!r}, which is not known: {', '.join(CUTS)}",
            hint="give tokens, or load the model's folder with tokenizer.json",
        )
    pairs = [tuple(str(m).split(" ", 1)) for m in merges]
    words = {token: n for n, token in enumerate(tokens)}
    if any(len(p) != 2 or p[0] not in words or p[1] not in words for p in pairs):
        raise FileFormatError(f"{source}: merges of tokens that are not in the vocabulary")
    try:
        model = lib.models.BPE(
            vocab=words, merges=pairs, ignore_merges=kind in WHOLE, byte_fallback=letters
        )
    except Exception as error:  # the library raises this class itself
        raise FileFormatError(f"{source}: merges that do not fit the vocabulary: {error}") from None
    pieces = lib.Tokenizer(model)
    pieces.pre_tokenizer = cutter(lib, kind, as_bytes=not letters)
    if letters:
        back = lib.decoders
        pieces.normalizer = lib.normalizers.Replace(" ", "\u2581")
        steps = [back.Replace("\u2581", " "), back.ByteFallback(), back.Fuse()]
        pieces.decoder = back.Sequence(steps)
    else:
        pieces.decoder = lib.decoders.ByteLevel()
    return pieces


def _word_pieces(data: Mapping[str, Any], tokens: list[str], kinds: np.ndarray, source: str) -> Any:
    """WordPiece; GGUF marks what begins a word, where the original marks the other pieces."""
    lib = library()
    words = {
        token if kinds[n] != NORMAL else token[1:] if token[:1] == "\u2581" else f"##{token}": n
        for n, token in enumerate(tokens)
    }
    first, last = _token(data, "cls", tokens), _token(data, "seperator", tokens)  # so it is spelt
    unknown = _token(data, "unknown", tokens) or "[UNK]"
    if unknown not in words:
        raise FileFormatError(f"{source}: the word for what is unknown, {unknown!r}, is none")
    pieces = lib.Tokenizer(
        lib.models.WordPiece(vocab=words, unk_token=unknown, max_input_chars_per_word=1000)
    )
    small = _said(data, "normalizer.lowercase", True)
    accents = _said(data, "normalizer.strip_accents", small)
    pieces.normalizer = lib.normalizers.BertNormalizer(lowercase=small, strip_accents=accents)
    pieces.pre_tokenizer = lib.pre_tokenizers.BertPreTokenizer()
    pieces.decoder = lib.decoders.WordPiece()
    if first is not None and last is not None:
        ends = [
            (t, data[f"tokenizer.ggml.{n}_token_id"])
            for t, n in ((last, "seperator"), (first, "cls"))
        ]
        pieces.post_processor = lib.processors.BertProcessing(*ends)
    return pieces


def _sentence_pieces(
    data: Mapping[str, Any], tokens: list[str], kinds: np.ndarray, source: str
) -> Any:
    """SentencePiece with scores: the pair whose whole has the highest score is joined first."""
    lib = library()
    scores = data.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or scores.shape != (len(tokens),):
        raise FileFormatError(
            f"{source}: a vocabulary of {len(tokens)} pieces without their scores"
        )
    words = {token: n for n, token in enumerate(tokens)}
    plain = {tokens[n]: n for n in np.flatnonzero((kinds == NORMAL) | (kinds == USER))}
    merges = []
    lengths = sorted({len(token) for token in plain} - {0})
    there = set(lengths)
    for token, n in plain.items():
        if kinds[n] == NORMAL:
            parts = [
                (plain[token[:k]], plain[token[k:]])
                for k in lengths[: bisect_left(lengths, len(token))]
                if len(token) - k in there and token[:k] in plain and token[k:] in plain
            ]
            merges += [(-float(scores[n]), n, *p) for p in sorted(parts)]
    merges.sort(key=lambda m: m[0])
    pairs = [(tokens[a], tokens[b]) for _, _, a, b in merges]
    name = _token(data, "unknown", tokens)
    model = lib.models.BPE(
        vocab=words, merges=pairs, byte_fallback=True, unk_token=name, fuse_unk=True
    )
    pieces = lib.Tokenizer(model)
    prefix = _said(data, "add_space_prefix", True)
    steps = [lib.normalizers.Prepend("\u2581")] if prefix else []
    steps.append(lib.normalizers.Replace(" ", "\u2581"))
    pieces.normalizer = lib.normalizers.Sequence(steps)
    back = [lib.decoders.Replace("\u2581", " "), lib.decoders.ByteFallback(), lib.decoders.Fuse()]
    if prefix:
        back.append(lib.decoders.Strip(" ", 1, 0))
    pieces.decoder = lib.decoders.Sequence(back)
    return pieces


def gguf_ends(file: GGUF) -> frozenset[int]:
    """Tokens after which a text is done."""
    data, found = file.metadata, set()
    for key in ("eos", "eot", "eom"):
        at = data.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(at, int):
            found.add(at)
    tokens, kinds = data.get("tokenizer.ggml.tokens"), data.get("tokenizer.ggml.token_type")
    if isinstance(tokens, list) and isinstance(kinds, np.ndarray) and len(kinds) == len(tokens):
        marks = np.flatnonzero(np.asarray(kinds) == CONTROL)
        found |= {int(n) for n in marks if tokens[n] in ENDS}
    return frozenset(found)


def folder_ends(folder: Path, config: Mapping[str, Any]) -> frozenset[int]:
    """Tokens after which a text is done: of `generation_config.json`, else of the config."""
    path = folder / "generation_config.json"
    values = read_json(path) if path.is_file() else {}
    found = values.get("eos_token_id", config.get("eos_token_id"))
    listed = found if isinstance(found, list) else [found]
    return frozenset(t for t in listed if isinstance(t, int) and not isinstance(t, bool))
