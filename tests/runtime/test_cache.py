"""The cache on disk: shared by processes, never stale, mended when damaged, and never in the way."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from cubepy.runtime.cache import MAGIC

SCRIPT = """
import sys, warnings
warnings.simplefilter("always")
import numpy as np
import cubepy as cb
from helper_module import scaled
FACTOR = 3
def make(offset):
    @cb.kernel
    def work(x: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int] = 4):
        i = cb.ABSOLUTE_POS * lanes
        out.store(i, scaled(x.load(i, lanes)) * FACTOR + offset)
    return work
@cb.kernel
def other(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] - 1
x = np.arange(8, dtype=np.float32)
a, b = np.zeros(8, np.float32), np.zeros(8, np.float32)
make(1)[2, 1](x, a)
other[cb.over(b)](x, b)
s = cb.stats()
print(s.compiled, s.loaded, a.tolist()[:3], b.tolist()[:2])
"""
HELPER = """
import cubepy as cb
@cb.func
def scaled(v):
    return v * 2
"""


def project(folder: Path) -> Path:
    (folder / "script.py").write_text(SCRIPT)
    (folder / "helper_module.py").write_text(HELPER)
    return folder


def start(folder: Path, cache: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "CUBEPY_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(folder: Path, cache: Path) -> tuple[str, str]:
    process = start(folder, cache)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip(), err


RIGHT = "[1.0, 7.0, 13.0] [-1.0, 0.0]"


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    folder, cache = project(tmp_path), tmp_path / "cache"
    assert run(folder, cache)[0] == f"2 0 {RIGHT}"
    assert run(folder, cache)[0] == f"0 2 {RIGHT}"


def test_a_change_recompiles_exactly_what_it_touches(tmp_path: Path) -> None:
    folder, cache = project(tmp_path), tmp_path / "cache"
    run(folder, cache)
    script, helper = folder / "script.py", folder / "helper_module.py"
    helper.write_text(HELPER.replace("v * 2", "v * 4"))
    assert run(folder, cache)[0] == "1 1 [1.0, 13.0, 25.0] [-1.0, 0.0]", (
        "a callee in another module"
    )
    helper.write_text(HELPER)
    script.write_text(SCRIPT.replace("FACTOR = 3", "FACTOR = 5"))
    assert run(folder, cache)[0] == "1 1 [1.0, 11.0, 21.0] [-1.0, 0.0]", "a global"
    script.write_text(SCRIPT.replace("make(1)", "make(2)"))
    assert run(folder, cache)[0] == "1 1 [2.0, 8.0, 14.0] [-1.0, 0.0]", "a closure"
    script.write_text(SCRIPT.replace("Comptime[int] = 4", "Comptime[int] = 8"))
    assert run(folder, cache)[0] == f"1 1 {RIGHT}", "a comptime default"
    script.write_text(SCRIPT.replace("x[i] - 1", "x[i] - 2"))
    assert run(folder, cache)[0] == "1 1 [1.0, 7.0, 13.0] [-2.0, -1.0]", "the kernel itself"
    script.write_text(SCRIPT)
    assert run(folder, cache)[0] == f"0 2 {RIGHT}", "back as it was"


def test_damaged_entries_are_made_anew(tmp_path: Path) -> None:
    folder, cache = project(tmp_path), tmp_path / "cache"
    run(folder, cache)
    first, second = sorted(p.with_suffix(".bin") for p in cache.rglob("*.py"))
    first.write_bytes(first.read_bytes()[:100])
    garbled = bytearray(second.read_bytes())
    garbled[len(garbled) // 2] ^= 0xFF
    second.write_bytes(garbled)
    assert run(folder, cache)[0] == f"2 0 {RIGHT}"
    assert run(folder, cache)[0] == f"0 2 {RIGHT}"


def test_an_entry_without_code_is_made_anew(tmp_path: Path) -> None:
    """Whole by its checksum, but to run it would end the process."""
    folder, cache = project(tmp_path), tmp_path / "cache"
    run(folder, cache)
    for entry in cache.rglob("*.bin"):
        entry.write_bytes(MAGIC + hashlib.sha256(b"").digest())
    assert run(folder, cache)[0] == f"2 0 {RIGHT}"
    assert run(folder, cache)[0] == f"0 2 {RIGHT}"


def test_processes_racing_on_an_empty_cache_all_succeed(tmp_path: Path) -> None:
    folder, cache = project(tmp_path), tmp_path / "cache"
    processes = [start(folder, cache) for _ in range(8)]
    for process in processes:
        out, err = process.communicate(timeout=240)
        assert process.returncode == 0 and out.strip().endswith(RIGHT), err
    assert run(folder, cache)[0] == f"0 2 {RIGHT}"
    assert not list(cache.rglob(".part-*")), "no temporary file stays behind"


def test_a_cache_that_cannot_be_written_costs_a_warning(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (tmp_path / "file").write_text("in the way")
    out, err = run(folder, tmp_path / "file" / "cache")
    assert out == f"2 0 {RIGHT}"
    assert err.count("cannot be written") == 1 and "CacheWarning" in err
    assert re.search(rf"{re.escape(str(folder))}\S*:\d+: CacheWarning", err), err


def test_the_cache_can_be_switched_off(tmp_path: Path) -> None:
    folder = project(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "import os; os.environ['CUBEPY_CACHE'] = '0'; import runpy; runpy.run_path('script.py')"],
        cwd=folder, env={**os.environ, "CUBEPY_CACHE_DIR": str(tmp_path / "cache")}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 0") and not (tmp_path / "cache" / "code").exists()
