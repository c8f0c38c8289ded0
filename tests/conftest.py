"""Settings of the test run: one cache for the session, quick and repeatable property tests, random
numbers of a test's own; another CPU by `CUBEPY_TEST_CPU=avx2` (`tests/other_cpus.py`).
"""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections.abc import Generator
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "tests"
os.environ.setdefault("CUBEPY_CACHE_DIR", str(CACHE))
os.environ.setdefault("CUBEPY_COMPILE_WORKERS", "1")  # there is a process for each core already
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    # Processes that tests start would compile all of Numba's modules each, and pytest would work
    # out all assertions at each run; nothing is written beside sources.
    sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(CACHE / "bytecode"))
    sys.dont_write_bytecode = False

import pytest
from hypothesis import HealthCheck, settings

from tests import elsewhere, other_cpus, turns

os.environ.update(other_cpus.environment(os.environ.get(other_cpus.VARIABLE, "")))
other_cpus.begin()

settings.register_profile(
    "cubepy",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("cubepy")


MANY = 20_000
"""New objects for which garbage is looked for after a test."""
gc.set_threshold(1_000_000, 20, 50)


def freeze() -> None:
    """What modules, caches and collected tests hold stays: garbage is not looked for among it again
    and again, which took a tenth of the time. Between tests, which hold nothing then.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """In one piece of Python's stack: where the loop of an emulator happened to be at the end of
    one, a fifth of its time went into getting and giving back memory.
    """
    from cubepy.runtime.deep_stack import in_one_piece

    python = pyfuncitem.config.pluginmanager.getplugin("python")
    return in_one_piece(python.pytest_pyfunc_call)(pyfuncitem)


def pytest_report_header() -> str:
    return f"{turns.VARIABLE}={turns.TURN}"


def backwards(config: pytest.Config) -> bool:
    """Whether a process collects tests from the last to the first: the first run in a checkout works
    out the assertions of each file, and two processes that go towards each other do so once.
    """
    worker: str = getattr(config, "workerinput", {}).get("workerid", "gw0")
    return int(worker.removeprefix("gw")) % 2 == 1


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if isinstance(collector, pytest.Directory) and report.result and backwards(collector.config):
        report.result.reverse()
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # the same in all processes; a file's own order stays
        items.sort(key=lambda item: str(item.path))
    turns.draw(config, items)
    elsewhere.leave_out(config, items)


def pytest_collection_finish() -> None:
    freeze()


def pytest_runtest_logfinish() -> None:
    """Each object is looked at once, by the test that made it: one that looks for garbage itself
    (many do) would look at all that was made since, a second or two.
    """
    new, searches, _ = gc.get_count()
    if new >= MANY or searches:
        freeze()


def pytest_sessionfinish() -> None:
    freeze()  # pytest looks for garbage ten times more as it ends


@pytest.fixture(autouse=True)
def draws(request: pytest.FixtureRequest) -> None:
    """The generator of a module begins anew for each test, from the test's name: what it draws does
    not depend on what ran before.
    """
    if hasattr(request.module, "RNG"):
        import numpy as np

        if isinstance(request.module.RNG, np.random.Generator):
            seed = zlib.crc32(request.node.nodeid.encode())
            request.module.RNG = np.random.default_rng(seed)
