"""Texts as a user of other libraries asks for them: odd prompts, stops, streams in turns, streams
that are closed or interrupted, and bytes that are tokens.
"""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cubepy.errors import ArgumentError, CubeError, LaunchError
from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.models.architectures.rotary import rotary
from cubepy.models.generation.requests import Decoding
from cubepy.models.generation.sampling import Sampling
from cubepy.models.generation.text_model import TextModel
from cubepy.models.generation.tokenizer import Tokenizer

lib = pytest.importorskip("tokenizers")
BYTES = [f"<0x{k:02X}>" for k in range(256)]
WORDS = [*("<unk>", "<s>", "</s>"), *BYTES, *"▁abcde .\n", "ab", "cd", "▁a", "▁ab"]
LETTERS = "é你😀".encode()


def tokenizer(first: int | None) -> Tokenizer:
    """SentencePiece with bytes for what is no word."""
    merges = [("a", "b"), ("c", "d"), ("▁", "a"), ("▁a", "b")]
    words = {word: n for n, word in enumerate(WORDS)}
    pieces = lib.Tokenizer(
        lib.models.BPE(vocab=words, merges=merges, byte_fallback=True, unk_token="<unk>")
    )
    steps = [lib.normalizers.Prepend("▁"), lib.normalizers.Replace(" ", "▁")]
    pieces.normalizer = lib.normalizers.Sequence(steps)
    back = lib.decoders
    pieces.decoder = back.Sequence(
        [back.Replace("▁", " "), back.ByteFallback(), back.Fuse(), back.Strip(" ", 1, 0)]
    )
    pieces.add_special_tokens([lib.AddedToken(x, special=True) for x in ("<s>", "</s>")])
    return Tokenizer(pieces, None, first)


def model(seed: int = 0, first: int | None = 1) -> TextModel:
    rng = np.random.default_rng(seed)
    c = DecoderConfig(
        vocabulary=len(WORDS),
        width=16,
        layers=1,
        heads=2,
        groups=1,
        depth=8,
        inner=16,
        context=96,
        rotary=rotary(8, 10000.0),
    )
    made = TextModel(c)
    made.load_state_dict(
        {
            name: rng.standard_normal(p.shape).astype(np.float32) / 2
            for name, p in made.state_dict().items()
        }
    )
    made.tokenizer, made.ends = tokenizer(first), frozenset([2])
    return made


@pytest.mark.turns(4)
def test_streams_are_what_generate_gives() -> None:
    """Letters whose bytes are several tokens, wrong bytes, stops, batches, streams in turns, and
    ones that are closed.
    """
    rng = np.random.default_rng()
    for _ in range(12):
        m = model(int(rng.integers(4)), [1, None][rng.integers(2)])
        options: dict[str, Any] = {
            "max_new_tokens": int(rng.choice([1, 5, 17, 40])),
            "temperature": float(rng.choice([0.0, 1.0, 1.0])),
            "seed": int(rng.integers(1000)),
        }
        if rng.random() < 0.7:  # bytes of letters come often
            options["logit_bias"] = {3 + b: float(rng.choice([0, 4])) for b in LETTERS}
        if rng.random() < 0.5:
            stops: list[Any] = ["a", ["ab", "c"], "é", ["\ufffd"], "é你", " a", "x" * 100_000]
            options["stop"] = stops[rng.integers(len(stops))]
        prompt = str(rng.choice(["ab", "a cd", "é", "😀 a", "<s>a"]))
        whole = m.generate(prompt, **options)
        pieces = list(m.stream(prompt, **options))
        assert "".join(pieces) == whole and "" not in pieces, (prompt, options)
        together = m.generate([prompt, "cd", prompt], **options)
        assert together[::2] == [whole, whole]
        streams = [m.stream(prompt, **options), m.stream("cd", **options)]
        found: list[list[str]] = [[], []]
        while streams != [None, None]:
            n = int(rng.integers(2))
            piece = None if streams[n] is None else next(streams[n], None)
            if piece is None:
                streams[n] = None
            else:
                found[n].append(piece)
        assert found[0] == pieces and "".join(found[1]) == together[1]
        begun = m.stream(prompt, **options)
        next(begun, None)
        begun.close()
        assert m.generate(prompt, **options) == whole


def test_bytes_that_make_letters_do_so_beside_wrong_ones() -> None:
    t, at = tokenizer(None), WORDS.index
    good, bad = [3 + b for b in "é".encode()], 3 + 0xFF
    assert t.decode([bad, *good, at("a"), *good, bad, bad]) == "\ufffdéaé\ufffd\ufffd"
    assert t.decode([*good[:1], bad, 3 + ord("Y")]) == "\ufffd\ufffdY"
    assert t.decode([1, *good, bad, 2]) == "é\ufffd"  # control tokens are left out
    assert t.decode([bad, 99999]) == "\ufffd"  # and those that are none
    rng = np.random.default_rng()
    for _ in range(200):  # a text that is whole is the library's
        text = "".join(rng.choice(list("ab é你😀\n."), int(rng.integers(1, 12))))
        tokens = t.encode(text)
        assert t.decode(tokens) == t.pieces.decode(tokens)
        spoiled = tokens.copy()
        spoiled.insert(int(rng.integers(len(tokens) + 1)), bad)
        assert t.decode(spoiled).count("\ufffd") >= 1


def test_an_interrupt_within_a_stream_leaves_the_model_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever it comes: a step that is begun again gives the same tokens."""
    m = model(1)
    m.ends = frozenset()
    whole = m.generate([1, 5, 6], 40)
    plain = Decoding.step
    for at in range(1, 6):
        steps = 0

        def interrupted(self: Decoding, *given: Any, at: int = at) -> Any:
            nonlocal steps
            steps += 1
            if steps == at:
                raise KeyboardInterrupt
            return plain(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(Decoding, "step", interrupted)
            got: list[int] = []
            with pytest.raises(KeyboardInterrupt):
                for token in m.stream([1, 5, 6], 40):
                    got.append(token)
        assert got == whole[: len(got)]
        assert m.generate([1, 5, 6], 40) == whole


def test_nothing_to_write_and_prompts_of_control_tokens() -> None:
    m = model(2)
    assert m.generate("ab", 0) == "" and list(m.stream("ab", 0)) == [] and m.generate([1], 0) == []
    assert m.generate("", 4) == m.generate("<s>", 4)  # what begins a text
    assert m.generate(["ab", "", "a cd"], 4) == [m.generate(p, 4) for p in ("ab", "", "a cd")]
    assert isinstance(m.generate("</s>", 4), str)
    with pytest.raises(ArgumentError, match="at least one token"):
        model(2, None).generate(["ab", ""], 4)


NUMBERS = (0, 1, -1, 2**63, -(2**63), 10**30, 10**400, 1e308, -1e308, 5e-324, Fraction(1, 3))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", [f.name for f in fields(Sampling)])
def test_numbers_of_any_size_are_options_or_refused(name: str) -> None:
    m, taken = model(1), 0
    for value in (*NUMBERS, np.float32(0.5), np.int8(1)):
        given = {5: value} if name == "logit_bias" else value
        try:
            assert len(m.generate([1, 5], 3, **{"temperature": 1.0, name: given})) in (1, 2, 3)
            taken += 1
        except CubeError:
            pass
    assert taken >= 3


def test_beams_of_texts() -> None:
    m, prompts = model(4), ["ab", "", "é cd", "a\udcff"]
    found = m.beams(prompts[:3], 5, 2)
    assert found == [m.beams(p, 5, 2) for p in prompts[:3]]
    assert all(isinstance(text, str) for rows in found for _, text in rows)
    assert m.beams([[1, 5], [1, 6, 7]], 5, 2)[1] == m.beams([1, 6, 7], 5, 2)


@pytest.mark.parametrize(
    ("prompt", "options", "error", "rule"),
    [
        (b"ab", {}, ArgumentError, "not b'ab'"),
        (bytearray(b"ab"), {}, ArgumentError, r"not b(ytearray\(b)?'ab'"),
        ([b"ab", b"cd"], {}, ArgumentError, r"not b(ytearray\(b)?'ab'"),
        (b"a\xff\xfe", {}, ArgumentError, 'with errors="replace" bytes that are no UTF-8'),
        ([True, False], {}, ArgumentError, "tokens are integers"),
        ([[1, 2], []], {}, ArgumentError, "a prompt is a text"),
        ("ab", {"logit_bias": {99999: 1.0}}, LaunchError, "token 99999 of"),
        ("ab", {"logit_bias": {-1: 1.0}}, LaunchError, "token -1 of"),
        ("ab", {"do_sample": True}, ArgumentError, "do_sample is temperature"),
        ("ab", {"num_beams": 4}, ArgumentError, r"num_beams is model\.beams"),
        ("ab", {"max_length": 4}, ArgumentError, "max_length is max_new_tokens"),
        ("ab", {"bad_words_ids": [[3]]}, ArgumentError, "bad_words_ids is logit_bias"),
        ("ab", {"use_cache": True, "n": 2}, ArgumentError, "n is a list of prompts.*; use_cache"),
        ("ab", {"stopping_criteria": []}, ArgumentError, r"is model\.stream"),
        ("ab", {"length_penalty": 1.0}, ArgumentError, r"is an option of model\.beams"),
        ("ab", {"typo": 4}, ArgumentError, "of choosing tokens: temperature"),
    ],
)
def test_what_is_refused(prompt: Any, options: dict[str, Any], error: type, rule: str) -> None:
    with pytest.raises(error, match=rule):
        model(3).generate(prompt, 4, **options)
