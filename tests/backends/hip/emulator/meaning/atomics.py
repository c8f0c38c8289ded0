"""Atomic updates of arrays and of shared memory, lane by lane."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.backends.hip.emulator.meaning.access import ARRAYS, SHARED, address_of, space_of
from tests.backends.hip.emulator.memory import FIRST, Fault
from tests.backends.hip.emulator.operands import M32, SIZE, TYPES, offset_of, operand, split
from tests.backends.hip.emulator.program import Step
from tests.backends.hip.emulator.wave import Wave

UPDATE: dict[str, Any] = {
    "add": lambda old, v: old + v,
    "sub": lambda old, v: old - v,
    "rsub": lambda old, v: v - old,
    "and": lambda old, v: old & v,
    "or": lambda old, v: old | v,
    "xor": lambda old, v: old ^ v,
    "min": min,
    "max": max,
    "swap": lambda old, v: v,
    "inc": lambda old, v: type(old)(0) if old >= v else old + type(old)(1),
}
_SAME = {
    "cmpst": "cmpswap",
    "cmpstore": "cmpswap",
    "wrxchg": "swap",
    "storexchg": "swap",
    "min_num": "min",
    "max_num": "max",
}


def operation(name: str) -> tuple[str, str]:
    """What an atomic does, and to which kind of number."""
    name = re.sub(r"^(global|flat|ds)_(atomic_)?", "", name).replace("_rtn", "")
    wide = name.endswith(("_x2", "64"))
    name = name.removesuffix("_x2")
    found = re.fullmatch(r"(\w+?)_(u32|i32|u64|i64|b32|b64|f32|f64)", name)
    what, kind = (found[1], found[2]) if found else (name, "u64" if wide else "u32")
    if what in ("smin", "smax"):
        what, kind = what[1:], kind.replace("u", "i")
    what = what[1:] if what in ("umin", "umax") else what
    return _SAME.get(what, what), kind.replace("b", "u")


def _updated(
    w: Wave,
    memory: np.ndarray,
    at: np.ndarray,
    what: str,
    kind: str,
    data: np.ndarray,
    expected: np.ndarray | None,
) -> np.ndarray:
    """Update memory by one lane after the other; what was there before each."""
    size, t = SIZE[kind], TYPES[kind]
    old = np.zeros(w.size, t)
    for lane in np.flatnonzero(w.on):
        k = int(at[lane])
        if k % size:
            raise Fault(f"an atomic at {k:#x}, which is not a multiple of {size}")
        cell = memory[k : k + size].view(t)
        old[lane] = cell[0]
        if expected is None:
            cell[0] = UPDATE[what](cell[0], data[lane])
        elif cell[0] == expected[lane]:
            cell[0] = data[lane]
    return old


def global_atomic(name: str, text: str) -> Step | None:
    """An atomic of arrays (or of shared memory by a flat address)."""
    texts, modifiers = split(text)
    ops, line = [operand(t) for t in texts], f"{name} {text}"
    flat = name.startswith("flat")
    what, kind = operation(name)
    if what not in UPDATE and what != "cmpswap":
        return None
    result = ops.pop(0) if len(ops) == (3 if flat else 4) else None
    address, data, size = address_of(name, [ops[0], *ops[2:]], modifiers), ops[1], SIZE[kind]

    def run(w: Wave) -> None:
        space, at = space_of(w, name, address(w))
        value, expected = w.get(data.register(0, 2), kind), None
        if what == "cmpswap":
            expected = w.get(data.register(size // 4, 2), kind)
        if space == SHARED:
            w.cube.shared.check(at[w.on], size, line)
            old = _updated(w, w.cube.shared.bytes, at, what, kind, value, expected)
        elif space == ARRAYS:
            w.gpu.memory.check(at[w.on], size, line)
            at = at - np.uint64(FIRST)  # a multiple of every size
            old = _updated(w, w.gpu.memory.bytes, at, what, kind, value, expected)
        else:
            raise Fault(f"{line}: an atomic of private memory")
        if result is not None:
            w.put(result, old, kind)

    return run


def shared_atomic(name: str, text: str, major: int) -> Step | None:
    """An atomic of shared memory."""
    texts, modifiers = split(text)
    ops, offset, line = [operand(t) for t in texts], offset_of(modifiers), f"{name} {text}"
    what, kind = operation(name)
    if what not in UPDATE and what != "cmpswap":
        return None
    result = ops.pop(0) if "_rtn" in name else None
    size = SIZE[kind]

    def run(w: Wave) -> None:
        at = w.get(ops[0], "u32").astype(np.uint64) + np.uint64(offset) & np.uint64(M32)
        w.cube.shared.check(at[w.on], size, line)
        value, expected = w.get(ops[1], kind), None
        if what == "cmpswap":
            expected = w.get(ops[2], kind)
            if major == 9:  # CDNA names the expected value first
                value, expected = expected, value
        old = _updated(w, w.cube.shared.bytes, at, what, kind, value, expected)
        if result is not None:
            w.put(result, old, kind)

    return run
