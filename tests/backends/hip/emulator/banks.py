"""How an emulated kernel of an AMD GPU meets the banks of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.backends.hip.emulator.memory import Shared


def met_banks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets, of every access from now on, how often it meets the same bank.

    128 bytes of neighbouring lanes at a time, from 32 banks of four bytes; but CDNA reads 16 bytes
    of lanes 0 to 3 together with those of lanes 20 to 23, and so on (AMD, "Avoiding LDS bank
    conflicts on AMD GPUs using CK-Tile framework").
    """
    met: list[int] = []
    fours = np.arange(32).reshape(8, 4)
    mixed = fours[[0, 5, 1, 4, 2, 7, 3, 6]].ravel()
    plain, of_reads = np.arange(64), np.concatenate([mixed, 32 + mixed])

    def watched(known: Any) -> Any:
        def look(self: Any, wave: int, at: np.ndarray, size: int, what: str) -> None:
            lanes, places = max(1, 128 // size), at[:, None] + np.arange(size)
            order = of_reads if what.startswith("ds_read_b128") else plain
            for first in range(0, len(places), lanes):
                words = np.unique(places[order[first : first + lanes]] // 4)
                met.append(int(np.bincount(words % 32).max()))
            known(self, wave, at, size, what)

        return look

    for method in ("reads", "writes"):
        monkeypatch.setattr(Shared, method, watched(getattr(Shared, method)))
    return met
