"""Machine code that replays calls is kept on disk: a process that finds it there compiles nothing
for its second call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json
import numpy as np
from cubepy import kernels as K
from cubepy.backends.llvm import machine_code
from cubepy.runtime.stats import counters

compiled, real = [], machine_code._compiled
machine_code._compiled = lambda text: compiled.append(len(text)) or real(text)
a = np.arange(12, dtype=np.float32).reshape(3, 4)
b = a.T.copy()
found = [K.matmul(a, b).tolist() for _ in range(4)]
print(json.dumps({"compiled": len(compiled), "launches": counters.launches, "right": all(
    f == (a @ a.T).tolist() for f in found), "ready": len(machine_code._alive)}))
"""


def run(cache: Path, **settings: str) -> dict[str, int]:
    environment = os.environ | {"CUBEPY_CACHE_DIR": str(cache)} | settings
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_another_process_loads_what_replays_calls(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert first["right"] and second["right"] and first["launches"] == second["launches"] == 4
    assert first["compiled"] == 2 and second["compiled"] == 0
    assert second["ready"] >= 2, "the functions that replay calls and write their keys"


def test_other_machine_code_in_its_place_is_made_anew(tmp_path: Path) -> None:
    run(tmp_path)
    for entry in (tmp_path / "code").glob("*/*.bin"):
        entry.write_bytes(entry.read_bytes()[:-1])
    again = run(tmp_path)
    assert again["right"] and again["compiled"] == 2


def test_without_a_cache_it_is_compiled_in_every_process(tmp_path: Path) -> None:
    found = run(tmp_path, CUBEPY_CACHE="0")
    assert found["right"] and found["compiled"] == 2 and not list(tmp_path.iterdir())
