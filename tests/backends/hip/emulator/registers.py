"""How a wave reads and writes its operands: functions that are made once for an operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.backends.hip.emulator.operands import (
    EXEC,
    M32,
    NULL,
    SIZE,
    SPECIAL,
    TYPES,
    U32,
    Operand,
    constant,
)

if TYPE_CHECKING:
    from tests.backends.hip.emulator.wave import Wave

Reader = Callable[["Wave"], np.ndarray]
Writer = Callable[["Wave", Any, np.ndarray], None]
WORDS = [kind for kind, size in SIZE.items() if size == 4]
HALVES = [kind for kind, size in SIZE.items() if size == 2]
VIEW = {key: k for k, key in enumerate((b, kind) for b in "va" for kind in (*WORDS, *HALVES))}
"""Where a wave keeps its registers, `views`, as numbers of a kind: one row for a register, of a lane
each, or of two halves of a lane.
"""
REMEMBERED = 4096
_spread: dict[tuple[str, int], dict[int, np.ndarray]] = {}


def views_of(banks: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """The vector registers and the accumulators, as numbers of every kind."""
    return [bank.view(TYPES[kind]) for bank in banks for kind in (*WORDS, *HALVES)]


def spread(word: int, kind: str, lanes: int) -> np.ndarray:
    """The bits of a number in every lane; not to be written to."""
    known = _spread.setdefault((kind, lanes), {})
    found = known.get(word)
    if found is None:
        if len(known) >= REMEMBERED:
            known.clear()
        found = np.full(lanes, word, f"u{SIZE[kind]}").view(TYPES[kind])
        found.flags.writeable = False
        known[word] = found
    return found


def reader(o: Operand, kind: str, half: int = 0) -> Reader:
    """What reads an operand in every lane, as numbers of a kind; `half`: the upper one of 16 bits.

    What it gives may be the register itself: later writes change it.
    """
    plain = _plain(o, kind, int(bool(half or o.half)))
    if o.mag and o.neg:
        return lambda w: -np.abs(plain(w))
    if o.mag:
        return lambda w: np.abs(plain(w))
    return (lambda w: -plain(w)) if o.neg else plain


def _plain(o: Operand, kind: str, upper: int) -> Reader:
    size, at, t = SIZE[kind], o.at, TYPES[kind]
    if o.kind == "k":
        filled: dict[int, np.ndarray] = {}

        def known(w: Wave) -> np.ndarray:
            out = filled.get(w.size)
            if out is None:
                out = filled[w.size] = np.full(w.size, constant(o.value, kind), t)
                out.flags.writeable = False
            return out

        return known
    if o.kind not in "va":
        words, shift, mask = max(1, size // 4), 16 * upper, (1 << 8 * size) - 1
        shift = shift if size == 2 else 0
        return lambda w: spread(w.scalar(o, words) >> shift & mask, kind, w.size)
    if size == 8:
        pairs = VIEW[o.kind, "u32"]
        return lambda w: w.views[pairs][at : at + 2].T.copy().view(t)[:, 0]
    view = VIEW[o.kind, kind]
    if size == 2:
        return lambda w: w.views[view][at, upper::2]
    return lambda w: w.views[view][at]


def writer(o: Operand, kind: str, half: int | None = None, clear: bool = False) -> Writer:
    """What sets a vector register in the lanes of a mask.

    `half`: 16 bits go to the upper half; `clear`: else the upper half becomes zero.
    """
    size, at = SIZE[kind], o.at
    if size == 8:
        pairs, t = VIEW[o.kind, "u32"], TYPES[kind]

        def put_pair(w: Wave, y: Any, on: np.ndarray) -> None:
            words = np.ascontiguousarray(y, t).view(U32).reshape(-1, 2).T
            if on is w.on and w.full:
                w.views[pairs][at : at + 2] = words
            else:
                np.copyto(w.views[pairs][at : at + 2], words, where=on)

        return put_pair
    if size == 1:
        raise NotImplementedError(f"a register of {kind}")
    view = VIEW[o.kind, kind]
    if size == 4:

        def put(w: Wave, y: Any, on: np.ndarray) -> None:
            if on is w.on and w.full:
                w.views[view][at] = y
            else:
                np.copyto(w.views[view][at], y, "unsafe", on)

        return put
    upper = int(bool(half or o.half))

    def put_half(w: Wave, y: Any, on: np.ndarray) -> None:
        row = w.views[view][at]
        np.copyto(row[upper::2], y, "unsafe", on)
        if clear and not upper:
            np.copyto(row[1::2], 0, "unsafe", on)

    return put_half


def scalar_reader(o: Operand, size: int) -> Callable[[Wave], int]:
    """What reads a scalar operand of so many words (0: as many as it has)."""
    at, size = o.at, size or o.size
    if o.kind == "s" and o.at not in SPECIAL:
        if size == 1:
            return lambda w: w.s[at]
        if size == 2:
            return lambda w: w.s[at] | w.s[at + 1] << 32
    return lambda w: w.scalar(o, size)


def scalar_writer(o: Operand, size: int) -> Callable[[Wave, int], None]:
    """What sets a scalar register of so many words (0: as many as it has)."""
    at, size = o.at, size or o.size
    if o.kind != "s" or at == NULL or (at <= EXEC + 1 and at + size > EXEC) or size > 2:
        return lambda w, value: w.put_scalar(o, value, size)
    if size == 1:

        def put(w: Wave, value: int) -> None:
            w.s[at] = value & M32

        return put

    def put_pair(w: Wave, value: int) -> None:
        w.s[at], w.s[at + 1] = value & M32, value >> 32 & M32

    return put_pair
