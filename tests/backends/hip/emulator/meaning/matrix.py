"""Matrix units: v_mfma (CDNA) and v_wmma (RDNA), one tile by one, by the layouts of AMD's
documents.
"""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np

from tests.backends.hip.emulator.meaning.vector import SUFFIX
from tests.backends.hip.emulator.memory import Fault
from tests.backends.hip.emulator.operands import U32, listed, operand, split
from tests.backends.hip.emulator.program import Step
from tests.backends.hip.emulator.wave import Wave

_NAME = re.compile(r"v_(mfma|wmma)_(f32|i32)_(\d+)x(\d+)x(\d+)_?(.+?)(?:_1k)?")
_EIGHT = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}


def elements(words: np.ndarray, kind: str) -> np.ndarray | None:
    """Registers of all lanes as elements, [lanes, n], in f64 or i64; None of an unknown kind."""
    data = np.ascontiguousarray(words.T)
    if kind == "f16":
        return data.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return (data.view(np.uint16).astype(U32) << U32(16)).view(np.float32).astype(np.float64)
    if kind == "f32":
        return data.view(np.float32).astype(np.float64)
    if kind in ("i8", "u8"):
        return data.view(kind.replace("8", "1")).astype(np.int64)
    if kind in _EIGHT:
        return data.view(_EIGHT[kind]).astype(np.float64)
    return None


def matrix(name: str, text: str) -> Step | None:
    """The meaning of an instruction of matrix units, or None."""
    texts, modifiers = split(text)
    ops = [operand(t) for t in texts]
    found = _NAME.fullmatch(SUFFIX.sub("", name))
    if found is None or "b_" in found[6]:
        return None
    unit, out, m, n, k = found[1], found[2], *(int(found[i]) for i in (3, 4, 5))
    kinds = found[6].split("_")
    kinds = kinds if len(kinds) == 2 else [found[6]] * 2
    if kinds[0] == "iu8":  # each operand has signs or not
        kinds = ["i8" if sign else "u8" for sign in listed(modifiers, "neg_lo", [0, 0, 0])[:2]]
        modifiers.pop("neg_lo", None)
    if modifiers or any(elements(np.zeros((1, 1), U32), kind) is None for kind in kinds):
        return None

    rows: dict[tuple[int, bool], np.ndarray] = {}

    def run(w: Wave) -> None:
        if not w.full:
            raise Fault(f"{name} {text}: not all lanes run")
        a, b = (
            elements(w.bank(o)[o.at : o.at + o.size], kind)
            for o, kind in zip(ops[1:3], kinds, strict=True)
        )
        rdna3 = unit == "wmma" and w.gpu.major == 11
        if rdna3:
            if not all(np.array_equal(x[:m], x[m:], equal_nan=True) for x in (a, b)):
                raise Fault(f"{name} {text}: the upper lanes do not repeat the lower ones")
            left, right = a[:m], b[:m].T
        else:
            left, right = _gathered(a, m, k), _gathered(b, n, k).T
        size, c = ops[0].size, ops[3]
        if (w.size, rdna3) not in rows:
            found = [_row(unit, rdna3, m, r, size, w.lane) for r in range(size)]
            rows[w.size, rdna3] = np.stack(found)
        t = np.int32 if out == "i32" else np.float32
        before = w.bank(c)[c.at : c.at + size].view(t) if c.kind in "va" else t(c.value)
        result = ((left @ right)[rows[w.size, rdna3], w.lane % n] + before).astype(t)
        w.bank(ops[0])[ops[0].at : ops[0].at + size] = result.view(U32)

    return run


def _gathered(x: np.ndarray, rows: int, k: int) -> np.ndarray:
    """A factor, [rows, k], of what lanes have: those of a row one behind the other."""
    return x.reshape(-1, rows, x.shape[1]).transpose(1, 0, 2).reshape(rows, k)


def _row(unit: str, rdna3: bool, m: int, register: int, size: int, lane: np.ndarray) -> np.ndarray:
    """The row of the sum that a register holds, in every lane."""
    if rdna3:
        return 2 * register + lane // 16
    if unit == "wmma":
        return size * (lane // 16) + register
    if m == 32:
        return 8 * (register // 4) + 4 * (lane // 32) + register % 4
    return 4 * (lane // 16) + register
