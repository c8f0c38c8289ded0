"""The library's tests on a GPU: `CUBEPY_TEST_DEVICE=cuda python -m pytest tests/kernels`; gfx942 and
other processors of AMD's are emulated, as far as that ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest

import cubepy as cb
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.kernels.pooling.routines import MAX_POOL, MAX_POOL_INPUT
from cubepy.kernels.windows.banded_map import BANDED
from cubepy.runtime.device import GPUS
from tests.backends.hip.emulator.device import emulated
from tests.backends.hip.emulator.gpu import TooLong
from tests.pretend import NAME, pretend
from tests.properties import choose_as_on
from tests.staging import WHERE, gpu_missing, move_library, staged

if WHERE:
    move_library()
    collect_ignore = [
        "entry/test_device_arrays.py",
        "entry/test_masked_arrays.py",
        "test_thread_counts.py",
        "attention/test_cached.py",
        "attention/test_gradients.py",
    ]  # they choose their own devices, or are about NumPy's arrays
    collect_ignore_glob = ["*/test_tune.py", "*emulated.py", "*offline.py"]  # so do these


LONGEST = int(os.environ.get("CUBEPY_TEST_LONGEST", "1000000"))
"""Instructions of waves that the emulator executes for a test, at most: one with more is skipped as
too long, and listed.
"""
TOO_LONG = f"too long for the emulator, more than {LONGEST:,} instructions"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test that is too long for the emulator has neither passed nor failed."""
    try:
        return (yield)
    except TooLong:
        pytest.skip(TOO_LONG)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the tests that were too long."""
    skipped = terminalreporter.stats.get("skipped", [])
    long = sorted(r.nodeid for r in skipped if TOO_LONG in str(r.longrepr))
    if long:
        terminalreporter.section(f"{len(long)} {TOO_LONG}")
        for name in long:
            terminalreporter.write_line(name)


@pytest.fixture(autouse=True)
def where(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing, unless a device is named: then every call of the library has its arrays there."""
    if not WHERE:
        yield
        return
    if WHERE in GPUS and (missing := gpu_missing(WHERE)):
        pytest.skip(missing)
    with contextlib.ExitStack() as stack:
        if WHERE == NAME:
            stack.enter_context(pretend(monkeypatch))
        if WHERE in KNOWN:
            chip = stack.enter_context(emulated(WHERE)).chip
            chip.left = LONGEST
        stack.enter_context(staged(monkeypatch))
        stack.enter_context(cb.use(WHERE))
        yield


@pytest.fixture
def pools_with_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools and interpolation choose as for devices with planes, wherever they run."""
    for op in (BANDED, MAX_POOL, MAX_POOL_INPUT):
        choose_as_on(monkeypatch, op, plane_size=32)
