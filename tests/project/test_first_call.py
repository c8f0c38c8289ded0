"""How much of the package a first call enters: what a newcomer would have to read to follow it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = "cubepy", "backends", "nn", "quant"
FUNCTIONS, FILES = 690, 120
"""What the first `K.matmul` of a process enters with an empty cache (665 and 115 with AVX-512;
other instructions differ by a few). They may only shrink.
"""

WALK = """
import inspect, json, sys, threading
import numpy as np
import cubepy as cb
from cubepy import kernels as K

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
result = K.matmul(a, b)
sys.setprofile(None)
assert (result == 256).all()
print(json.dumps(sorted(entered)))
"""


def test_the_first_product_enters_no_more_functions_and_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WALK, *(f"{ROOT / folder}{os.sep}" for folder in FOLDERS)],
        env=os.environ | {"CUBEPY_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    entered = json.loads(done.stdout)
    files = {file for file, *_ in entered}
    named = {Path(file).name for file in files}
    assert {"matmul.py", "specialise.py", "straight.py"} <= named  # it was compiled
    assert len(entered) <= FUNCTIONS and len(files) <= FILES, (len(entered), len(files))
