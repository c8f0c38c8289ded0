"""Whisper against transformers, weights drawn by name: features, scores, segments; WAV files."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.__main__ import main
from cubepy.errors import ArgumentError, FileFormatError, LaunchError, ShapeError
from cubepy.models.architectures.speech.mel import Mel, resampled
from cubepy.models.formats.wav import read_wav
from cubepy.models.generation.speech.segments import pieces_of
from cubepy.models.generation.speech.tokens import SpeechTokens
from tests.models.drawn import noise
from tests.models.folders import drawn_folder, fixture

MODELS = fixture("speech")
TOKENS = SpeechTokens(start=51, end=50, no_timestamps=59)


def sound() -> np.ndarray:
    swell = np.sin(np.arange(52800) / 4000) ** 2 + 0.01
    return (noise("sound", (52800,)) * swell * 0.2).astype(np.float32)


def loaded(path: Path, name: str, dtype: str = "float32", **changes: Any) -> Any:
    given = MODELS[name]
    drawn_folder(path, given, dtype)
    values = json.loads(given["generation"].tobytes()) | changes
    (path / "generation_config.json").write_text(json.dumps(values))
    return cb.load(path)


def write_wav(path: Path, samples: np.ndarray, width: int, rate: int = 16000) -> Path:
    """Samples (n,) or (n, channels) between -1 and 1."""
    codes = np.round(samples * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    raw = (codes + 128 if width == 1 else codes).astype("<i8").reshape(-1, 1)
    with wave.open(str(path), "wb") as file:
        file.setparams((1 if samples.ndim == 1 else samples.shape[1], width, rate, 0, "NONE", ""))
        file.writeframes(raw.view(np.uint8)[:, :width].tobytes())
    return path


@pytest.mark.parametrize("bands", [8, 80])
def test_features(bands: int) -> None:
    heard = np.concatenate([sound(), np.zeros(16000, np.float32)])
    found = Mel(bands).features(heard)[:, :330][:, :: 1 if bands == 8 else 7]
    np.testing.assert_allclose(found, MODELS[f"mel_{bands}"]["features"], atol=1e-5)


@pytest.mark.parametrize("name", ["many", "alone"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scores_and_segments(name: str, dtype: str, tmp_path: Path) -> None:
    given = MODELS[name]
    model = loaded(tmp_path, name, dtype)
    features = MODELS["mel_8"]["features"][None, :, :100].astype(np.float32)
    with cb.no_grad():
        found = model(features, given["tokens"]).numpy()
    assert np.abs(found - given["logits"]).max() < 1e-5 * np.abs(given["logits"]).max()
    result = model.transcribe(sound(), silence=1.0, temperatures=0)
    right = json.loads(given["segments"].tobytes())
    assert [list(s.tokens) for s in result.segments] == [s[2] for s in right]
    times = np.array([(s.start, s.end) for s in result.segments])
    np.testing.assert_allclose(times, [s[:2] for s in right], atol=1e-6)
    assert result.seconds == 3.3 and result.text == ""
    assert result.language in ((None,) if name == "alone" else ("en", "de"))
    assert sum(model.programs[1].traces.values()) == 1
    again = model.segments(sound(), silence=1.0, temperatures=0)
    assert list(again) == list(result.segments)


def test_files_and_other_rates(tmp_path: Path) -> None:
    model = loaded(tmp_path / "model", "many")
    right = model.transcribe(sound())
    for width in (2, 3, 4):
        path = write_wav(tmp_path / f"{width}.wav", sound(), width)
        assert model.transcribe(path).segments == right.segments
    both = np.stack([sound(), sound()], axis=1)
    path = write_wav(tmp_path / "both.wav", both, 3)
    assert model.transcribe(str(path)).segments == right.segments
    assert model.transcribe(both).segments == right.segments
    faster = model.transcribe(resampled(sound(), 16000, 48000), rate=48000)
    assert faster.seconds == right.seconds


def test_samples_of_every_width(tmp_path: Path) -> None:
    samples = sound()[:999]
    for width, off in ((1, 1e-2), (2, 4e-5), (3, 2e-7), (4, 1e-7)):
        found, rate = read_wav(write_wav(tmp_path / "x.wav", samples, width, 8000))
        assert rate == 8000
        np.testing.assert_allclose(found, samples, atol=off)


def test_another_rate_keeps_tones() -> None:
    for rate, wanted in ((44100, 16000), (8000, 16000), (48000, 16000), (16000, 22050)):
        for hertz in (440.0, 3100.0):
            t = np.arange(rate) / rate
            found = resampled(np.sin(2 * np.pi * hertz * t).astype(np.float32), rate, wanted)
            assert len(found) == wanted
            right = np.sin(2 * np.pi * hertz * np.arange(wanted) / wanted)
            np.testing.assert_allclose(found[500:-500], right[500:-500], atol=2e-3)
    high = np.sin(2 * np.pi * 12000 * np.arange(48000) / 48000).astype(np.float32)
    assert np.abs(resampled(high, 48000, 16000)[500:-500]).max() < 1e-3  # no echo below
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ArgumentError, match="a rate is a positive integer"):
            resampled(high, wrong, 16000)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    good = write_wav(tmp_path / "x.wav", sound()[:999], 2).read_bytes()
    for n, raw in enumerate((b"", b"RIFF", good[:30], b"x" * 99, good[:8] + b"AVI " + good[12:])):
        path = tmp_path / f"{n}.wav"
        path.write_bytes(raw)
        with pytest.raises(FileFormatError, match="no WAV file"):
            read_wav(path)
    floats = bytearray(good)
    floats[20] = 3  # the format of floats
    (tmp_path / "floats.wav").write_bytes(floats)
    with pytest.raises(FileFormatError, match="ffmpeg"):
        read_wav(tmp_path / "floats.wav")
    with pytest.raises(FileNotFoundError):
        read_wav(tmp_path / "none.wav")
    rng = np.random.default_rng(0)
    for _ in range(400):
        raw = bytearray(good)
        for at in rng.integers(0, 60, 3):
            raw[at] = rng.integers(0, 256)
        (tmp_path / "y.wav").write_bytes(raw[: rng.integers(0, len(raw))])
        try:
            found, rate = read_wav(tmp_path / "y.wav")
        except FileFormatError:
            continue
        assert found.dtype == np.float32 and rate > 0


def test_languages_tasks_and_silence(tmp_path: Path) -> None:
    model = loaded(tmp_path / "many", "many")
    assert model.transcribe(sound(), language="de").language == "de"
    assert model.tokens.prompt(52, "translate", True) == [51, 52, 54]
    assert model.tokens.prompt(53, "transcribe", False) == [51, 53, 55, 59]
    plain = model.transcribe(sound(), timestamps=False, silence=1.0)
    assert [s.start for s in plain.segments] == [0.0, 1.0, 2.0, 3.0]
    assert plain.segments[-1].end == pytest.approx(3.3)
    quiet = model.transcribe(sound(), silence=-1.0, likelihood=0.0)
    assert quiet.segments == () and quiet.seconds == 3.3
    assert model.transcribe(np.zeros(0, np.float32)).segments == ()
    for options, rule in (
        ({"language": "fr"}, "does not know the language 'fr'"),
        ({"task": "sing"}, "one of translate, transcribe"),
        ({"rate": -1}, "a rate is"),
    ):
        with pytest.raises(ArgumentError, match=rule):
            model.transcribe(sound(), **options)
    with pytest.raises(ArgumentError, match="divide by 32768"):
        model.transcribe(np.zeros(10, np.int16))
    with pytest.raises(LaunchError, match="NaN or infinite"):
        model.transcribe(np.full(999, np.nan, np.float32))
    with pytest.raises(ShapeError, match=r"features are \(batch, 8, 100\)"):
        model(np.zeros((1, 8, 99), np.float32), [[1]])
    alone = loaded(tmp_path / "alone", "alone")
    for options, rule in (
        ({"language": "de"}, "English alone"),
        ({"task": "translate"}, "English"),
    ):
        with pytest.raises(ArgumentError, match=rule):
            alone.transcribe(sound(), **options)
    unsaid = loaded(tmp_path / "unsaid", "alone", no_timestamps_token_id=None)
    with pytest.raises(ArgumentError, match="generation_config"):
        unsaid.transcribe(sound())
    assert unsaid.transcribe(sound(), timestamps=False).seconds == 3.3


def test_windows_are_cut_at_pairs_of_timestamps() -> None:
    time = [60, 70, 85, 110]

    def cut(*tokens: int) -> Any:
        return pieces_of(tokens, TOKENS, 100, True, 0.01)

    assert cut(time[0], 1, 2, time[1], time[1], 3, time[2]) == (
        [(0.0, 0.2, (1, 2)), (0.2, 0.5, (3,))],
        100,
    )
    assert cut(time[0], 1, time[1], time[1], 3, time[2], time[2]) == (
        [(0.0, 0.2, (1,)), (0.2, 0.5, (3,))],
        50,
    )
    assert cut(time[0], 1, time[1], time[1], 3) == ([(0.0, 0.2, (1,))], 20)
    assert cut(time[0], 1, 2) == ([(0.0, 1.0, (1, 2))], 100)
    assert cut(time[0]) == ([], 100)
    assert cut() == ([], 100)
    assert cut(time[0], time[0])[1] >= 1  # it goes on


def test_timestamps_come_in_pairs_and_never_fall() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        written: list[int] = []
        while len(written) < 40:
            scores = rng.standard_normal(111).astype(np.float32)
            scores[60:] += 2 * rng.random()
            chosen = int(TOKENS.allowed(scores, written, True).argmax())
            if chosen == 50:
                break
            written.append(chosen)
        times = [t for t in written if t > 59]
        assert written[0] > 59 and times == sorted(times) and 59 not in written
        runs = "".join("t" if t > 59 else "." for t in written)
        assert "ttt" not in runs


def test_bad_folders_are_refused(tmp_path: Path) -> None:
    for n, (changes, rule) in enumerate(
        (
            ({"no_timestamps_token_id": 111}, "no_timestamps_token_id is no token of 111"),
            ({"decoder_start_token_id": "x"}, "decoder_start_token_id is no token"),
            ({"lang_to_id": [1]}, "lang_to_id must be a table"),
            ({"lang_to_id": {"<|en|>": -1}}, "no token of 111: -1"),
            ({"suppress_tokens": 3}, "must be a list"),
        )
    ):
        with pytest.raises(FileFormatError, match=rule):
            loaded(tmp_path / str(n), "many", **changes)
    path = drawn_folder(tmp_path / "config", MODELS["many"])
    config = json.loads((path / "config.json").read_text())
    for values, rule in (
        ({"decoder_attention_heads": 3}, "do not divide"),
        ({"num_mel_bins": 9}, r"expected \(16, 9, 3\), got \(16, 8, 3\)"),
        ({"decoder_layers": 3}, "missing: layers.2"),
    ):
        (path / "config.json").write_text(json.dumps(config | values))
        with pytest.raises(FileFormatError, match=rule):
            cb.load(path)


def test_texts_and_the_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    lib = pytest.importorskip("tokenizers")
    model = loaded(tmp_path / "model", "many")
    words = {f" w{n}": n for n in range(50)} | {"<|endoftext|>": 50}
    pieces = lib.Tokenizer(lib.models.WordLevel(words, unk_token=" w0"))
    pieces.decoder = lib.decoders.Fuse()
    pieces.add_special_tokens(["<|endoftext|>"])
    pieces.save(str(tmp_path / "model" / "tokenizer.json"))
    path = write_wav(tmp_path / "x.wav", sound(), 3)
    right = [s.tokens for s in model.transcribe(path).segments]
    found = cb.load(tmp_path / "model").transcribe(path)
    text = "".join(f" w{n}" for tokens in right for n in tokens)
    assert str(found) == found.text == text
    assert main(["transcribe", str(tmp_path / "model"), str(path)]) == 0
    assert capsys.readouterr().out == text.lstrip() + "\n"
    assert main(["transcribe", str(tmp_path / "model"), str(path), "--timestamps"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(s) for s in found.segments]
    first = cb.load(tmp_path / "model").transcribe(path, temperatures=0).segments[0]
    assert str(first) == "[00:00.180 --> 00:00.520] w47"
    vision = drawn_folder(tmp_path / "vision", fixture("vision")["vit"])
    assert main(["transcribe", str(vision), str(path)]) == 2
    assert "no model that hears speech" in capsys.readouterr().err
    assert main(["transcribe", str(tmp_path / "model"), str(path), "--language", "xx"]) == 2
    assert "does not know the language" in capsys.readouterr().err
