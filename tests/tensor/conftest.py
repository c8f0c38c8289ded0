"""Memory of programs holds garbage before it is written, so that a test sees what reads it; random
numbers are a test's own, whatever ran before.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from cubepy.tensor.program.plans import host


@pytest.fixture(autouse=True)
def garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN in floats, -1 in integers, in the arena and in results."""
    aligned = host.aligned

    def filled(size: int) -> np.ndarray:
        raw = aligned(size)
        raw[...] = 0xFF
        return raw

    def small(size: int) -> Any:
        def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            made = np.empty(shape, dtype)
            made.reshape(-1).view(np.uint8)[...] = 0xFF
            return made

        return empty

    monkeypatch.setattr(host, "aligned", filled)
    monkeypatch.setattr(host.HostProgram, "small", staticmethod(small))


@pytest.fixture(autouse=True)
def draws(request: pytest.FixtureRequest) -> None:
    """The generator of a module begins anew for each test, from the test's name."""
    if isinstance(getattr(request.module, "RNG", None), np.random.Generator):
        seed = zlib.crc32(request.node.nodeid.encode())
        request.module.RNG = np.random.default_rng(seed)
