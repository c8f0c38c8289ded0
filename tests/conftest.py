"""Settings of the test run: one cache for the session, quick and repeatable property tests."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "tests"
os.environ.setdefault("CUBEPY_CACHE_DIR", str(CACHE))
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    # Processes that tests start would compile all of Numba's modules each; nothing is written
    # beside sources.
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(CACHE / "bytecode"))

from hypothesis import HealthCheck, settings

settings.register_profile(
    "cubepy",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("cubepy")
