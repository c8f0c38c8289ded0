"""Another shape seldom needs another specialisation: a user with images of many sizes does not compile for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="kernels of the CPU")
ROOT = Path(__file__).resolve().parents[2]
MOST = 4  # for eight shapes; those that differ are the tile, whether it is packed, and classes of sizes


def test_other_shapes_seldom_need_other_code(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.specialisations"],
        cwd=ROOT,
        env={**os.environ, "CUBEPY_CACHE_DIR": str(tmp_path), "CUBEPY_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    made = json.loads(run.stdout)
    assert all(made.values())
    many = {(case, kernel): n for case, kernels in made.items() for kernel, n in kernels.items() if n > MOST}
    assert not many
