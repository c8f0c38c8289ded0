"""The table of ONNX operators is what their records say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_operators_is_what_their_records_say() -> None:
    script = ROOT / "scripts" / "onnx_page.py"
    done = subprocess.run([sys.executable, script, "--check"], check=False)
    assert done.returncode == 0, "run scripts/onnx_page.py"
