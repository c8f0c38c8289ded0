"""How much machine code the tests compile: some of it, or with `CUBEPY_TEST_ARCHITECTURES=all`
everything.

Compiling takes seconds a kernel and no GPU. By default one architecture and the cases most likely
to fail are compiled.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

THOROUGH = os.environ.get("CUBEPY_TEST_ARCHITECTURES") == "all"
ARCHITECTURES = ("sm_80", "sm_90a") if THOROUGH else ("sm_90a",)


def by_turns(cases: Iterable[T], turn: int, of: int) -> Sequence[T]:
    """All cases, or by default every one of so many, from a turn's own on: others have the rest."""
    known = list(cases)
    return known if THOROUGH else known[turn % of :: of]


def some(cases: Iterable[T], *which: int) -> Sequence[T]:
    """All cases, or by default those at these places."""
    known = list(cases)
    return known if THOROUGH else [known[i] for i in which]
