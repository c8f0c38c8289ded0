"""safetensors files: mapped without a copy, written whole or not at all, and every lie of a header
found.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cubepy as cb
from cubepy import nn
from cubepy.errors import FileFormatError

ARRAYS = {
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3), "i8": np.array([-1, 2], np.int8), "none": np.zeros((0, 3)),
    "bf16": np.array([1.5, -2], ml_dtypes.bfloat16), "fp8": np.array([0.5, 448], ml_dtypes.float8_e4m3fn),
    "scalar": np.array(7, np.int64), "flag": np.array([True, False, True]), "f16": np.ones((3, 1), np.float16),
    "strided": np.arange(12, dtype=np.float64).reshape(3, 4)[:, ::2],
}  # fmt: skip


def written(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + data)
    return path


def test_tensors_come_back_as_they_went(tmp_path):
    path = tmp_path / "x.safetensors"
    nn.save_safetensors(ARRAYS | {"tensor": cb.tensor([1.0])}, path, {"note": "größer"})
    found = nn.load_safetensors(path)
    assert list(found) == [*ARRAYS, "tensor"]
    for name, array in ARRAYS.items():
        assert found[name].shape == array.shape and found[name].numpy().dtype == array.dtype
        np.testing.assert_array_equal(found[name].numpy(), array)
    assert nn.safetensors_metadata(path) == {"note": "größer"}


def test_loading_copies_nothing(tmp_path):
    path = tmp_path / "x.safetensors"
    nn.save_safetensors({"a": ARRAYS["f32"], "b": ARRAYS["f32"]}, path)
    found = {k: v.numpy() for k, v in nn.load_safetensors(path).items()}
    assert not any(a.flags.owndata or a.flags.writeable for a in found.values())
    assert all(a.ctypes.data % 8 == 0 for a in found.values())
    with pytest.raises(ValueError, match="read-only"):
        found["a"][0] = 1


def test_the_library_of_the_format_reads_what_we_write_and_the_reverse(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    plain = {k: np.ascontiguousarray(v) for k, v in ARRAYS.items() if k not in ("bf16", "fp8")}
    nn.save_safetensors(plain, tmp_path / "ours", {"a": "b"})
    theirs = library.load_file(tmp_path / "ours")
    assert set(theirs) == set(plain)
    for name, array in plain.items():
        np.testing.assert_array_equal(theirs[name], array)
    library.save_file(plain, tmp_path / "theirs", {"a": "b"})
    ours = nn.load_safetensors(tmp_path / "theirs")
    for name, array in plain.items():
        np.testing.assert_array_equal(ours[name].numpy(), array)
    assert nn.safetensors_metadata(tmp_path / "theirs") == {"a": "b"}


def test_elements_off_their_alignment_are_copied(tmp_path):
    header = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 4 + 1)
    path = written(tmp_path / "x", raw, np.float32(2.5).tobytes())
    assert nn.load_safetensors(path)["a"].tolist() == [2.5]


def entry(**changes: object) -> dict:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


LIES = {
    "length beyond the file": ((entry(), b"\0" * 8, 10**6), "only 69 follow"),
    "length beyond reason": ((entry(), b"\0" * 8, 2**63), "at most"),
    "no JSON": ((b"{not json", b""), "no JSON text"),
    "no UTF-8": ((b"\xff\xfe", b""), "no JSON text"),
    "deep nesting": ((b"[" * 200000, b""), "no JSON text"),
    "long number": ((b'{"a":' + b"9" * 5000 + b"}", b""), "JSON|entry of tensor"),
    "no object": (([], b""), "must be a JSON object"),
    "a name twice": ((b'{"a": 1, "a": 2}', b""), "names 'a' twice"),
    "metadata of numbers": (({"__metadata__": {"a": 1}}, b""), "texts to texts"),
    "no entry": (({"a": 1}, b""), "must have dtype, shape and data_offsets"),
    "an entry too many": (({"a": entry()["a"] | {"more": 1}}, b"\0" * 8), "nothing else"),
    "unknown dtype": ((entry(dtype="F33"), b"\0" * 8), "has the dtype 'F33'"),
    "dtype of a wrong type": ((entry(dtype=[1]), b"\0" * 8), "has the dtype"),
    "negative length": ((entry(shape=[-2]), b"\0" * 8), "expected a list of lengths"),
    "boolean length": ((entry(shape=[True]), b"\0" * 8), "expected a list of lengths"),
    "fractional length": ((entry(shape=[2.0]), b"\0" * 8), "expected a list of lengths"),
    "high rank": ((entry(shape=[1] * 99 + [2]), b"\0" * 8), "rank 100"),
    "huge shape": ((entry(shape=[2**70]), b"\0" * 8), "bytes, but its data_offsets"),
    "huge and empty shape": ((entry(shape=[2**70, 0], data_offsets=[0, 0]), b""), "no array can have"),
    "offsets reversed": ((entry(data_offsets=[8, 0]), b"\0" * 8), "begin <= end"),
    "offsets of texts": ((entry(data_offsets=["0", "8"]), b"\0" * 8), "begin <= end"),
    "one offset": ((entry(data_offsets=[8]), b"\0" * 8), "begin <= end"),
    "data truncated": ((entry(), b"\0" * 7), "ends at byte 8 of the data, but there are 7"),
    "shape and offsets differ": ((entry(shape=[3]), b"\0" * 8), r"is F32 \[3\], 12 bytes"),
    "bytes at the end": ((entry(), b"\0" * 9), "1 bytes at the end belong to no tensor"),
    "a gap": ((entry(data_offsets=[4, 12]), b"\0" * 12), "4 bytes before tensor 'a'"),
    "an overlap": ((entry() | {"b": entry(data_offsets=[4, 12])["a"]}, b"\0" * 12), "inside tensor 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_files_that_lie_are_refused(lie, tmp_path):
    arguments, match = LIES[lie]
    with pytest.raises(FileFormatError, match=match) as caught:
        nn.load_safetensors(written(tmp_path / "x.safetensors", *arguments))
    assert "x.safetensors" in str(caught.value) and "Hint:" in str(caught.value)


@pytest.mark.parametrize("size", range(8))
def test_tiny_files_are_refused(size, tmp_path):
    (tmp_path / "x").write_bytes(b"\0" * size)
    with pytest.raises(FileFormatError, match="begins with 8 bytes"):
        nn.load_safetensors(tmp_path / "x")


@given(st.data())
def test_damaged_files_give_tensors_or_our_error(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        nn.save_safetensors({"a": ARRAYS["f32"], "b": ARRAYS["i8"]}, path)
        raw = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(
            raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
        )
        try:
            found = nn.load_safetensors(path)
        except FileFormatError:
            return
        assert all(t.numpy().nbytes <= len(raw) for t in found.values())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        nn.load_safetensors(tmp_path / "none")


def test_saving_replaces_whole_files_only(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    nn.save_safetensors({"a": ARRAYS["f32"]}, path)
    mapped = nn.load_safetensors(path)["a"]

    def fail(*args):
        raise OSError("disk full")

    with monkeypatch.context() as m:
        m.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            nn.save_safetensors({"a": ARRAYS["i8"]}, path)
    assert os.listdir(tmp_path) == ["x.safetensors"]
    np.testing.assert_array_equal(nn.load_safetensors(path)["a"].numpy(), ARRAYS["f32"])
    nn.save_safetensors({"a": mapped * 2}, path)  # over the file that is mapped
    np.testing.assert_array_equal(nn.load_safetensors(path)["a"].numpy(), ARRAYS["f32"] * 2)
    np.testing.assert_array_equal(mapped.numpy(), ARRAYS["f32"])


@pytest.mark.parametrize(
    ("tensors", "metadata", "match"),
    [
        ({"__metadata__": np.zeros(1)}, None, "cannot be the name"),
        ({1: np.zeros(1)}, None, "cannot be the name"),
        ({"a": np.zeros(1, ml_dtypes.int4)}, None, "the format does not know"),
        ({"a": np.zeros(1)}, {"a": 1}, "texts to texts"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(tensors, metadata, match, tmp_path):
    with pytest.raises(FileFormatError, match=match):
        nn.save_safetensors(tensors, tmp_path / "x", metadata)
    assert not os.listdir(tmp_path)


def test_a_file_that_lacks_a_tensor_is_told_by_the_model(tmp_path):
    model = nn.Linear(2, 3)
    nn.save_safetensors({"weight": model.weight}, tmp_path / "x")
    with pytest.raises(FileFormatError, match="missing: bias"):
        model.load_state_dict(nn.load_safetensors(tmp_path / "x"))
