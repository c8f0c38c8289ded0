"""Loads and stores: of arrays (global_, flat_), of private memory (scratch_, buffer_), of shared
memory (ds_).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.hip.emulator.memory import FIRST, Fault
from tests.backends.hip.emulator.operands import M32, M64, U32, Operand, offset_of, split
from tests.backends.hip.emulator.program import Step
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
    offset, base, words = np.uint64(offset_of(modifiers) & M64), ops[0], 2
    scalar = ops[1] if len(ops) > 1 else None
    if name.startswith("scratch"):
        words = 1
    elif name.startswith("buffer"):  # register, descriptor (of private memory alone), scalar
        scalar, words = ops[2], 1
        base = base if "offen" in modifiers else Operand("off")

    def address(w: Wave) -> np.ndarray:
        at = np.zeros(w.size, np.uint64)
        if scalar is not None and scalar.kind != "off":
            at += np.uint64(w.scalar(scalar, words))
            if base.kind != "off":
                at += w.raw(base, 1).astype(np.uint64)
        elif base.kind != "off":
            at += w.raw(base, words)
        at = at + offset
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


def _places(at: np.ndarray, size: int) -> np.ndarray:
    return at.astype(np.int64)[:, None] + np.arange(size)


def read(w: Wave, space: str, at: np.ndarray, size: int, line: str) -> np.ndarray:
    """The bytes of every lane, [lanes, size]; zeros where a lane is off."""
    out = np.zeros((w.size, size), np.uint8)
    on = w.on
    if not on.any():
        return out
    there = at[on]
    if space == ARRAYS:
        w.gpu.memory.check(there, size, line)
        out[on] = w.gpu.memory.bytes[_places(there - np.uint64(FIRST), size)]
    elif space == SHARED:
        w.cube.shared.check(there, size, line)
        places = _places(there, size)
        w.cube.shared.reads(w.number, places, line)
        out[on] = w.cube.shared.bytes[places]
    else:
        _check_private(w, there, size, line)
        out[on] = w.private[_places(there, size), w.lane[on][:, None]]
    return out


def write(w: Wave, space: str, at: np.ndarray, raw: np.ndarray, line: str) -> None:
    """Write the bytes of the lanes that run."""
    on, size = w.on, raw.shape[1]
    if not on.any():
        return
    there = at[on]
    if space == ARRAYS:
        w.gpu.memory.check(there, size, line)
        w.gpu.memory.bytes[_places(there - np.uint64(FIRST), size)] = raw[on]
    elif space == SHARED:
        w.cube.shared.check(there, size, line)
        places = _places(there, size)
        w.cube.shared.writes(w.number, places, line)
        w.cube.shared.bytes[places] = raw[on]
    else:
        _check_private(w, there, size, line)
        w.private[_places(there, size), w.lane[on][:, None]] = raw[on]


def _check_private(w: Wave, at: np.ndarray, size: int, line: str) -> None:
    if (at + np.uint64(size) > w.private.shape[0]).any():
        raise Fault(f"{line}: beyond the {w.private.shape[0]} bytes of a unit's private memory")


def words_of(raw: np.ndarray, sign: int) -> list[np.ndarray]:
    """Loaded bytes as registers; what is shorter is widened."""
    size = raw.shape[1]
    if size < 4:
        kind = f"{'i' if sign else 'u'}{size}"
        return [np.ascontiguousarray(raw).view(kind)[:, 0].astype(np.int32).view(U32)]
    flat = np.ascontiguousarray(raw).view(U32)
    return [flat[:, k] for k in range(size // 4)]


def put_words(w: Wave, o: Operand, words: list[np.ndarray], part: str) -> None:
    """Loaded registers; `part` names a half that alone is set."""
    for k, word in enumerate(words):
        if part:
            w.put(o.register(k), word.astype(np.uint16), "u16", half=int(part == "d16_hi"))
        else:
            w.put(o.register(k), word, "u32")


def stored(w: Wave, o: Operand, size: int, part: str) -> np.ndarray:
    """The bytes of registers that are stored, [lanes, size]."""
    data = np.ascontiguousarray(w.bank(o)[o.at : o.at + -(-size // 4)].T)
    data = data >> U32(16) if part == "d16_hi" else data
    return np.ascontiguousarray(data).view(np.uint8)[:, :size]


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
    ops, line = [Operand(t) for t in texts], f"{name} {text}"
    size, sign = WIDTH[found[4]]
    part = found[3] or found[5] or ""
    if found[2] == "load":
        data, rest = ops[0], ops[1:]
    elif found[1] == "buffer":
        data, rest = ops[0], ops[1:]
    else:
        data, rest = ops[1], [ops[0], *ops[2:]]
    address = address_of(name, rest, modifiers)

    def load(w: Wave) -> None:
        space, at = space_of(w, name, address(w))
        put_words(w, data, words_of(read(w, space, at, size, line), sign), part)

    def store(w: Wave) -> None:
        space, at = space_of(w, name, address(w))
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
    ops, line = [Operand(t) for t in texts], f"{name} {text}"
    size, sign = WIDTH[found[4]]
    part = found[3] or found[5] or ""
    offsets = [offset_of(modifiers)]
    if re.match(r"ds_[a-z]+2", name):
        step = size * (64 if found[2] else 1)
        offsets = [int(modifiers.get(f"offset{k}", "0"), 0) * step for k in (0, 1)]

    def at(w: Wave, o: Operand, offset: int) -> np.ndarray:
        return w.get(o, "u32").astype(np.uint64) + np.uint64(offset) & np.uint64(M32)

    def load(w: Wave) -> None:
        got: list[Any] = []
        for offset in offsets:
            got += words_of(read(w, SHARED, at(w, ops[1], offset), size, line), sign)
        put_words(w, ops[0], got, part)

    def store(w: Wave) -> None:
        for offset, o in zip(offsets, ops[1:], strict=True):
            write(w, SHARED, at(w, ops[0], offset), stored(w, o, size, part), line)

    return load if found[1] in ("read", "load") else store
