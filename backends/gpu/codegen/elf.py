"""What LLVM's object files hold: sections and symbols of an ELF file of 64 bits."""

from __future__ import annotations

import struct
from dataclasses import dataclass

SYMBOL = 24
"""Bytes of an entry of a table of symbols."""
_NOBITS = 8


@dataclass(frozen=True)
class Symbol:
    """A name of an object file: in which section, and where there."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_global(self) -> bool:
        """Whether it is seen from outside."""
        return self.info >> 4 == 1


@dataclass(frozen=True)
class Section:
    """A section of an object file."""

    index: int
    kind: int
    flags: int
    data: bytes


def sections(image: bytes) -> dict[str, Section]:
    """The sections of an ELF file by their names."""
    start = struct.unpack_from("<Q", image, 40)[0]
    size, count, names = struct.unpack_from("<HHH", image, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, start + k * size) for k in range(count)]
    texts = heads[names][4]
    out = {}
    for k, (name, kind, flags, _, offset, length, *_rest) in enumerate(heads):
        data = b"" if kind == _NOBITS else image[offset : offset + length]
        out[_text(image, texts + name)] = Section(k, kind, flags, data)
    return out


def symbols(table: bytes, names: bytes) -> list[Symbol]:
    """The entries of a table of symbols."""
    out = []
    for at in range(0, len(table), SYMBOL):
        name, info, other, section, value, size = struct.unpack_from("<IBBHQQ", table, at)
        out.append(Symbol(_text(names, name), info, other, section, value, size))
    return out


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
