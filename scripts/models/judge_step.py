"""The backend tests of the onnx package."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rows import Options, Row

SCRIPT = Path(__file__).resolve().parent.parent / "onnx_node_tests.py"
WANTED = 1930


def run(options: Options) -> Iterator[Row]:
    """All of them."""
    command = [sys.executable, str(SCRIPT)]
    out = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    found = re.findall(r"(\d+) of (\d+)", out)
    if not found:
        yield Row("backend tests of onnx", f">= {WANTED}", out[-300:] or "no result", False)
        return
    passed, count = map(int, found[-1])
    met = passed >= min(WANTED, count)
    yield Row("backend tests of onnx", f">= {WANTED}", f"{passed} of {count}", met)
