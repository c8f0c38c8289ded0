"""One suite, run on every backend: a new backend is one more name in this list."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["cpu", "python"])
def device(request: pytest.FixtureRequest) -> str:
    """The backend that a test launches on."""
    return str(request.param)
