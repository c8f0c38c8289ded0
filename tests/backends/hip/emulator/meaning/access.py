"""Loads and stores: of arrays (global_, flat_), of private memory (scratch_, buffer_), of shared
memory (ds_).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.hip.emulator.memory import FIRST, Fault, whole_words
from tests.backends.hip.emulator.operands import M32, M64, U32, Operand, offset_of, operand, split
from tests.backends.hip.emulator.program import Step
from tests.backends.hip.emulator.registers import reader, scalar_reader
from tests.backends.hip.emulator.wave import PRIVATE_APERTURE, SHARED_APERTURE, Wave

WIDTH = {
    "ubyte": (1, 0), "sbyte": (1, 1), "ushort": (2, 0), "sshort": (2, 1), "dword": (4, 0),
    "dwordx2": (8, 0), "dwordx3": (12, 0), "dwordx4": (16, 0), "u8": (1, 0), "i8": (1, 1),
    "u16": (2, 0), "i16": (2, 1), "b8": (1, 0), "b16": (2, 0), "b32": (4, 0), "b64": (8, 0),
    "b96": (12, 0), "b128": (16, 0), "byte": (1, 0), "short": (2, 0),
}  # fmt: skip
"""Bytes of an access, and whether what is loaded has a sign."""
ARRAYS, PRIVATE, SHARED = "arrays", "private", "shared"
Address = Callable[[Wave], np.ndarray]


def address_of(name: str, ops: list[Operand], modifiers: dict[str, str]) -> Address:
    """The address that every lane goes to, by the operands behind the data: a vector register, and
    a scalar one or "off".
    """
    offset, base, words = offset_of(modifiers), ops[0], 2
    scalar = ops[1] if len(ops) > 1 else None
    if name.startswith("scratch"):
        words = 1
    elif name.startswith("buffer"):  # register, descriptor (of private memory alone), scalar
        scalar, words = ops[2], 1
        base = base if "offen" in modifiers else operand("off")
    given = scalar is not None and scalar.kind != "off"
    from_scalar = scalar_reader(scalar, words) if given and scalar is not None else lambda w: 0
    wide = not given and words == 2
    lanes = None if base.kind == "off" else reader(base, "u64" if wide else "u32")

    def address(w: Wave) -> np.ndarray:
        start = np.uint64((from_scalar(w) + offset) & M64)
        if lanes is None:
            at = np.full(w.size, start)
        else:
            x = lanes(w)
            at = (x if wide else x.astype(np.uint64)) + start
        return at & np.uint64(M32) if words == 1 else at

    return address


def space_of(w: Wave, name: str, at: np.ndarray) -> tuple[str, np.ndarray]:
    """Which memory addresses mean, and where in it; flat ones say it by their high words."""
    if name.startswith(("scratch", "buffer")):
        return PRIVATE, at
    if name.startswith("flat") and w.on.any():
        high = (at >> np.uint64(32))[w.on]
        for aperture, space in ((SHARED_APERTURE, SHARED), (PRIVATE_APERTURE, PRIVATE)):
            if (high == aperture).all():
                return space, at & np.uint64(M32)
    return ARRAYS, at


def _where(w: Wave, space: str, at: np.ndarray, size: int, line: str) -> Any:
    """The memory that the lanes that run go to, and where in it, after all checks."""
    there = at if w.full else at[w.on]
    if space == ARRAYS:
        w.gpu.memory.check(there, size, line)
        return w.gpu.memory, (there - np.uint64(FIRST)).view(np.int64)
    if space == SHARED:
        w.cube.shared.check(there, size, line)
        return w.cube.shared, there.view(np.int64)
    _check_private(w, there, size, line)
    return None, there.view(np.int64)


def read(w: Wave, space: str, at: np.ndarray, size: int, line: str) -> np.ndarray:
    """The bytes that every lane that runs finds, [lanes, size]."""
    if not w.running:
        return np.zeros((0, size), np.uint8)
    memory, there = _where(w, space, at, size, line)
    if memory is None:
        return w.private[w.lane[w.on][:, None], there[:, None] + np.arange(size)]
    if space == SHARED:
        memory.reads(w.number, there, size, line)
    return got(memory.bytes, there, size)


def write(w: Wave, space: str, at: np.ndarray, raw: np.ndarray, line: str) -> None:
    """Write the bytes of the lanes that run, [lanes, size]."""
    if not w.running:
        return
    size = raw.shape[1]
    memory, there = _where(w, space, at, size, line)
    if memory is None:
        w.private[w.lane[w.on][:, None], there[:, None] + np.arange(size)] = raw
        return
    if space == SHARED:
        memory.writes(w.number, there, size, line)
    first = int(there[0])
    if _in_a_row(there, size):
        memory.bytes[first : first + raw.size] = raw.ravel()
    elif size >= 4 and whole_words(there):
        words = memory.bytes[: memory.bytes.size & ~3].view(U32)
        columns = np.ascontiguousarray(raw).view(U32)
        for k in range(size // 4):
            words[(there >> 2) + k] = columns[:, k]
    else:
        memory.bytes[there[:, None] + np.arange(size)] = raw


def _in_a_row(there: np.ndarray, size: int) -> bool:
    """Whether lanes touch one place behind the other."""
    n = len(there)
    if int(there[-1]) - int(there[0]) != (n - 1) * size:
        return False
    return n <= 2 or int(np.count_nonzero(there[1:] - there[:-1] == size)) == n - 1


def got(memory: np.ndarray, there: np.ndarray, size: int) -> np.ndarray:
    """The bytes at places of a memory, [places, size]."""
    first = int(there[0])
    if _in_a_row(there, size):
        return memory[first : first + len(there) * size].reshape(-1, size).copy()
    if size >= 4 and whole_words(there):
        words = memory[: memory.size & ~3].view(U32)
        return words[(there >> 2)[:, None] + np.arange(size // 4)].view(np.uint8)
    return memory[there[:, None] + np.arange(size)]


def _check_private(w: Wave, at: np.ndarray, size: int, line: str) -> None:
    if (at + np.uint64(size) > w.private.shape[1]).any():
        raise Fault(f"{line}: beyond the {w.private.shape[1]} bytes of a unit's private memory")


def words_of(raw: np.ndarray, sign: int) -> np.ndarray:
    """Loaded bytes as registers, [registers, lanes]; what is shorter is widened."""
    size = raw.shape[1]
    if size < 4:
        kind = f"{'i' if sign else 'u'}{size}"
        return np.ascontiguousarray(raw).view(kind).T.astype(np.int32).view(U32)
    return np.ascontiguousarray(raw).view(U32).T


def put_words(w: Wave, o: Operand, words: np.ndarray, part: str) -> None:
    """Set registers to what lanes that run have loaded; `part` names a half that alone is set."""
    bank = w.bank(o)
    for k, word in enumerate(words):
        row = bank[o.at + k]
        if part:
            row = row.view(np.uint16)[int(part == "d16_hi") :: 2]
        if w.full:
            row[:] = word
        else:
            row[w.on] = word


def stored(w: Wave, o: Operand, size: int, part: str) -> np.ndarray:
    """The bytes of registers that lanes that run store, [lanes, size]."""
    data = w.bank(o)[o.at : o.at + -(-size // 4)]
    data = np.ascontiguousarray((data if w.full else data[:, w.on]).T)
    data = data >> U32(16) if part == "d16_hi" else data
    return data.view(np.uint8)[:, :size]


_NAME = re.compile(
    r"(global|flat|scratch|buffer)_(load|store)_(?:(d16_hi|d16)_)?(\w+?)(?:_(d16_hi|d16))?"
)


def access(name: str, text: str) -> Step | None:
    """The meaning of a load or store of arrays or private memory, or None."""
    found = _NAME.fullmatch(name)
    if found is None or found[4] not in WIDTH:
        return None
    texts, modifiers = split(text)
    if "idxen" in modifiers or "lds" in modifiers:
        return None
    ops, line = [operand(t) for t in texts], f"{name} {text}"
    size, sign = WIDTH[found[4]]
    part = found[3] or found[5] or ""
    if found[2] == "load":
        data, rest = ops[0], ops[1:]
    elif found[1] == "buffer":
        data, rest = ops[0], ops[1:]
    else:
        data, rest = ops[1], [ops[0], *ops[2:]]
    address = address_of(name, rest, modifiers)

    fixed = ARRAYS if name.startswith("global") else ""

    def load(w: Wave) -> None:
        space, at = (fixed, address(w)) if fixed else space_of(w, name, address(w))
        put_words(w, data, words_of(read(w, space, at, size, line), sign), part)

    def store(w: Wave) -> None:
        space, at = (fixed, address(w)) if fixed else space_of(w, name, address(w))
        write(w, space, at, stored(w, data, size, part), line)

    return load if found[2] == "load" else store


_SHARED_NAME = re.compile(
    r"ds_(read|load|write|store)(?:2(st64)?)?(?:_(d16_hi|d16))?_(\w+?)(?:_(d16_hi|d16))?"
)


def shared_access(name: str, text: str) -> Step | None:
    """The meaning of a load or store of shared memory, one or two places at once, or None."""
    name = name.replace("_2addr_stride64", "2st64").replace("_2addr", "2")
    found = _SHARED_NAME.fullmatch(name)
    if found is None or found[4] not in WIDTH:
        return None
    texts, modifiers = split(text)
    ops, line = [operand(t) for t in texts], f"{name} {text}"
    size, sign = WIDTH[found[4]]
    part = found[3] or found[5] or ""
    offsets = [offset_of(modifiers)]
    if re.match(r"ds_[a-z]+2", name):
        step = size * (64 if found[2] else 1)
        offsets = [int(modifiers.get(f"offset{k}", "0"), 0) * step for k in (0, 1)]

    def at(w: Wave, o: Operand, offset: int) -> np.ndarray:
        return w.get(o, "u32").astype(np.uint64) + np.uint64(offset) & np.uint64(M32)

    def load(w: Wave) -> None:
        words = [
            words_of(read(w, SHARED, at(w, ops[1], offset), size, line), sign) for offset in offsets
        ]
        put_words(w, ops[0], np.concatenate(words) if len(words) > 1 else words[0], part)

    def store(w: Wave) -> None:
        for offset, o in zip(offsets, ops[1:], strict=True):
            write(w, SHARED, at(w, ops[0], offset), stored(w, o, size, part), line)

    return load if found[1] in ("read", "load") else store
