"""A pretended GPU, and what tells calls that took the long way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.gpu.fake_driver import FakeDriver, orders
from tests.runtime.replay.gpu_calls import Repetitions, start


@pytest.fixture(**orders(3, 2))
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver, with another order of work each time."""
    vendor, seed = request.param
    yield from start(monkeypatch, seed, vendor=vendor)


@pytest.fixture
def repetitions(monkeypatch: pytest.MonkeyPatch) -> Repetitions:
    return Repetitions(monkeypatch)
