"""Object code in memory of the process: ELF files for x86-64 as LLVM writes them for kernels, whose
sections are laid behind each other in large blocks.

LLVM's own loader keeps some hundred kilobytes of each object for good; a kernel is a few. What is
not as simple as kernels are (other machines, data that is written, other relocations) is LLVM's.

The layout of the file is the System V ABI's (chapter 4, object files; AMD64 supplement 4.4).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import threading
from collections.abc import Callable
from platform import machine
from typing import Any, NamedTuple

import numpy as np

BLOCK = 1 << 20
"""Bytes of a block of code."""
LARGEST_ALIGNMENT = 4096
FILE = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION, SYMBOL, RELOCATION = (struct.Struct(f) for f in ("<IIQQQQIIQQ", "<IBBHQQ", "<QQq"))
RELOCATABLE, X86_64 = 1, 62
PLAIN, SYMBOLS, ADDENDS, NO_BITS = 1, 2, 4, 8
WRITE, ALLOCATE = 1, 2
UNDEFINED, UNWINDING = 0, ".eh_frame"
ABSOLUTE_64, RELATIVE_32, CALL_32 = 1, 2, 4


class Unusual(Exception):
    """An object that is not as simple as kernels are."""


class Section(NamedTuple):
    """A row of the table of sections."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


class _Block:
    """Memory that is written at one address and runs at another one, so that none can be both; it
    stays for good.

    Attributes:
        written: where it is written.
        start: the address where it runs.
        used: bytes.
    """

    def __init__(self, size: int) -> None:
        file = os.memfd_create("cubepy", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, size)
            self.written = mmap.mmap(file, size)
            self._runs = mmap.mmap(file, size, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        finally:
            os.close(file)
        view = np.frombuffer(self._runs, np.uint8)
        self.start, self.size, self.used = view.__array_interface__["data"][0], size, 0
        for mapped in (self.written, self._runs, view):  # threads may run it when Python is gone
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapped))


_lock = threading.Lock()
_blocks: list[_Block] = []
_state = {"usable": sys.platform == "linux" and machine() == "x86_64"}


def _forget() -> None:
    """In the child of a fork: its code goes to blocks of its own, since both see the old ones."""
    global _lock
    _lock = threading.Lock()
    for block in _blocks:
        block.used = block.size


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def load(code: bytes, symbol: str, address_of: Callable[[str], int | None]) -> int | None:
    """Lay object code into memory; gives the address of a function of it, or None where LLVM has to
    load it.

    Args:
        code: the file.
        symbol: the function.
        address_of: gives the address of what the object asks for by name, None where there is none.
    """
    if not _state["usable"]:
        return None
    try:
        return _Object(code).load(symbol, address_of)
    except (Unusual, struct.error, IndexError, ValueError):  # or damaged: LLVM says what is wrong
        return None
    except OSError:  # memory that runs cannot be had so
        _state["usable"] = False
        return None


class _Object:
    """A file.

    Attributes:
        code: its bytes.
        sections: the table.
        laid: by section, where it is among all bytes that are laid out.
        size, alignment: of these.
    """

    def __init__(self, code: bytes) -> None:
        self.code = code
        if len(code) < FILE.size or code[:6] != b"\x7fELF\x02\x01":
            raise Unusual
        head = FILE.unpack_from(code)
        if head[1:3] != (RELOCATABLE, X86_64) or head[11] != SECTION.size or not head[12]:
            raise Unusual
        if head[6] + head[12] * SECTION.size > len(code):
            raise Unusual
        self.sections = [
            Section(*SECTION.unpack_from(code, head[6] + n * SECTION.size)) for n in range(head[12])
        ]
        if any(s.kind != NO_BITS and s.offset + s.size > len(code) for s in self.sections):
            raise Unusual
        self.names = self.sections[head[13]]
        self.laid = dict[int, int]()
        self.size, self.alignment = 0, 16
        for n, section in enumerate(self.sections):
            if not section.flags & ALLOCATE or self.text(self.names, section.name) == UNWINDING:
                continue
            step = max(1, section.alignment)
            if section.kind != PLAIN or section.flags & WRITE:
                raise Unusual
            if step > LARGEST_ALIGNMENT or step & (step - 1):
                raise Unusual
            self.laid[n] = -(-self.size // step) * step
            self.size = self.laid[n] + section.size
            self.alignment = max(self.alignment, step)

    def text(self, table: Section, offset: int) -> str:
        """A name of a table of names."""
        start = table.offset + offset
        return self.code[start : self.code.index(b"\0", start)].decode()

    def load(self, symbol: str, address_of: Callable[[str], int | None]) -> int:
        """Write all sections, with addresses where these are asked for."""
        with _lock:
            if not _blocks or _blocks[-1].used + self.alignment + self.size > _blocks[-1].size:
                _blocks.append(_Block(max(BLOCK, self.size + self.alignment)))
            block = _blocks[-1]
            first = -(-block.used // self.alignment) * self.alignment
            base = block.start + first
            image = bytearray(self.size)
            for number, at in self.laid.items():
                section = self.sections[number]
                image[at : at + section.size] = self.code[section.offset :][: section.size]
            for section in self.sections:
                if section.kind == ADDENDS and section.info in self.laid:
                    self.relocate(image, section, base, address_of)
                elif section.kind not in (ADDENDS, SYMBOLS) and section.info in self.laid:
                    raise Unusual
            entry = self.entry(symbol)
            block.written[first : first + self.size] = bytes(image)
            block.used = first + self.size
        return base + entry

    def symbol(self, table: Section, number: int) -> tuple[Any, ...]:
        """A row of a table of symbols: name, info, other, section, value, size."""
        if table.kind != SYMBOLS or (number + 1) * SYMBOL.size > table.size:
            raise Unusual
        return SYMBOL.unpack_from(self.code, table.offset + number * SYMBOL.size)

    def relocate(
        self, image: bytearray, section: Section, base: int, address_of: Callable[[str], int | None]
    ) -> None:
        """Write the addresses that a section asks for."""
        table, start = self.sections[section.link], self.laid[section.info]
        names = self.sections[table.link]
        for at in range(section.offset, section.offset + section.size, RELOCATION.size):
            offset, info, addend = RELOCATION.unpack_from(self.code, at)
            row = self.symbol(table, info >> 32)
            if row[3] == UNDEFINED:
                found = address_of(self.text(names, row[0]))
            else:
                found = base + self.laid[row[3]] + row[4] if row[3] in self.laid else None
            if not found:
                raise Unusual
            kind, where = info & 0xFFFFFFFF, start + offset
            if kind == ABSOLUTE_64 and where + 8 <= len(image):
                struct.pack_into("<Q", image, where, (found + addend) & 0xFFFFFFFFFFFFFFFF)
                continue
            distance = found + addend - (base + where)
            if kind not in (RELATIVE_32, CALL_32) or abs(distance) >= 1 << 31:
                raise Unusual
            struct.pack_into("<i", image, where, distance)

    def entry(self, symbol: str) -> int:
        """Where a function is among the bytes that are laid out."""
        for section in self.sections:
            if section.kind == SYMBOLS:
                names = self.sections[section.link]
                for number in range(section.size // SYMBOL.size):
                    row = self.symbol(section, number)
                    if row[3] in self.laid and self.text(names, row[0]) == symbol:
                        return self.laid[row[3]] + int(row[4])
        raise Unusual
