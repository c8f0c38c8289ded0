"""Threads that share a GPU: `scripts/stress_gpu.py` for a few seconds, in a process that may crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "stress_gpu.py"


def test_threads_launch_capture_replay_and_free() -> None:
    command = [sys.executable, str(SCRIPT), "--threads", "8", "--seconds", "8", "--interval", "4"]
    command += ["--shared"] * ("PYTEST_XDIST_WORKER" in os.environ)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
