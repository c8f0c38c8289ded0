"""The library's tests on a GPU: `CUBEPY_TEST_DEVICE=cuda python -m pytest tests/kernels`; gfx942 and
other processors of AMD's are emulated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import cubepy as cb
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.kernels.pooling.routines import MAX_POOL, MAX_POOL_INPUT
from cubepy.kernels.windows.banded_map import BANDED
from cubepy.runtime.device import GPUS
from tests.backends.hip.emulator.device import emulated
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
            stack.enter_context(emulated(WHERE))
        stack.enter_context(staged(monkeypatch))
        stack.enter_context(cb.use(WHERE))
        yield


@pytest.fixture
def pools_with_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools and interpolation choose as for devices with planes, wherever they run."""
    for op in (BANDED, MAX_POOL, MAX_POOL_INPUT):
        choose_as_on(monkeypatch, op, plane_size=32)
