"""Scalar instructions: branches, loads of arguments, numbers of a wave, masks of its lanes."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np

from tests.backends.hip.emulator import numbers
from tests.backends.hip.emulator.meaning import scalar_table as table
from tests.backends.hip.emulator.meaning import vector_table
from tests.backends.hip.emulator.meaning.scalar_table import signed
from tests.backends.hip.emulator.operands import (
    M32,
    M64,
    TYPES,
    U32,
    Operand,
    offset_of,
    operand,
    split,
)
from tests.backends.hip.emulator.program import Program, Step
from tests.backends.hip.emulator.registers import scalar_reader, scalar_writer
from tests.backends.hip.emulator.wave import Wave

BRANCHES: dict[str, Any] = {
    "s_branch": lambda w: True,
    "s_cbranch_scc0": lambda w: not w.scc,
    "s_cbranch_scc1": lambda w: w.scc,
    "s_cbranch_execz": lambda w: w.running == 0,
    "s_cbranch_execnz": lambda w: w.running != 0,
    "s_cbranch_vccz": lambda w: not w.vcc,
    "s_cbranch_vccnz": lambda w: w.vcc,
}
LOADED = {
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "dwordx8": 32, "dwordx16": 64,
    "b32": 4, "b64": 8, "b96": 12, "b128": 16, "b256": 32, "b512": 64, "u8": 1, "i8": 1, "u16": 2,
    "i16": 2,
}  # fmt: skip


def scalar(program: Program, name: str, text: str) -> Step | None:
    """The meaning of an instruction that begins with s_, or None."""
    if name in BRANCHES:
        return _branch(program.labels[text], BRANCHES[name])
    texts, modifiers = split(text)
    ops = [operand(t) for t in texts]
    if name.startswith("s_load_") and name[7:] in LOADED:
        return _load(ops, LOADED[name[7:]], name[7] == "i", offset_of(modifiers), f"{name} {text}")
    if name == "s_getpc_b64":  # addresses of data are whole ones here, not distances
        return lambda w: w.put_scalar(ops[0], 0, 2)
    if name == "s_setpc_b64":
        return lambda w: w.scalar(ops[0], 2)
    for pattern, function in _FORMS:
        if found := re.fullmatch(pattern, name):
            return function(ops, *found.groups())
    return _of_numbers(name, ops) if name in table.TABLE else None


def _branch(target: int, taken: Any) -> Step:
    return lambda w: target if taken(w) else None


def _load(ops: list[Operand], size: int, sign: bool, offset: int, line: str) -> Step:
    words = max(1, size // 4)
    base = scalar_reader(ops[1], 2)

    def load(w: Wave) -> None:
        at = base(w) + (w.scalar(ops[2], 1) if len(ops) > 2 else 0) + offset
        if not w.gpu.memory.whole(at, at + size):
            w.gpu.memory.check(np.array([at], np.uint64), size, line)
        value = int.from_bytes(ctypes.string_at(at, size), "little", signed=sign)
        w.put_scalar(ops[0], value & ((1 << 32 * words) - 1), words)

    return load


def _of_numbers(name: str, ops: list[Operand]) -> Step:
    """The last number of a name is the width of the first operand, and of the result unless that
    counts bits.
    """
    function, counts = table.TABLE[name], re.search(r"_i32_[bu](?:32|64)$", name) is not None
    wide = int(re.findall(r"[biu](\d+)", name)[-1]) // 32
    first = 1 if name.startswith("s_bfm") else wide
    second = 1 if re.match(r"s_(lsh[lr]|ashr|bfe|bfm)_", name) else wide
    result, one = 1 if counts else wide, len(ops) == 2

    a, b = scalar_reader(ops[1], first), (lambda w: 0) if one else scalar_reader(ops[2], second)
    put = scalar_writer(ops[0], result)

    def run(w: Wave) -> None:
        value, scc = function(a(w), b(w), w.scc)
        if scc is not None:
            w.scc = scc
        put(w, value)

    return run


def _compare(ops: list[Operand], short: str, name: str, kind: str) -> Step:
    test, size = table.COMPARISONS[name], 2 if kind == "u64" else 1
    number = signed if kind == "i32" else int
    left, right = scalar_reader(ops[0], size), scalar_reader(ops[1], size)

    def compare(w: Wave) -> None:
        b = right(w)
        b = signed(b & 0xFFFF, 16) & M32 if short and kind == "i32" else b
        w.scc = int(test(number(left(w)), number(b)))

    return compare


def _float(w: Wave, o: Operand, kind: str) -> np.ndarray:
    """A scalar operand as an array of one float."""
    if o.kind == "k" and kind == "f16" and isinstance(o.value, float):
        return np.array([o.value], np.float16)
    word = np.array([w.scalar(o, 1)], U32)
    return word.view(np.float32) if kind == "f32" else word.astype(np.uint16).view(np.float16)


def _put_float(w: Wave, o: Operand, x: np.ndarray, kind: str) -> None:
    bits = np.uint32 if kind == "f32" else np.uint16
    w.put_scalar(o, int(x.astype(TYPES[kind]).view(bits)[0]), 1)


def _compare_floats(ops: list[Operand], name: str, kind: str) -> Step:
    test = vector_table.COMPARISONS[name]

    def compare(w: Wave) -> None:
        w.scc = int(test(_float(w, ops[0], kind), _float(w, ops[1], kind))[0])

    return compare


def _floats(ops: list[Operand], name: str, kind: str) -> Step:
    if name == "fmac":
        sources = [ops[1], ops[2], ops[0]]
    else:
        sources = ops[1:]
    name = {"fmac": "fma", "fmaak": "fma", "fmamk": "fma"}.get(name, name)
    function = vector_table.TABLE[f"v_{name}_{kind}"][2]
    return lambda w: _put_float(w, ops[0], function(*(_float(w, o, kind) for o in sources)), kind)


def _converted(ops: list[Operand], to: str, source: str) -> Step:
    def convert(w: Wave) -> None:
        x = np.array([w.scalar(ops[1], 1)], U32).view(TYPES[source])
        y = x.astype(np.float32) if to == "f32" else numbers.to_int(x, to)
        w.put_scalar(ops[0], int(y.view(U32)[0]), 1)

    return convert


def _halved(ops: list[Operand], upper: str, to: str, source: str) -> Step:
    def convert(w: Wave) -> None:
        if source == "f32":
            _put_float(w, ops[0], _float(w, ops[1], "f32"), "f16")
        else:
            word = np.array([w.scalar(ops[1], 1) >> (16 if upper else 0) & 0xFFFF], np.uint16)
            _put_float(w, ops[0], word.view(np.float16), "f32")

    return convert


def _bit_test(ops: list[Operand], wanted: str, width: str) -> Step:
    size = int(width) // 32

    def test(w: Wave) -> None:
        bit = w.scalar(ops[0], size) >> (w.scalar(ops[1], 1) & (32 * size - 1)) & 1
        w.scc = int(bit == int(wanted))

    return test


def _bit_set(ops: list[Operand], value: str, width: str) -> Step:
    size = int(width) // 32

    def put(w: Wave) -> None:
        bit, old = 1 << (w.scalar(ops[1], 1) & 32 * size - 1), w.scalar(ops[0], size)
        w.put_scalar(ops[0], old | bit if value == "1" else old & ~bit, size)

    return put


def _mask(ops: list[Operand], name: str, what: str, width: str) -> Step:
    """Change the lanes that run; the result is the mask before or after."""
    size, function = int(width) // 32, table.MASKS[name]
    running = Operand("exec" if size == 2 else "exec_lo")
    before, given = scalar_reader(running, size), scalar_reader(ops[1], size)

    def change(w: Wave) -> None:
        old = before(w)
        new = function(given(w), old) & (M32 if size == 1 else M64)
        w.put_scalar(ops[0], old if what == "save" else new, size)
        w.put_scalar(running, new, size)
        w.scc = int(new != 0)

    return change


def _short(ops: list[Operand], name: str) -> Step:
    """Instructions with a constant of 16 bits, and conditional moves."""
    size = 2 if name.endswith("b64") else 1

    def run(w: Wave) -> None:
        a = w.scalar(ops[1], size)
        if "k_" in name and ops[1].kind == "k":
            a = signed(a & 0xFFFF, 16) & M32
        if name == "movk_i32" or (name.startswith("cmov") and w.scc):
            w.put_scalar(ops[0], a, size)
        elif name.startswith("addk"):
            value, w.scc = table.TABLE["s_add_i32"](w.scalar(ops[0], 1), a, 0)  # type: ignore[assignment]
            w.put_scalar(ops[0], value, 1)
        elif name == "mulk_i32":
            w.put_scalar(ops[0], w.scalar(ops[0], 1) * a & M32, 1)

    return run


_FLOAT = (
    "add|sub|mul|min|max|min_num|max_num|fmac|fmaak|fmamk|floor|ceil|trunc|rndne|minimum|maximum"
)
_FORMS: list[tuple[str, Any]] = [
    (r"s_cmp(k?)_(eq|lg|gt|ge|lt|le)_(i32|u32|u64)", _compare),
    (r"s_cmp_(\w+)_(f32|f16)", _compare_floats),
    (rf"s_({_FLOAT})_(f32|f16)", _floats),
    (r"s_cvt_(f32|i32|u32)_(f32|i32|u32)", _converted),
    (r"s_cvt_(hi_)?(f32|f16)_(f32|f16)", _halved),
    (r"s_bitcmp([01])_b(32|64)", _bit_test),
    (r"s_bitset([01])_b(32|64)", _bit_set),
    (r"s_(\w+)_(save|wr)exec_b(32|64)", _mask),
    (r"s_(movk_i32|cmovk_i32|addk_i32|addk_co_i32|mulk_i32|cmov_b32|cmov_b64)", _short),
]
