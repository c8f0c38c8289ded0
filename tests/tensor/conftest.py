"""Memory of programs holds garbage before it is written, so that a test sees what reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy.tensor.program.plans import host


@pytest.fixture(autouse=True)
def garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN in floats, -1 in integers, in the arena and in results."""
    aligned, maker = host.aligned, host.HostProgram.small

    def filled(size: int) -> np.ndarray:
        raw = aligned(size)
        raw[...] = 0xFF
        return raw

    def small(size: int) -> Any:
        make = maker(size)  # large results lie at lines of the cache, and plans rely on it

        def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            made = make(shape, dtype)
            made.reshape(-1).view(np.uint8)[...] = 0xFF
            return made

        return empty

    monkeypatch.setattr(host, "aligned", filled)
    monkeypatch.setattr(host.HostProgram, "small", staticmethod(small))
