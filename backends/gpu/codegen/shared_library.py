"""A shared ELF library from LLVM's object file, without a linker.

Names and what is read lie in one segment, machine code in another that is executed, a dynamic
section says where the names are. LLVM's object holds all of it but the places. What needs nothing
from elsewhere has only relocations that say how far away something of its own is; anything else is
refused.

Layout: "System V Application Binary Interface", Object Files and Dynamic Linking.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from cubepy.backends.gpu.codegen.elf import SYMBOL, Symbol, sections, symbols
from cubepy.errors import BackendCompileError

PAGE = 0x1000
_HEADER, _PROGRAM, _SECTION = 64, 56, 64
_ET_DYN = 3
_PT_LOAD, _PT_DYNAMIC, _PT_NOTE, _PT_STACK = 1, 2, 4, 0x6474E551
_R, _W, _X = 4, 2, 1
_ALLOCATED = 2
_LAID_OUT = (".note", ".rodata", ".text")
_ORDER = (".note", ".dynsym", ".hash", ".dynstr", ".rodata", ".text", ".dynamic", ".shstrtab")
_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT = 4, 5, 6, 10, 11
_SHAPE = {
    ".note": (7, 2, 0, 0, 4, 0),
    ".dynsym": (11, 2, 4, 1, 8, 24),
    ".hash": (5, 2, 2, 0, 4, 4),
    ".dynstr": (3, 2, 0, 0, 1, 0),
    ".rodata": (1, 2, 0, 0, 64, 0),
    ".text": (1, 6, 0, 0, 256, 0),
    ".dynamic": (6, 3, 4, 0, 8, 16),
    ".shstrtab": (3, 0, 0, 0, 1, 0),
}
"""Of each section: kind, flags, the section that it belongs to, its first global symbol, alignment,
bytes of an entry.
"""


@dataclass(frozen=True)
class Machine:
    """A processor, as ELF knows it.

    Attributes:
        number: of the machine.
        distances: relocations that write the distance to a symbol: their kinds, with the lowest bit
            of it that is written and how many bytes are.
    """

    number: int
    distances: Mapping[int, tuple[int, int]]


def _up(at: int, step: int) -> int:
    return -(-at // step) * step


class Layout:
    """Where everything of a library lies.

    Attributes:
        content: bytes by section.
        offsets, addresses: of sections, in the file and in memory.
    """

    def __init__(self, image: bytes, machine: Machine) -> None:
        self.image, self.machine, self.found = image, machine, sections(image)
        odd = [
            name
            for name, s in self.found.items()
            if s.flags & _ALLOCATED and s.data and name not in _LAID_OUT
        ]
        if odd:
            raise refused(f"it has sections that are not laid out: {odd}")
        self.symbols = symbols(self.found[".symtab"].data, self.found[".strtab"].data)
        self.home = {self.found[name].index: name for name in (".rodata", ".text")}
        missing = [s.name for s in self.symbols if s.is_global and s.section == 0 and s.name]
        if missing:
            raise refused(f"it needs {missing} from elsewhere")
        self.exported = [s for s in self.symbols if s.is_global and s.section in self.home]
        self.content = {name: bytearray(self.found[name].data) for name in _LAID_OUT}
        names, self.name_at = b"\0", []
        for s in self.exported:
            self.name_at.append(len(names))
            names += s.name.encode() + b"\0"
        self.content[".dynstr"] = bytearray(names)
        self.content[".dynsym"] = bytearray(SYMBOL * (1 + len(self.exported)))
        self.content[".hash"] = bytearray(4 * (4 + len(self.exported)))
        self._lay_out()
        self._relocate()
        self._name()

    def _lay_out(self) -> None:
        """Headers, what is read, machine code, the dynamic section; each segment in pages of its
        own.
        """
        self.offsets, at = {}, _HEADER + 6 * _PROGRAM
        for name in (".note", ".dynsym", ".hash", ".dynstr", ".rodata"):
            at = _up(at, _SHAPE[name][4])
            self.offsets[name] = at
            at += len(self.content[name])
        self.read_end = at
        self.addresses = dict(self.offsets)
        at = self.offsets[".text"] = _up(at, _SHAPE[".text"][4])
        self.addresses[".text"] = at + PAGE
        at = self.offsets[".dynamic"] = _up(at + len(self.content[".text"]), 8)
        self.addresses[".dynamic"] = at + 2 * PAGE

    def _relocate(self) -> None:
        for name in (".rodata", ".text"):
            relocations = self.found.get(f".rela{name}")
            table = b"" if relocations is None else relocations.data
            for at in range(0, len(table), 24):
                offset, info, addend = struct.unpack_from("<QQq", table, at)
                self._patch(name, offset, self.symbols[info >> 32], info & 0xFFFFFFFF, addend)

    def _patch(self, name: str, offset: int, symbol: Symbol, kind: int, addend: int) -> None:
        if symbol.section not in self.home:
            raise refused(f"it refers to {symbol.name!r}")
        to = self.addresses[self.home[symbol.section]] + symbol.value + addend
        distance, data = to - (self.addresses[name] + offset), self.content[name]
        if kind not in self.machine.distances:
            raise refused(f"it has a relocation of kind {kind}")
        low, count = self.machine.distances[kind]
        part = distance >> low & (1 << 8 * count) - 1
        data[offset : offset + count] = part.to_bytes(count, "little")

    def _name(self) -> None:
        """Symbols, and a hash table of one bucket, in which they are all chained."""
        for k, (at, s) in enumerate(zip(self.name_at, self.exported, strict=True), 1):
            where = self.home[s.section]
            struct.pack_into(
                "<IBBHQQ",
                self.content[".dynsym"],
                SYMBOL * k,
                at,
                s.info,
                s.other,
                1 + _ORDER.index(where),
                self.addresses[where] + s.value,
                s.size,
            )
        n = 1 + len(self.exported)
        chain = [k + 1 if 0 < k < n - 1 else 0 for k in range(n)]
        struct.pack_into(f"<{3 + n}I", self.content[".hash"], 0, 1, n, int(n > 1), *chain)
        entries = (
            (_SYMTAB, self.addresses[".dynsym"]),
            (_SYMENT, SYMBOL),
            (_STRTAB, self.addresses[".dynstr"]),
            (_STRSZ, len(self.content[".dynstr"])),
            (_HASH, self.addresses[".hash"]),
            (0, 0),
        )
        self.content[".dynamic"] = bytearray(b"".join(struct.pack("<qQ", *e) for e in entries))
        self.content[".shstrtab"] = bytearray(b"\0" + "".join(f"{n}\0" for n in _ORDER).encode())
        self.offsets[".shstrtab"] = self.offsets[".dynamic"] + len(self.content[".dynamic"])

    def file(self) -> bytes:
        """The library."""
        start = _up(self.offsets[".shstrtab"] + len(self.content[".shstrtab"]), 8)
        out = bytearray(start + _SECTION * (1 + len(_ORDER)))
        for name in _ORDER:
            out[self.offsets[name] : self.offsets[name] + len(self.content[name])] = self.content[
                name
            ]
        word = 1
        for k, name in enumerate(_ORDER, 1):
            kind, flags, link, info, align, each = _SHAPE[name]
            where = (self.addresses.get(name, 0), self.offsets[name], len(self.content[name]))
            head = struct.pack("<IIQQQQIIQQ", word, kind, flags, *where, link, info, align, each)
            out[start + _SECTION * k : start + _SECTION * (k + 1)] = head
            word += len(name) + 1
        flags = struct.unpack_from("<I", self.image, 48)[0]
        sizes = (_HEADER, _PROGRAM, 6, _SECTION, 1 + len(_ORDER), len(_ORDER))
        head = self.image[:16] + struct.pack(
            "<HHIQQQIHHHHHH", _ET_DYN, self.machine.number, 1, 0, _HEADER, start, flags, *sizes
        )
        out[: len(head)] = head
        for k, (kind, rights, offset, address, length, align) in enumerate(self._segments()):
            struct.pack_into(
                "<IIQQQQQQ",
                out,
                _HEADER + _PROGRAM * k,
                kind,
                rights,
                offset,
                address,
                address,
                length,
                length,
                align,
            )
        return bytes(out)

    def _segments(self) -> list[tuple[int, int, int, int, int, int]]:
        def section(kind: int, rights: int, name: str, align: int) -> tuple:
            where = (self.offsets[name], self.addresses[name], len(self.content[name]))
            return (kind, rights, *where, align)

        return [
            (_PT_LOAD, _R, 0, 0, self.read_end, PAGE),
            section(_PT_LOAD, _R | _X, ".text", PAGE),
            section(_PT_LOAD, _R | _W, ".dynamic", PAGE),
            section(_PT_DYNAMIC, _R | _W, ".dynamic", 8),
            section(_PT_NOTE, _R, ".note", 4),
            (_PT_STACK, _R | _W, 0, 0, 0, 0),
        ]


def refused(why: str) -> BackendCompileError:
    """The error for an object that needs a real linker."""
    return BackendCompileError(
        f"LLVM's object cannot be made loadable: {why}",
        hint="this is a defect of cubepy; please report it with the kernel",
    )
