"""Tests that need a GPU: `python -m pytest tests/device`. Without one they are skipped, with the
reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault(
    "XLA_PYTHON_CLIENT_PREALLOCATE", "false"
)  # else jax takes most of the GPU's memory

import cubepy as cb
from cubepy.runtime.device import backend_named


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    """The first GPU is the current device."""
    backend = backend_named("cuda")
    if backend.count() == 0:
        pytest.skip(backend.missing())
    with cb.use("cuda"):
        yield
