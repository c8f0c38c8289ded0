"""A pretended GPU, and what tells calls that took the long way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.gpu.fake_driver import FakeDriver
from tests.runtime.replay.gpu_calls import Repetitions, start


@pytest.fixture(params=range(3))
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver, with another order of work each time."""
    yield from start(monkeypatch, request.param)


@pytest.fixture
def repetitions(monkeypatch: pytest.MonkeyPatch) -> Repetitions:
    return Repetitions(monkeypatch)
