"""How the text of a window is chosen: beams, draws, what is tried again; models of random numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, LaunchError
from cubepy.models.architectures.speech.whisper import WhisperConfig
from cubepy.models.generation.speech.decoding import (
    Decoding,
    Writer,
    chosen,
    logarithms,
    repetition,
)
from cubepy.models.generation.speech.segments import spoken_of
from cubepy.models.generation.speech.speech_model import SpeechModel
from cubepy.models.generation.speech.tokens import SpeechTokens

RNG = np.random.default_rng(0)
END, WORDS = 4, 4
TOKENS = SpeechTokens(start=5, end=END)


class Table:
    """A model whose scores are drawn for each text; it keeps the texts of its rows itself."""

    def __init__(self, rows: int, seed: int) -> None:
        self.seed = seed
        self.texts: list[tuple[int, ...]] = [()] * rows

    def scores(self, text: Sequence[int]) -> np.ndarray:
        draws = np.random.default_rng([self.seed, *text])
        found = draws.standard_normal(6).astype(np.float32) * 2
        found[END] += 0.7 * len(text) - 1
        found[5] = -30
        return found

    def __call__(self, kept: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
        self.texts = [(*self.texts[k], t) for k, t in zip(kept, tokens, strict=True)]
        return np.stack([self.scores(t) for t in self.texts])


def writer(seed: int, room: int = 4) -> Writer:
    def steps(rows: int) -> Table:
        return Table(rows, seed)

    return Writer(TOKENS, False, Table(1, seed).scores(()), room, steps)


def texts_of(seed: int, room: int) -> dict[tuple[int, ...], float]:
    """Every text that ends in time or fills the room, with its sum of logarithms."""
    table, found = Table(1, seed), {}
    for length in range(room + 1):
        for text in itertools.product(range(WORDS), repeat=length):
            tokens = text if length == room else (*text, END)
            logs = [logarithms(table.scores(text[:n]))[t] for n, t in enumerate(tokens)]
            found[text] = sum(logs)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_search_finds_the_likeliest_text(seed: int) -> None:
    """With as many beams as there are texts nothing is lost; with one it is the greedy text."""
    every = texts_of(seed, 4)
    best = max(every, key=lambda t: every[t] / max(len(t), 1))
    found = writer(seed).beams(400)
    assert tuple(found.tokens) == best
    assert found.total == pytest.approx(every[best])
    greedy = writer(seed).drawn(0.0, 1, RNG)
    total = 0.0
    table = Table(1, seed)
    for n, token in enumerate(greedy.tokens):
        scores = table.scores(greedy.tokens[:n])
        assert token == scores.argmax()
        total += logarithms(scores)[token]
    if len(greedy.tokens) < 4:
        total += logarithms(table.scores(greedy.tokens))[END]
    assert greedy.total == pytest.approx(total)


def test_draws_follow_the_temperature() -> None:
    """Low ones give the likeliest token; others draw it as often as its share says."""
    first = logarithms(Table(1, 3).scores(()))
    for temperature in (0.01, 0.7, 1.5):
        share = np.exp(first / temperature)
        share /= share.sum()
        found = [writer(3).drawn(temperature, 1, RNG).tokens[:1] for _ in range(400)]
        counts = [sum(f == [t] for f in found) for t in range(WORDS)] + [found.count([])]
        off = np.abs(np.array(counts) / 400 - share[:5])
        assert (off < 4 * np.sqrt(share[:5] * (1 - share[:5]) / 400) + 1e-3).all()


def mean(text: Any) -> float:
    return float(text.total / max(len(text.tokens), 1))


def test_the_likeliest_of_several_draws_counts() -> None:
    every = texts_of(5, 4)
    single = [mean(writer(5).drawn(1.0, 1, RNG)) for _ in range(60)]
    many = [writer(5).drawn(1.0, 40, RNG) for _ in range(5)]
    for found in many:
        assert every[tuple(found.tokens)] == pytest.approx(found.total)
        assert mean(found) >= np.median(single) and mean(found) > np.mean(single)


def tried(how: Decoding, texts: list[bytes], silence: float, means: list[float]) -> Any:
    """Which temperature is taken, of texts and likelihoods that are given."""

    class Said(Writer):
        def __init__(self) -> None:
            self.count = -1

        def written(self, how: Decoding, temperature: float, draws: Any) -> Any:
            self.count += 1
            found = writer(0).written(how, 0.0, draws)
            return found._replace(
                likelihood=means[self.count], tokens=[self.count], temperature=temperature
            )

    return chosen(Said(), how, silence, lambda tokens: texts[tokens[0]], RNG)


def test_texts_that_repeat_themselves_or_are_unlikely_are_tried_again() -> None:
    loop, plain = b"again and again " * 30, b"something that was said once"
    assert repetition(loop) > 2.4 > repetition(plain)
    how = Decoding(temperatures=(0.0, 0.5, 1.0))
    assert tried(how, [plain] * 3, 0.0, [-0.2] * 3).temperature == 0
    assert tried(how, [loop, plain, plain], 0.0, [-0.1, -0.3, -0.2]).temperature == 0.5
    assert tried(how, [plain] * 3, 0.0, [-2.0, -1.5, -0.5]).temperature == 1.0
    assert tried(how, [plain] * 3, 0.0, [-3.0, -1.5, -2.0]).temperature == 0.5  # none is likely
    assert tried(how, [loop, plain, loop], 0.0, [-0.1, -1.5, -0.1]).temperature == 0.5
    assert tried(how, [plain] * 3, 0.9, [-2.0, -0.1, -0.1]).temperature == 0  # nobody spoke
    last = tried(how, [loop] * 3, 0.0, [-0.5, -0.4, -0.6])
    assert last.temperature == 0.5 and last.silence == 0.0


def small() -> SpeechModel:
    c = WhisperConfig(
        vocabulary=120,
        width=16,
        bands=8,
        layers=1,
        heads=2,
        inner=32,
        decoder_layers=2,
        decoder_heads=2,
        decoder_inner=32,
        frames=50,
        context=24,
    )
    cb.nn.init.manual_seed(3)
    return SpeechModel(c, SpeechTokens(start=51, end=50, no_timestamps=59, previous=58))


TOKENS_TIMED = SpeechTokens(start=51, end=50, no_timestamps=59)
SOUND = (np.sin(np.arange(40000) / 20) * np.sin(np.arange(40000) / 5000)).astype(np.float32)


def test_one_beam_is_the_greedy_text_and_more_are_no_less_likely() -> None:
    model = small()
    how = {"temperatures": 0, "silence": 1.0, "timestamps": False}
    greedy = model.transcribe(SOUND, **how)
    features = model.mel.features(SOUND)[:, :100]
    means = []
    for size in (1, 3, 8):
        written = model._written(features, [51, 59], False, Decoding(size, temperatures=0), RNG)
        means.append(written.likelihood)
        tokens = np.array([[51, 59, *written.tokens][:24]])
        whole = np.zeros((1, 8, 100), np.float32)
        whole[0, :, : features.shape[1]] = features
        with cb.no_grad():
            scores = model(whole, tokens).numpy()[0]
        total, room = 0.0, 24 + 1 - 2
        for n, token in enumerate([*written.tokens, 50][:room]):
            allowed = model.tokens.allowed(scores[n + 1], written.tokens[:n], False)
            total += logarithms(allowed)[token]
        assert written.likelihood == pytest.approx(total / (len(written.tokens) + 1), abs=1e-4)
        if size == 1:
            assert tuple(written.tokens) == greedy.segments[0].tokens
    assert means[1] >= means[0] - 1e-6 and means[2] >= means[0] - 1e-6


def test_draws_follow_the_seed_and_the_text_before_is_read() -> None:
    model = small()
    how = {"temperatures": (1.0,), "silence": 1.0, "likelihood": -99.0, "compression": 99.0}
    one, other = (model.transcribe(SOUND, seed=seed, **how) for seed in (1, 2))
    assert one == model.transcribe(SOUND, seed=1, **how) != other
    time = 60
    assert spoken_of([time, 1, time + 5, time + 5, 2], TOKENS_TIMED) == [time, 1, time + 5]
    for whole in ([time, 1, 2], [time, 1, time + 2, time + 2, 3, time + 4], [1]):
        assert spoken_of(whole, TOKENS_TIMED) == whole
    assert model._before([7] * 40) == [58, *[7] * 11] and model._before([]) == []
    for option in ({"previous": True}, {"beam_size": 3}, {"previous": True, "beam_size": 2}):
        found = model.transcribe(SOUND, temperatures=0, silence=1.0, **option)
        assert all(0 <= s.start <= s.end for s in found.segments) and found.segments


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ({"beam_size": 0}, "beam_size must be an integer from 1 to 64, not 0"),
        ({"best_of": 2.5}, "best_of must be an integer from 1 to 64, not 2.5"),
        ({"temperatures": ()}, "temperatures are numbers of at least 0"),
        ({"temperatures": (0.0, -1.0)}, "temperatures are numbers of at least 0"),
        ({"seed": -1}, "seed must be an integer"),
        ({"patience": 2}, "there is no option 'patience'"),
    ],
)
def test_options_that_are_none(option: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        small().transcribe(SOUND, **option)


def test_scores_that_are_nan_are_refused_in_a_search() -> None:
    broken = writer(0)
    broken.first[2] = np.nan
    with pytest.raises(LaunchError, match="NaN or infinity"):
        broken.beams(3)
