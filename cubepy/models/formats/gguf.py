"""GGUF files, versions 2 and 3: metadata, and tensors as views of the mapped file.

A file is: `GGUF`, version (u32), how many tensors and how many metadata (u64), the metadata (key,
type, value), of every tensor its name, lengths (innermost first), type and offset; then, from the
next multiple of `general.alignment` on, the data. Numbers are little-endian. Source: ggml's
its page `gguf`.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.models.formats.block_types import BLOCK_TYPES
from cubepy.models.formats.stored import Refusal, Stored, checked_shape, mapped, view_of

MAGIC = b"GGUF"
MOST_NESTED = 8
_NUMBERS = {
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
"""NumPy's dtypes by the numbers of metadata types; 7 is a boolean of one byte."""
_BOOL, _STRING, _ARRAY = 7, 8, 9


@dataclass(frozen=True)
class GGUF:
    """What a GGUF file holds.

    Attributes:
        version: 2 or 3.
        metadata: numbers, texts, booleans; arrays of numbers are NumPy's, of texts lists.
        tensors: by name, in the order of the file.
    """

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, Stored]

    @property
    def architecture(self) -> str:
        """Such as "llama"; empty where the file does not say."""
        found = self.metadata.get("general.architecture", "")
        return found if isinstance(found, str) else ""


class Cursor:
    """Reads the header from front to back, and refuses to leave the file."""

    def __init__(self, data: np.ndarray, refuse: Refusal) -> None:
        self.data, self.view, self.at, self.refuse = data, memoryview(data.data), 0, refuse

    def take(self, count: int, what: str) -> int:
        """The first of so many bytes, which are passed over."""
        at = self.at
        if count > len(self.view) - at:
            self.refuse(
                f"{what} at byte {at} would take {count} bytes, but {len(self.view) - at} are left"
            )
        self.at = at + count
        return at

    def number(self, kind: str, what: str) -> Any:
        """A number of a NumPy dtype."""
        dtype = np.dtype(kind)
        at = self.take(dtype.itemsize, what)
        return np.frombuffer(self.view, dtype, 1, at)[0].item()

    def text(self, what: str) -> str:
        """Bytes with their count before them; those that are no UTF-8 are replaced."""
        count = self.number("<u8", f"the length of {what}")
        at = self.take(count, what)
        return str(self.view[at : at + count], "utf-8", "replace")

    def texts(self, count: int, what: str) -> list[str]:
        """Many texts: vocabularies have hundreds of thousands."""
        view, at, end = self.view, self.at, len(self.view)
        length_at = struct.Struct("<Q").unpack_from
        found: list[str] = []
        append = found.append
        for _ in range(count):
            if at + 8 > end:
                self.refuse(f"{what} is cut off after {len(found)} of {count} texts")
            size = length_at(view, at)[0]
            at += 8
            if size > end - at:
                self.refuse(f"text {len(found)} of {what} would have {size} bytes")
            append(str(view[at : at + size], "utf-8", "replace"))
            at += size
        self.at = at
        return found

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        """A value of a metadata type."""
        if kind == _STRING:
            return self.text(what)
        if kind == _ARRAY:
            return self.array(what, depth)
        if kind not in _NUMBERS:
            self.refuse(f"{what} has the unknown type {kind}")
        found = self.number(_NUMBERS[kind], what)
        return bool(found) if kind == _BOOL else found

    def array(self, what: str, depth: int) -> Any:
        """Numbers as an array, texts and arrays as a list."""
        if depth >= MOST_NESTED:
            self.refuse(f"{what} has arrays nested more than {MOST_NESTED} deep")
        kind, count = self.number("<u4", what), self.number("<u8", what)
        if kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind])
            at = self.take(count * dtype.itemsize, what)
            found = np.frombuffer(self.view, dtype, count, at)
            return found.astype(np.bool_) if kind == _BOOL else found
        smallest = 8 if kind == _STRING else 12
        if count * smallest > len(self.view) - self.at:
            self.refuse(f"{what} would have {count} elements, more than the file has bytes for")
        if kind == _STRING:
            return self.texts(count, what)
        return [self.value(kind, what, depth + 1) for _ in range(count)]


def read_gguf(path: str | os.PathLike[str]) -> GGUF:
    """The metadata of a file, and its tensors, of which nothing is read yet.

    Raises:
        FileFormatError: a file that is cut off or whose header is wrong: the rule and the value.
        FileNotFoundError: there is no such file.
    """
    refuse = Refusal(path)
    data = mapped(path)
    cursor = Cursor(data, refuse)
    if bytes(data[:4]) != MAGIC:
        refuse(f"a GGUF file begins with {MAGIC!r}, not {bytes(data[:4])!r}")
    cursor.at = 4
    version = cursor.number("<u4", "the version")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        hint = "convert it with llama.cpp of today"
        if swapped in (2, 3):
            refuse("a GGUF file for big-endian machines", hint)
        refuse(f"GGUF version {version}; versions 2 and 3 can be read", hint)
    count, pairs = cursor.number("<u8", "the tensor count"), cursor.number("<u8", "the key count")
    if count * 24 > data.size or pairs * 13 > data.size:
        refuse(f"{count} tensors and {pairs} keys do not fit {data.size} bytes")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = cursor.text("a key")
        if key in metadata:
            refuse(f"the key {key!r} comes twice")
        metadata[key] = cursor.value(cursor.number("<u4", f"the type of {key!r}"), repr(key))
    infos = _infos(cursor, count)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        refuse(f"general.alignment must be a power of two, not {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    return GGUF(version, metadata, _tensors(data, infos, start, alignment, refuse))


_Info = tuple[str, tuple[int, ...], int, int]


def _infos(cursor: Cursor, count: int) -> list[_Info]:
    """Name, lengths (outermost first), type and offset of every tensor."""
    found: list[_Info] = []
    seen = set()
    for _ in range(count):
        name = cursor.text("the name of a tensor")
        if name in seen:
            cursor.refuse(f"the tensor {name!r} comes twice")
        seen.add(name)
        rank = cursor.number("<u4", f"the rank of {name!r}")
        if rank > 4:
            cursor.refuse(f"tensor {name!r} has {rank} axes; GGUF has at most 4")
        lengths = [cursor.number("<u8", f"a length of {name!r}") for _ in range(rank)]
        kind = cursor.number("<u4", f"the type of {name!r}")
        offset = cursor.number("<u8", f"the offset of {name!r}")
        found.append((name, checked_shape(name, lengths[::-1], cursor.refuse), kind, offset))
    return found


def _tensors(
    data: np.ndarray, infos: list[_Info], start: int, alignment: int, refuse: Refusal
) -> dict[str, Stored]:
    """Views of the data, of which none may leave the file or lie over another one."""
    spans = []
    found = {}
    for name, shape, number, offset in infos:
        kind = BLOCK_TYPES.get(number)
        if kind is None:
            refuse(f"tensor {name!r} has the unknown type {number}", "the file is newer than this")
        row = shape[-1] if shape else 1
        if row % kind.elements:
            refuse(f"tensor {name!r}: rows of {row} are no whole blocks of {kind.elements}")
        if offset % alignment:
            refuse(f"tensor {name!r} has the offset {offset}, no multiple of {alignment}")
        outer = shape[:-1]
        width = row // kind.elements * kind.nbytes
        size = int(np.prod([*outer, width], dtype=object)) if shape else width
        first = start + offset
        if first + size > data.size:
            refuse(
                f"tensor {name!r} would end at byte {first + size} of a file of {data.size} bytes",
                "the file is cut off; fetch it again",
            )
        spans.append((first, first + size, name))
        if kind.plain:
            found[name] = Stored(name, kind.plain, shape, view_of(data, first, kind.plain, shape))
        else:
            raw = data[first : first + size].reshape(*outer, width)
            found[name] = Stored(name, kind.name, shape, raw)
    end, before = 0, ""
    for first, last, name in sorted(spans):
        if first < end and last > first:
            refuse(f"tensor {name!r} begins at byte {first}, inside tensor {before!r}")
        end, before = max(end, last), name
    return found
