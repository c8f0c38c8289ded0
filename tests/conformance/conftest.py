"""One suite, run on every backend: a new backend is one more name in this list."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.staging import gpu_missing, staged


@pytest.fixture(params=["cpu", "python", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The backend that a test launches on."""
    name = str(request.param)
    if name == "cuda":
        reason = gpu_missing()
        if reason:
            pytest.skip(reason)
        with staged(monkeypatch):
            yield name
    else:
        yield name
