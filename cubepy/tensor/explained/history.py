"""What was traced, and why: the first call of a kind, another kind, or something that changed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cubepy.runtime.stats import counters

KEPT = 64
"""Traces of a function that are remembered."""
SAID = 4
"""Differences that a reason names."""
SHOWN = 40  # characters of an argument


@dataclass
class Traced:
    """One trace of a function.

    Attributes:
        kind: of the arguments, as text.
        why: what was new.
        seconds: what the trace took, compiling included.
        compiled: modules that the compiler translated meanwhile.
        loaded: modules whose machine code came from disk.
    """

    kind: str
    why: str
    seconds: float = 0.0
    compiled: int = 0
    loaded: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.why}; {self.seconds * 1e3:.1f} ms, "
            f"{self.compiled} compiled, {self.loaded} loaded from disk"
        )


class History:
    """The latest traces of a function."""

    def __init__(self) -> None:
        self.traced: deque[Traced] = deque(maxlen=KEPT)
        self.last: Any = None

    @contextmanager
    def trace(self, key: Any, programs: Mapping[Any, Sequence[Any]]) -> Iterator[None]:
        """Keep a trace, which the block does.

        Args:
            key: the kind of the call.
            programs: those that there are, by kind.
        """
        found = Traced(kind_of(key), self.why(key, programs))
        compiled, loaded = counters.compiled, counters.loaded
        counters.traces += 1
        counters.retraces += self.last is not None
        start = time.perf_counter()
        try:
            yield
        finally:
            found.seconds = time.perf_counter() - start
            found.compiled = counters.compiled - compiled
            found.loaded = counters.loaded - loaded
            self.traced.append(found)
            self.last = key

    def why(self, key: Any, programs: Mapping[Any, Sequence[Any]]) -> str:
        """Why a call of a kind has no program."""
        variants = programs.get(key, ())
        if variants:
            changed = variants[0].guards.changes()
            return "retraced, since it changed: " + (_some(changed) or "a setting, or memory")
        if self.last is None:
            return "the first call"
        if self.last == key:
            return "retraced: the trace before gave no program that could be kept"
        return "another kind of call: " + _some(differences(self.last, key))


def _some(parts: Sequence[str]) -> str:
    more = f", {len(parts) - SAID} more" if len(parts) > SAID else ""
    return ", ".join(parts[:SAID]) + more


def differences(one: Any, other: Any) -> list[str]:
    """How two kinds of calls differ, in words."""
    structure, enabled, device, *parts = one
    structure2, enabled2, device2, *parts2 = other
    found = []
    if structure != structure2:
        found.append("another structure of arguments")
    if enabled is not enabled2:
        found.append("gradients are remembered" if enabled2 else "within no_grad")
    if device != device2:
        found.append(f"on {device2} instead of {device}")
    if structure == structure2:
        for n, (a, b) in enumerate(zip(parts, parts2, strict=True)):
            if a != b:
                before, after = shown(a), shown(b)
                if before == after or _of_tensor(a) and _of_tensor(b) and a[3] is not b[3]:
                    after += _unseen(a, b)
                found.append(f"argument {n} is {after} instead of {before}")
    return found


def _unseen(a: Any, b: Any) -> str:
    """What differs of two leaves that read the same."""
    if _of_tensor(a) and _of_tensor(b):
        found = " with other strides" if a[1] != b[1] and a[1][:2] == b[1][:2] else ""
        if a[3] is not b[3]:
            found += " that needs a gradient" if b[3] else " that needs no gradient"
        return found or " of another class"
    return " (another object)"


def _of_tensor(part: Any) -> bool:
    return isinstance(part, tuple) and len(part) == 4 and isinstance(part[1], tuple)


def shown(part: Any) -> str:
    """What a leaf contributes to a kind, as text."""
    if _of_tensor(part):
        return f"{part[1][0]}{list(part[1][1])}"
    if isinstance(part, type):
        return part.__name__
    value = getattr(part, "value", part)
    if isinstance(value, tuple) and len(value) in (2, 3) and isinstance(value[0], type):
        value = value[1]  # of what is exact: the type, and the value
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def kind_of(key: Any) -> str:
    """A kind of calls as text."""
    _, enabled, device, *parts = key
    names = ", ".join(shown(part) for part in parts)
    return f"({names}) on {device}{'' if enabled else ', without gradients'}"
