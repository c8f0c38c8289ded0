"""One suite, run on every backend: a new backend is one more name in this list."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cubepy.runtime.device import GPUS
from tests.backends.hip.emulator.device import emulated
from tests.backends.hip.emulator.driver import WANTED, emulated_hip
from tests.staging import gpu_missing, staged
from tests.turns import DAYS

NAMED = os.environ.get("CUBEPY_TEST_PROCESSORS", "")
EMULATED = tuple((NAMED or "gfx942 gfx1100").split())
"""AMD's processors on which the emulator runs the suite: unless they are named, each case
on each of them once in four days.
"""


def pytest_itemcollected(item: pytest.Item) -> None:
    known = getattr(item, "callspec", None)
    if known is not None and known.params.get("device") in EMULATED:
        item.add_marker(pytest.mark.turns(1 if NAMED else DAYS))


@pytest.fixture(params=["cpu", "python", "cuda", "hip", *EMULATED])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The backend that a test launches on."""
    name = str(request.param)
    if name in EMULATED:
        with emulated(name), staged(monkeypatch):
            yield name
    elif name == "hip" and WANTED:  # on the emulator's driver
        with emulated_hip(monkeypatch, WANTED, "cpu") as fake, staged(monkeypatch):
            yield fake.named
    elif name in GPUS:
        reason = gpu_missing(name)
        if reason:
            pytest.skip(reason)
        with staged(monkeypatch):
            yield name
    else:
        yield name
