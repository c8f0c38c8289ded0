"""Settings of the test run: one cache for the session, quick and repeatable property tests."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("CUBEPY_CACHE_DIR", str(Path(__file__).resolve().parent.parent / ".cache" / "tests"))

from hypothesis import HealthCheck, settings

settings.register_profile(
    "cubepy", deadline=None, derandomize=True, max_examples=25, suppress_health_check=list(HealthCheck)
)
settings.load_profile("cubepy")
