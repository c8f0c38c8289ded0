"""Model files: right ones give views of their bytes, wrong ones an error that names the rule."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import FileFormatError
from cubepy.models.formats.gguf import read_gguf
from cubepy.models.formats.pickled import read_pickled
from cubepy.quant import quantize, save
from tests.models import written

FIXTURES = Path(__file__).parent / "fixtures"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def file(folder: Path, raw: bytes, name: str = "model") -> Path:
    (folder / name).write_bytes(raw)
    return folder / name


# GGUF


@pytest.mark.parametrize("version", [2, 3])
def test_gguf_gives_metadata_and_views(tmp_path: Path, version: int) -> None:
    metadata = {
        "general.architecture": "llama",
        "words": ["a", "été", ""],
        "scores": np.array([1.5, -2], np.float32),
        "flag": True,
        "count": 7,
        "rate": 0.5,
    }
    half = X.astype(ml_dtypes.bfloat16)
    blocks = ("q", (2, 64), 8, bytes(range(136)))
    raw = written.gguf(
        metadata, [written.plain("x", X), blocks, written.plain("h", half)], version=version
    )
    found = read_gguf(file(tmp_path, raw))
    assert found.version == version and found.architecture == "llama"
    assert found.metadata["words"] == ["a", "été", ""]
    assert found.metadata["flag"] is True and found.metadata["count"] == 7
    np.testing.assert_array_equal(found.metadata["scores"], [1.5, -2])
    np.testing.assert_array_equal(found.tensors["x"].data, X)
    assert found.tensors["h"].data.dtype == ml_dtypes.bfloat16
    q = found.tensors["q"]
    assert (q.kind, q.shape, q.data.shape, q.nbytes) == ("Q8_0", (2, 64), (2, 68), 136)
    assert not q.data.flags.owndata and not q.data.flags.writeable


def test_gguf_keeps_its_alignment(tmp_path: Path) -> None:
    tensors = [written.plain("x", X), written.plain("y", X * 2)]
    raw = written.gguf({"general.alignment": 128}, tensors, alignment=128)
    np.testing.assert_array_equal(read_gguf(file(tmp_path, raw)).tensors["y"].data, X * 2)


def bad_gguf() -> dict[str, tuple[bytes, str]]:
    x = written.plain("x", X)
    good = written.gguf({"a": 1}, [x])
    huge = written.gguf({}, [("x", (2**40, 2**40), 0, b"")])
    head = b"GGUF" + struct.pack("<I", 3)
    lying = head + struct.pack("<QQ", 0, 1) + written.text("a") + struct.pack("<IIQ", 9, 8, 2**60)
    nested = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 40
    return {
        "magic": (b"GGUX" + good[4:], "begins with"),
        "version 1": (written.gguf({}, [x], version=1), "GGUF version 1"),
        "big endian": (b"GGUF" + struct.pack(">I", 3) + good[8:], "big-endian"),
        "cut off": (good[:-40], "would end at byte"),
        "header cut off": (good[:30], "are left|do not fit"),
        "counts": (head + struct.pack("<QQ", 2**62, 0) + b"\0" * 64, "do not fit"),
        "overflow": (huge, "no array can have"),
        "alignment 0": (written.gguf({"general.alignment": 0}, [x]), "power of two, not 0"),
        "alignment 3": (written.gguf({"general.alignment": 3}, [x]), "power of two, not 3"),
        "outside": (written.gguf({}, [x], offsets=[2**50]), "would end at byte"),
        "odd offset": (written.gguf({}, [x], offsets=[1]), "no multiple of 32"),
        "overlap": (written.gguf({}, [x, written.plain("y", X)], offsets=[0, 0]), "inside tensor"),
        "twice": (written.gguf({}, [x, x]), "comes twice"),
        "type": (written.gguf({}, [("x", (2,), 77, b"\0" * 8)]), "unknown type 77"),
        "blocks": (written.gguf({}, [("x", (2, 33), 8, b"\0" * 80)]), "no whole blocks of 32"),
        "array length": (lying + b"\0" * 40, "more than the file has bytes for"),
        "nested": (head + struct.pack("<QQ", 0, 1) + written.text("a") + nested, "nested"),
        "rank": (written.gguf({}, [("x", (1,) * 9, 0, b"\0" * 8)]), "has 9 axes"),
        "empty": (b"", "is empty"),
    }


@pytest.mark.parametrize("case", bad_gguf())
def test_bad_gguf_is_refused(tmp_path: Path, case: str) -> None:
    raw, rule = bad_gguf()[case]
    with pytest.raises(FileFormatError, match=rule):
        read_gguf(file(tmp_path, raw))


# PyTorch's pickles


def state(folder: Path, pickle: bytes) -> Path:
    return written.torch_zip(folder / "state.pt", pickle, {"0": X})


def test_a_zip_gives_strided_views(tmp_path: Path) -> None:
    tensors = {
        "x": written.tensor_opcodes("0", (2, 3), (3, 1), 6),
        "turned": written.tensor_opcodes("0", (3, 2), (1, 3), 6),
        "end": written.tensor_opcodes("0", (2,), (1,), 6, offset=4),
        "none": written.tensor_opcodes("0", (0, 3), (3, 1), 6),
    }
    found = cb.load(state(tmp_path, written.state_opcodes(tensors)))
    np.testing.assert_array_equal(found["x"].numpy(), X)
    np.testing.assert_array_equal(found["turned"].numpy(), X.T)
    assert found["end"].tolist() == [4, 5] and found["none"].shape == (0, 3)


@pytest.mark.parametrize("name", ["zip.pt", "legacy.pt"])
def test_files_that_torch_wrote(name: str) -> None:
    """scripts/make_text_fixture.py wrote them."""
    found = cb.load(FIXTURES / name)
    assert list(found) == ["weight", "half", "shared", "inner.0", "inner.1"]
    np.testing.assert_array_equal(found["weight"].numpy(), X)
    np.testing.assert_array_equal(found["shared"].numpy(), X.T)
    assert found["half"].dtype is cb.as_dtype("bf16") and found["half"].tolist() == [0.5, -2]
    assert found["inner.1"].dtype is cb.as_dtype("i64") and found["inner.1"].tolist() == [1, 2]


def bad_pickles() -> dict[str, tuple[bytes, str]]:
    def one(*args: object, **kwargs: int) -> bytes:
        return written.state_opcodes({"x": written.tensor_opcodes(*args, **kwargs)})  # type: ignore[arg-type]

    call = (
        b"\x80\x02" + written.global_named("os", "system") + b"(" + written.short("true") + b"tR."
    )
    module = b"\x80\x02" + written.global_named("__main__", "Net") + b")\x81."
    pairs = b"K\x01" + b"2\x86" * 64  # a tuple of itself twice, 64 times
    return {
        "foreign call": (call, "asks for os.system"),
        "foreign class": (module, "asks for __main__.Net"),
        "builtin": (b"\x80\x02" + written.global_named("builtins", "eval") + b".", "builtins.eval"),
        "no storage": (one("7", (2,), (1,), 2), "'7' is missing"),
        "lying count": (one("0", (2,), (1,), 2**40), "fewer than its"),
        "outside": (one("0", (7,), (1,), 6), "reaches behind"),
        "offset": (one("0", (2,), (1,), 6, offset=5), "reaches behind"),
        "negative": (one("0", (2,), (-1,), 6), "of integers"),
        "overflow": (one("0", (2**40, 2**40), (0, 0), 6), "no array can have"),
        "repeats": (one("0", (2**30,), (0,), 6), "repeats a storage"),
        "ranks": (one("0", (2,), (1, 1), 6), "strides"),
        "memo": (b"\x80\x02}r\xff\xff\xff\xff.", "memo number"),
        "pairs as a key": (b"\x80\x02}" + pairs + b"K\x00s.", "many times over"),
        "pairs in a set": (b"\x80\x02c__builtin__\nset\n(](" + pairs + b"etR.", "many times over"),
        "pairs by the memo": (
            b"\x80\x02}K\x01" + b"q\x01h\x01\x86" * 64 + b"K\x00s.",
            "many times over",
        ),
        "garbled": (b"\x80\x02}(\xffu.", "damaged"),
        "no tensor": (b"\x80\x02}.", "no tensor in it"),
    }


@pytest.mark.parametrize("case", bad_pickles())
def test_bad_pickles_are_refused(tmp_path: Path, case: str) -> None:
    raw, rule = bad_pickles()[case]
    with pytest.raises(FileFormatError, match=rule):
        read_pickled(state(tmp_path, raw))


def test_a_zip_that_is_cut_off(tmp_path: Path) -> None:
    path = state(tmp_path, written.state_opcodes({}))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(FileFormatError, match="a zip that is damaged"):
        cb.load(path)


# safetensors in shards


def shards(folder: Path, names: dict[str, str]) -> Path:
    nn.save_safetensors({"a": X}, folder / "one.safetensors")
    nn.save_safetensors({"b": X * 2}, folder / "two.safetensors")
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": names}))
    return path


def test_shards_are_one_state(tmp_path: Path) -> None:
    index = shards(tmp_path, {"a": "one.safetensors", "b": "two.safetensors"})
    found = cb.load(index)
    np.testing.assert_array_equal(found["b"].numpy(), X * 2)
    assert cb.look(tmp_path).parameters == 12


@pytest.mark.parametrize(
    ("names", "rule"),
    [
        ({"a": "one.safetensors", "c": "three.safetensors"}, "1 of 2 shards are missing: three"),
        ({"a": "two.safetensors"}, "not in the shard"),
        ({"a": "../one.safetensors"}, "beside the index"),
        ({"a": "/etc/passwd"}, "beside the index"),
        ({"a": 3}, "weight_map"),
    ],
)
def test_bad_indexes_are_refused(tmp_path: Path, names: dict, rule: str) -> None:
    with pytest.raises(FileFormatError, match=rule):
        cb.load(shards(tmp_path, names))


def test_dtypes_stay_what_they_are(tmp_path: Path) -> None:
    kinds = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "fp8_e4m3": ml_dtypes.float8_e4m3fn}
    path = tmp_path / "w.safetensors"
    nn.save_safetensors({k: X.astype(t) for k, t in kinds.items()}, path)
    assert {k: t.dtype.name for k, t in cb.load(path).items()} == {k: k for k in kinds}


# The table


def test_a_look_is_a_table_of_80_columns(tmp_path: Path) -> None:
    metadata = {"general.architecture": "llama", "general.name": "a" * 300 + "\x1b[31m"}
    raw = written.gguf(metadata, [written.plain("blk.0." + "x" * 200, X)])
    found = cb.look(file(tmp_path, raw))
    table = found.table(tensors=True)
    assert max(map(len, table.splitlines())) <= 80 and "\x1b" not in table
    assert found.format == "GGUF 3" and found.parameters == 6 and found.dtypes == {"f32": 1}


def test_packed_weights_are_no_state(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(32, 8))
    packed = quantize(model, "int4", measure_speed=False).model
    save(packed, tmp_path / "small.safetensors")
    with pytest.raises(FileFormatError, match="holds packed weights") as caught:
        cb.load(tmp_path / "small.safetensors")
    assert "cubepy.quant.load" in str(caught.value)
    assert cb.look(tmp_path / "small.safetensors").format == "safetensors"


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no model in a format"):
        cb.look(file(tmp_path, b"hello, world"))
    with pytest.raises(FileNotFoundError, match="no weights"):
        cb.look(tmp_path)
    with pytest.raises(FileNotFoundError):
        cb.look(tmp_path / "absent.gguf")


@pytest.mark.parametrize("use", [cb.load, cb.look])
def test_an_address_of_a_model_is_said_to_be_fetched_first(use: Any, tmp_path: Path) -> None:
    for name in ("nobody/nothing", "https://huggingface.co/nobody/nothing"):
        with pytest.raises(FileNotFoundError, match=r'snapshot_download\("nobody/nothing"\)'):
            use(name)
    for path in ("nobody/model.onnx", "nothing", f"{tmp_path}/nothing", "../nobody/nothing/more"):
        with pytest.raises(FileNotFoundError, match=r"No such file or directory: '"):
            use(path)


def test_a_folder_without_a_config_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="has a config.json, and this one has none$"):
        cb.load(tmp_path)
    (tmp_path / "net.onnx").touch()
    for use in (cb.load, cb.look):
        with pytest.raises(FileNotFoundError, match=r"give the path of a file in it: net\.onnx"):
            use(tmp_path)


def test_a_safetensors_file_that_is_cut_off_is_one(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    nn.save_safetensors({f"w{n}": np.ones(8, np.float32) for n in range(9)}, path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FileFormatError, match="header"):
        cb.load(path)
