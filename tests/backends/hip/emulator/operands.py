"""The operands of a line of assembly."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
U32 = np.uint32
TYPES: dict[str, Any] = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64,
}  # fmt: skip
FLOATS = {"f16", "f32", "f64"}
SIZE = {kind: np.dtype(t).itemsize for kind, t in TYPES.items()}

VCC, M0, NULL, EXEC, SCC = 106, 124, 125, 126, 253
VCCZ, EXECZ, SHARED_BASE, PRIVATE_BASE = 251, 252, 235, 237
SPECIAL = frozenset({NULL, SCC, VCCZ, EXECZ, SHARED_BASE, PRIVATE_BASE})
"""Scalar operands that are no registers."""
TRAP = 108
NAMED = {
    "vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1), "m0": (M0, 1), "null": (NULL, 2),
    "exec": (EXEC, 2), "exec_lo": (EXEC, 1), "exec_hi": (EXEC + 1, 1), "scc": (SCC, 1),
    "src_scc": (SCC, 1), "src_vccz": (VCCZ, 1), "src_execz": (EXECZ, 1),
    "src_shared_base": (SHARED_BASE, 2), "src_private_base": (PRIVATE_BASE, 2),
    "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1), "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2),
}  # fmt: skip
"""Scalar registers with names: the first one, and how many."""
_REGISTER = re.compile(r"^(v|s|a|ttmp)(?:(\d+)|\[(\d+):(\d+)\]|\[(\d+)\])(\.l|\.h)?$")
_SYMBOL = re.compile(r"^([\w.$]+)@rel32@(lo|hi)\+\d+$")
_DISTANCE = re.compile(r"^\(([\w.$]+)-[\w.$]+\)(&4294967295|>>32)$")
INVERSE_TWO_PI = 0.15915494


class Operand:
    """A register, a constant, or "off".

    Attributes:
        kind: "v" and "a" are vector registers, "s" scalar ones, "k" a constant, "x" half of the address
            of a symbol or label.
        at, size: the first register, and how many.
        value: of a constant.
        half: whether 16 bits are the upper ones of the register.
        neg, mag, sext: what is done to it first: the sign changed, the sign dropped, widened.
        readers: what reads it, as numbers of a kind.
        parts: registers of it that were asked for.
    """

    __slots__ = ("at", "half", "kind", "mag", "neg", "parts", "readers", "sext", "size", "value")

    def __init__(self, text: str) -> None:
        self.neg = self.mag = self.sext = False
        self.half, self.size, self.at = 0, 1, 0
        self.value: Any = None
        self.readers: dict[tuple[str, int], Any] = {}
        self.parts: dict[tuple[int, int], Operand] = {}
        text = self._modified(text.strip())
        if found := _REGISTER.match(text):
            first = int(next(g for g in (found[2], found[3], found[5]) if g is not None))
            self.size = int(found[4]) - first + 1 if found[4] else 1
            self.kind = "s" if found[1] in ("s", "ttmp") else found[1]
            self.at = first + (TRAP if found[1] == "ttmp" else 0)
            self.half = int(found[6] == ".h")
        elif text in NAMED:
            self.kind, (self.at, self.size) = "s", NAMED[text]
        elif text == "off":
            self.kind = "off"
        elif found := _SYMBOL.match(text):
            self.kind, self.value = "x", (found[1], found[2])
        elif found := _DISTANCE.match(text):
            self.kind, self.value = "x", (found[1], "lo" if found[2][0] == "&" else "hi")
        else:
            self.kind, self.value = "k", number(text)

    def _modified(self, text: str) -> str:
        """Take the modifiers off a text."""
        for word in ("sext", "neg"):
            if text.startswith(f"{word}(") and text.endswith(")"):
                setattr(self, word, True)
                text = text[len(word) + 1 : -1]
        if text.startswith("-") and not re.match(r"^-[\d.]", text):
            self.neg, text = True, text[1:]
        if text.startswith("|"):
            self.mag, text = True, text[1:-1]
        if text.startswith("abs("):
            self.mag, text = True, text[4:-1]
        return text

    def register(self, k: int, size: int = 1) -> Operand:
        """The k-th register of it, without modifiers."""
        known = self.parts.get((k, size))
        if known is not None:
            return known
        out = self.parts[k, size] = Operand.__new__(Operand)
        out.kind, out.at, out.size, out.half = self.kind, self.at + k, size, 0
        out.neg, out.mag, out.sext, out.value, out.readers, out.parts = (
            False,
            False,
            False,
            None,
            {},
            {},
        )
        return out


@lru_cache(1 << 14)
def operand(text: str) -> Operand:
    """The operand of a text: one for all instructions."""
    return Operand(text)


def number(text: str) -> float | int:
    """A constant: with a point or an exponent it is a float."""
    if not text.startswith("0x") and re.search(r"[.]|^-?\d+e", text):
        return float(text)
    return int(re.sub(r"^lit\w*\((.*)\)$", r"\1", text), 0)


def constant(value: float | int, kind: str) -> Any:
    """A constant as an operand of a kind sees it: a float is converted, an integer is bits."""
    t, size = TYPES[kind], SIZE[kind]
    if isinstance(value, float):
        if abs(value - INVERSE_TWO_PI) < 1e-7:
            value = 1 / (2 * np.pi)
        if kind in FLOATS:
            return t(value)
        as_float = {2: np.float16, 4: np.float32, 8: np.float64}[size](value)
        return as_float.view(f"u{size}").astype(t)[()]
    if kind == "f64":  # a 32-bit literal is the high half; small integers are bits
        high = not -16 <= value <= 64 and not value >> 32
        return np.uint64((value & M32) << 32 if high else value & M64).view(np.float64)
    return np.array(value & ((1 << 8 * size) - 1), f"u{size}").view(t)[()]


FLAGS = {"glc", "slc", "dlc", "sc0", "sc1", "nt", "clamp", "gds", "fi", "lds", "offen", "idxen"}


def split(text: str) -> tuple[list[str], dict[str, str]]:
    """Operands by commas that are not inside brackets, and the modifiers behind them."""
    parts, modifiers = _split(text)
    return list(parts), dict(modifiers)


@lru_cache(1 << 14)
def _split(text: str) -> tuple[list[str], dict[str, str]]:
    parts, depth, now = [], 0, ""
    for c in text:
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append(now.strip())
            now = ""
        else:
            now += c
    parts += [now.strip()] if now.strip() else []
    modifiers: dict[str, str] = {}
    out = []
    for part in parts:
        words = re.findall(r"(?:[^\s\[(]|\[[^\]]*\]|\([^)]*\))+", part)
        plain = ":" not in words[0] or re.match(r"^-?\|?(?:v|s|a|ttmp)\[", words[0])
        if plain and words[0] not in FLAGS:
            out.append(words.pop(0))
        for word in words:
            name, _, value = word.partition(":")
            modifiers[name] = value or "1"
    return out, modifiers


def listed(modifiers: dict[str, str], name: str, default: list[int]) -> list[int]:
    """The numbers of a modifier such as `op_sel:[0,1]`."""
    if name not in modifiers:
        return default
    return [int(x) for x in modifiers[name].strip("[]").split(",") if x]


def offset_of(modifiers: dict[str, str]) -> int:
    """The bytes that are added to an address."""
    return int(modifiers.get("offset", "0"), 0)
