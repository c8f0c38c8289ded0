"""Packed instructions: two numbers of 16 bits in a register, or two of 32 in a pair."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.backends.hip.emulator import numbers
from tests.backends.hip.emulator.meaning.vector import SUFFIX
from tests.backends.hip.emulator.meaning.vector_table import TABLE
from tests.backends.hip.emulator.operands import TYPES, U32, Operand, listed, operand, split
from tests.backends.hip.emulator.program import Step
from tests.backends.hip.emulator.wave import Wave

_NAME = re.compile(r"v_pk_(\w+)_(f32|f16|u16|i16|b16|b32|bf16)")
_SHORT = {
    "lshlrev": "v_lshlrev_b16",
    "lshrrev": "v_lshrrev_b16",
    "ashrrev": "v_ashrrev_i16",
    "mul_lo": "v_mul_lo_u16",
    "mad": "v_mad_u16",
    "add": "v_add_u16",
    "sub": "v_sub_u16",
}
_WIDE: dict[str, Any] = {
    "fma": numbers.FMA["f32"],
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
}


def packed(name: str, text: str) -> Step | None:
    """The meaning of an instruction that begins with v_pk_, or None."""
    texts, modifiers = split(text)
    ops = [operand(t) for t in texts]
    n = len(ops) - 1
    choice = [listed(modifiers, "op_sel", [0] * n), listed(modifiers, "op_sel_hi", [1] * n)]
    signs = [listed(modifiers, "neg_lo", [0] * n), listed(modifiers, "neg_hi", [0] * n)]
    found = _NAME.fullmatch(SUFFIX.sub("", name))
    if found is None:
        return None
    operation, kind = found.groups()
    if kind == "b32" and operation == "mov":
        return _move(ops, choice[0])
    if kind == "f32" and operation in _WIDE:
        return _wide(_WIDE[operation], ops, choice, signs)
    if kind not in ("f16", "u16", "i16", "b16"):
        return None
    known = TABLE.get(f"v_{operation}_{kind}") or TABLE.get(_SHORT.get(operation, ""))
    return None if known is None else _short(known, ops, choice, signs)


def _word(w: Wave, o: Operand, k: int, kind: str) -> np.ndarray:
    """The lower or upper register of a pair."""
    if o.kind == "k":
        return w.get(o, kind)
    if o.kind == "s":
        return np.full(w.size, w.s[o.at + k], U32).view(TYPES[kind])
    return w.bank(o)[o.at + k].view(TYPES[kind])


def _move(ops: list[Operand], choice: list[int]) -> Step:
    def run(w: Wave) -> None:
        words = [_word(w, o, choice[k], "u32").copy() for k, o in enumerate(ops[1:])]
        for k, word in enumerate(words):
            w.put(ops[0].register(k), word, "u32")

    return run


def _wide(function: Any, ops: list[Operand], choice: Any, signs: Any) -> Step:
    def run(w: Wave) -> None:
        results = []
        for which, sign in zip(choice, signs, strict=True):
            values = [_word(w, o, which[k], "f32") for k, o in enumerate(ops[1:])]
            results.append(function(*(-x if sign[k] else x for k, x in enumerate(values))))
        for k, y in enumerate(results):
            w.put(ops[0].register(k), y, "f32")

    return run


def _half(w: Wave, o: Operand, kind: str, upper: int) -> np.ndarray:
    """Half of a register; of a constant the bits of that half, or the small number itself."""
    if o.kind != "k":
        return w.get(o, kind, upper)
    if isinstance(o.value, int) and not -16 <= o.value <= 64:
        return np.full(w.size, o.value >> 16 * upper & 0xFFFF, np.uint16).view(TYPES[kind])
    return np.zeros(w.size, TYPES[kind]) if upper else w.get(o, kind)


def _short(known: Any, ops: list[Operand], choice: Any, signs: Any) -> Step:
    _, kinds, function = known

    def run(w: Wave) -> None:
        halves = []
        for which, sign in zip(choice, signs, strict=True):
            values = [
                _half(w, o, t, which[k])
                for k, (o, t) in enumerate(zip(ops[1:], kinds, strict=True))
            ]
            y = function(*(-x if sign[k] else x for k, x in enumerate(values)))
            halves.append(np.ascontiguousarray(y).view(np.uint16).astype(U32))
        w.put(ops[0], halves[0] | halves[1] << U32(16), "u32")

    return run
