"""Writes small model files by hand, right ones and wrong ones."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10


def text(value: str | bytes) -> bytes:
    """A text of GGUF: its length, then its bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def typed(value: Any) -> bytes:
    """A metadata value with its type."""
    if isinstance(value, bool):
        return struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, float):
        return struct.pack("<If", F32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + text(value)
    if isinstance(value, np.ndarray):
        kinds = {"float32": F32, "uint32": U32, "int32": 5}
        head = struct.pack("<IIQ", ARRAY, kinds[value.dtype.name], value.size)
        return head + value.tobytes()
    assert isinstance(value, list)
    return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(text, value))


Tensor = tuple[str, Sequence[int], int, bytes]
"""Name, lengths (outermost first), number of the type, bytes."""


def gguf(
    metadata: Mapping[str, Any],
    tensors: Sequence[Tensor],
    *,
    version: int = 3,
    alignment: int = 32,
    offsets: Sequence[int] | None = None,
) -> bytes:
    """The bytes of a GGUF file; `offsets` instead of the right ones."""
    out = io.BytesIO()
    out.write(b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)))
    for key, value in metadata.items():
        out.write(text(key) + typed(value))
    at, data = 0, b""
    for n, (name, shape, kind, raw) in enumerate(tensors):
        out.write(text(name) + struct.pack("<I", len(shape)))
        out.write(b"".join(struct.pack("<Q", length) for length in reversed(shape)))
        out.write(struct.pack("<IQ", kind, at if offsets is None else offsets[n]))
        data += raw + b"\0" * (-len(raw) % alignment)
        at = len(data)
    out.write(b"\0" * (-out.tell() % alignment))
    return out.getvalue() + data


def plain(name: str, array: np.ndarray) -> Tensor:
    """A tensor of numbers one after the other."""
    kinds = {"float32": 0, "float16": 1, "bfloat16": 30, "int8": 24}
    return name, array.shape, kinds[array.dtype.name], array.tobytes()


def global_named(module: str, name: str) -> bytes:
    """An opcode that asks for a name of a module."""
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def short(value: str) -> bytes:
    """A text in a pickle."""
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    """An integer in a pickle."""
    return b"\x8a\x08" + struct.pack("<q", value)


def numbers(values: Sequence[int]) -> bytes:
    """A tuple of integers in a pickle."""
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor_opcodes(
    key: str, shape: Sequence[int], strides: Sequence[int], count: int, offset: int = 0
) -> bytes:
    """A tensor of f32 as torch pickles it."""
    storage = b"(" + short("storage") + global_named("torch", "FloatStorage") + short(key)
    storage += short("cpu") + number(count) + b"tQ"
    rest = number(offset) + numbers(shape) + numbers(strides) + b"\x89}"
    return global_named("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + rest + b"tR"


def state_opcodes(tensors: Mapping[str, bytes]) -> bytes:
    """A dict of tensors as a pickle."""
    items = b"".join(short(name) + raw for name, raw in tensors.items())
    return b"\x80\x02}(" + items + b"u."


def torch_zip(path: Path, pickle: bytes, storages: Mapping[str, np.ndarray]) -> Path:
    """A file as `torch.save` writes it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", "little")
        for key, array in storages.items():
            archive.writestr(f"archive/data/{key}", array.tobytes())
    return path
