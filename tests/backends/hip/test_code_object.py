"""Code objects as a loader sees them: segments, symbols, the way from a descriptor to its code."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy.backends.gpu.codegen.elf import sections
from cubepy.backends.gpu.codegen.emission import object_of
from cubepy.backends.gpu.codegen.shared_library import PAGE
from cubepy.backends.hip.codegen import code_object as co
from cubepy.backends.hip.codegen.architecture import KNOWN, Architecture
from cubepy.backends.hip.codegen.machine import machine, optimised
from cubepy.backends.hip.offline import compile_for

X = np.zeros(64, np.float32)


@cb.kernel
def doubled(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = 2 * x[i]


@cb.kernel
def sines(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = cb.sin(x[i])


def memory_of(image: bytes) -> bytes:
    """What a loader makes of the segments."""
    start = struct.unpack_from("<Q", image, 32)[0]
    size, count = struct.unpack_from("<HH", image, 54)
    out = bytearray()
    for k in range(count):
        kind, _, offset, address, _, length, _, align = struct.unpack_from(
            "<IIQQQQQQ", image, start + k * size
        )
        if kind != 1:
            continue
        assert (address - offset) % align == 0 and align == PAGE
        assert len(out) <= address, "segments overlap"
        out += bytes(address - len(out)) + image[offset : offset + length]
    return bytes(out)


def dynamic_symbols(image: bytes, memory: bytes) -> dict[str, int]:
    """Names and addresses, found as a loader finds them: by the dynamic section."""
    table = sections(image)[".dynamic"].data
    entries = dict(struct.iter_unpack("<qQ", table))
    names, first = entries[5], entries[6]
    buckets, chain = struct.unpack_from("<II", memory, entries[4])
    assert buckets == 1
    found, at = {}, struct.unpack_from("<I", memory, entries[4] + 8)[0]
    while at:
        name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", memory, first + 24 * at)
        text = memory[names + name : memory.index(b"\0", names + name)].decode()
        found[text] = value
        at = struct.unpack_from("<I", memory, entries[4] + 12 + 4 * at)[0]
    assert len(found) == chain - 1
    return found


@pytest.mark.parametrize("kernel", [doubled, sines])
@pytest.mark.parametrize("name", KNOWN)
def test_a_descriptor_leads_to_its_code(name: str, kernel: cb.Kernel) -> None:
    code = compile_for(name, kernel, 64, X, X)
    image, memory = code.binary, memory_of(code.binary)
    assert image[:4] == b"\x7fELF" and struct.unpack_from("<HH", image, 16) == (3, 224)
    symbols = dynamic_symbols(image, memory)
    assert set(symbols) == {code.symbol, f"{code.symbol}.kd"}
    at = symbols[f"{code.symbol}.kd"]
    assert at % 64 == 0
    distance = struct.unpack_from("<q", memory, at + 16)[0]
    assert at + distance == symbols[code.symbol] and symbols[code.symbol] % 256 == 0


@pytest.mark.parametrize("name", KNOWN)
def test_code_notes_and_flags_are_those_of_the_object(name: str) -> None:
    code = compile_for(name, doubled, 64, X, X)
    before = object_of(code.job.module, machine(Architecture(name)))
    old, new = sections(before), sections(code.binary)
    for section in (".text", ".note"):
        assert new[section].data == old[section].data
    assert code.binary[48:52] == before[48:52]  # the processor
    assert code.symbol.encode() in new[".note"].data


def test_constants_are_found_from_the_code() -> None:
    """The table of 2 / pi lies in the read-only segment, at the distance that the code adds."""
    code = compile_for("gfx942", sines, 64, X, X)
    before = sections(object_of(code.job.module, machine(Architecture("gfx942"))))
    assert ".rela.text" in before
    memory = memory_of(code.binary)
    table = struct.pack("<2Q", 0, 0xA2F9836E4E441529)
    assert memory.count(table) == 1
    here, text = memory.index(table), memory.index(sections(code.binary)[".text"].data)
    low = [r for r in struct.iter_unpack("<QQq", before[".rela.text"].data) if r[1] & 0xFF == 10]
    offset = low[0][0]
    found = struct.unpack_from("<i", memory, text + offset)[0]
    assert text + offset + found - 4 == here  # the code adds it to the address 4 bytes before


def test_objects_that_need_a_linker_are_refused() -> None:
    text = (
        "@away = external addrspace(1) global i32\n"
        "define amdgpu_kernel void @k(ptr addrspace(1) %p) {\n"
        "  %x = load i32, ptr addrspace(1) @away\n  store i32 %x, ptr addrspace(1) %p\n"
        "  ret void\n}\n"
    )
    a = Architecture("gfx942")
    with pytest.raises(errors.BackendCompileError, match="away"):
        co.loadable(object_of(optimised(text, a), machine(a)))
