"""The page of ops is what their records say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "ops_page.py"
PAGE = ROOT / "docs" / "reference" / "ops.md"


def test_the_page_of_ops_is_what_their_records_say() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], check=False)
    assert done.returncode == 0, "run scripts/ops_page.py (or make stubs)"


def test_rows_say_what_is_so() -> None:
    rows = {
        cells[0].strip("` "): [c.strip() for c in cells[1:]]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `") and (cells := line.strip("|").split(" | "))
    }
    assert rows["exp"][-2:] == ["any order", "map"]
    assert rows["trigamma"][-2] == "refused"
    assert rows["argmax"][-2] == "constant"
    assert "rows" in rows["sum"][-1] and "takes maps" in rows["linear"][-1]
    assert rows["topk"][3] == "several"
