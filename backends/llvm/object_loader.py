"""Object code in memory of the process: ELF files for x86-64 as LLVM writes them for kernels, whose
sections are laid behind each other in large blocks.

LLVM's own loader keeps some hundred kilobytes of each object for good; a kernel is a few, and its
memory is written again when nobody has the kernel any more. What is not as simple as kernels are
(other machines, data that is written, other relocations) is LLVM's.

The layout of the file is the System V ABI's (chapter 4, object files; AMD64 supplement 4.4).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import sys
import threading
from bisect import insort
from collections import deque
from collections.abc import Callable
from platform import machine
from typing import Any, NamedTuple

import numpy as np

BLOCK = 1 << 20
"""Bytes of a block of code."""
LARGEST_ALIGNMENT = 4096
SMALLEST = 64
"""Bytes that are worth a place of their own among those that are free."""
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
    stays for good, for code that comes and goes.

    Attributes:
        written: where it is written.
        start, size: the address where it runs, and its bytes.
        free: (first byte, one past the last) of what is not used, in order.
        shared: whether a process that was forked has it, too: then nobody knows when its code is
            not used any more.
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
        self.start, self.size = view.__array_interface__["data"][0], size
        self.free, self.shared = [(0, size)], False
        for mapped in (self.written, self._runs, view):  # threads may run it when Python is gone
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapped))

    def take(self, size: int, alignment: int) -> tuple[int, tuple[int, int]] | None:
        """Where so many bytes begin, and the bytes that are used from now on, some more at both
        ends; None where there is no room.
        """
        for n, (first, last) in enumerate(self.free):
            begin = -(-first // alignment) * alignment
            end = begin + size
            if end <= last:
                rest = [(end, last)] if last - end >= SMALLEST else []
                self.free[n : n + 1] = rest
                return begin, (first, end if rest else last)
        return None

    def give_back(self, first: int, last: int) -> None:
        """Some bytes are not used any more."""
        insort(self.free, (first, last))
        joined: list[tuple[int, int]] = []
        for one in self.free:
            if joined and joined[-1][1] == one[0]:
                joined[-1] = joined[-1][0], one[1]
            else:
                joined.append(one)
        self.free = joined


class Laid:
    """Code in memory, which is kept as long as this is.

    Args:
        entry: the address of its function.
        block: where it is; None for what stays for good.
        span: of which bytes.
    """

    __slots__ = ("block", "entry", "span")

    def __init__(
        self, entry: int, block: _Block | None = None, span: tuple[int, int] = (0, 0)
    ) -> None:
        self.entry, self.block, self.span = entry, block, span

    def __del__(self) -> None:
        if self.block is not None and _unused is not None:  # None while Python ends
            _unused.append((self.block, self.span))


_lock = threading.RLock()
_blocks: list[_Block] = []
_unused: deque[tuple[_Block, tuple[int, int]]] = deque()
"""What is to be given back: Python may collect at any time, also while the lock is held."""
_state = {"usable": sys.platform == "linux" and machine() == "x86_64"}


def _share() -> None:
    """Two processes have the blocks: what is there is not written again."""
    for block in _blocks:
        block.shared = True


def _in_parent() -> None:
    _share()
    _lock.release()


def _in_child() -> None:
    """Its code goes to blocks of its own."""
    global _lock
    _lock = threading.RLock()
    _share()
    for block in _blocks:
        block.free = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lock.acquire(), after_in_parent=_in_parent, after_in_child=_in_child
    )


def load(code: bytes, symbol: str, address_of: Callable[[str], int | None]) -> Laid | None:
    """Lay object code into memory, or None where LLVM has to load it.

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


def _room(size: int, alignment: int) -> tuple[_Block, int, tuple[int, int]]:
    """A block, where so many bytes begin in it, and the bytes that are used from now on."""
    while _unused:
        block, span = _unused.popleft()
        if not block.shared:
            block.give_back(*span)
    for block in _blocks:
        found = block.take(size, alignment)
        if found is not None:
            return block, *found
    _blocks.append(_Block(max(BLOCK, size)))
    found = _blocks[-1].take(size, alignment)
    assert found is not None, "a block begins at a page"
    return _blocks[-1], *found


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

    def load(self, symbol: str, address_of: Callable[[str], int | None]) -> Laid:
        """Write all sections, with addresses where these are asked for."""
        entry, image = self.entry(symbol), bytearray(self.size)
        with _lock:
            block, first, span = _room(self.size, self.alignment)
            base = block.start + first
            laid = Laid(base + entry, block, span)  # gone, and given back, if this raises
            for number, at in self.laid.items():
                section = self.sections[number]
                image[at : at + section.size] = self.code[section.offset :][: section.size]
            for section in self.sections:
                if section.kind == ADDENDS and section.info in self.laid:
                    self.relocate(image, section, base, address_of)
                elif section.kind not in (ADDENDS, SYMBOLS) and section.info in self.laid:
                    raise Unusual
            block.written[first : first + self.size] = bytes(image)
            return laid

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
