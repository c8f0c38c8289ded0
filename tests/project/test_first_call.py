"""How much of the package a first call enters: what a newcomer would have to read to follow it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cubepy.runtime.ahead.described import MARGIN

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = "cubepy", "backends", "nn", "quant"
FUNCTIONS, FILES = 697, 118
"""What the first `K.matmul` of a process enters with an empty cache (696 and 117 with AVX2 alone, of
which 9 and 1 are what lays object code into memory; one of each more where the CPU has AMX), records
for the next process included. They may only shrink.
"""
AGAIN = 224, 52
"""The same in a second process."""

WALK = """
import inspect, json, sys, threading
import numpy as np
import cubepy as cb
from cubepy.kernels import matmul

cb.use("cpu")
roots, entered = tuple(sys.argv[1:]), set()

def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_name[0] != "<":
        if code.co_filename.startswith(roots):
            entered.add((code.co_filename, code.co_qualname, code.co_firstlineno))

a, b = np.ones((64, 256), np.float32), np.ones((256, 128), np.float32)
threading.setprofile(note)
sys.setprofile(note)
result = matmul(a, b)
sys.setprofile(None)
assert (result == 256).all()
print(json.dumps(sorted(entered)))
"""


def entered(cache: Path) -> list[list[Any]]:
    """The functions that the first product of a process enters."""
    done = subprocess.run(
        [sys.executable, "-c", WALK, *(f"{ROOT / folder}{os.sep}" for folder in FOLDERS)],
        env=os.environ | {"CUBEPY_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[Any]] = json.loads(done.stdout)
    return found


def test_the_first_product_enters_no_more_functions_and_files(tmp_path: Path) -> None:
    found = entered(tmp_path)
    files = {file for file, *_ in found}
    named = {Path(file).name for file in files}
    assert {"matmul.py", "specialise.py", "straight.py"} <= named  # it was compiled
    assert len(found) <= FUNCTIONS and len(files) <= FILES, (len(found), len(files))


def test_a_second_process_enters_fewer(tmp_path: Path) -> None:
    sources = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    age = time.time() - max(p.stat().st_mtime for p in sources)
    time.sleep(max(0.0, MARGIN + 1 - age))  # what is so new is walked
    entered(tmp_path)
    found = entered(tmp_path)
    files = {file for file, *_ in found}
    assert "specialise.py" not in {Path(file).name for file in files}  # nor was it walked
    functions, many = AGAIN
    assert len(found) <= functions and len(files) <= many, (len(found), len(files))
