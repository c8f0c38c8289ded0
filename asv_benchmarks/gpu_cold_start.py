"""The first matmul of a process on a GPU: compiled, and from the cache on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from statistics import median

from gpu_timing import Row

PROGRAM = """
import sys, time
device = sys.argv[1]
start = time.perf_counter()
import numpy as np
import cubepy as cb
import cubepy.kernels as K
a = cb.tensor(np.ones((1024, 1024), np.float32), device=device)
b = cb.tensor(np.ones((1024, 1024), np.float32), device=device)
before = time.perf_counter()
value = float((a @ b).numpy()[0, 0])
assert value == 1024, value
end = time.perf_counter()
print(end - start, end - before)
"""


def measure(cache: str, device: str) -> tuple[float, float, float]:
    """Seconds of the whole process, from the first import, and of the matmul with its copies."""
    start = time.perf_counter()
    environment = {**os.environ, "CUBEPY_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, device],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    total = time.perf_counter() - start
    imported, matmul = map(float, done.stdout.split())
    return total, imported, matmul


def first_calls(device: str) -> Iterator[Row]:
    """Two rows: compiled, and from disk."""
    compiled, cached = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            compiled.append(measure(cache, device))
            cached.append(measure(cache, device))
    for name, runs, limit in (("compiled", compiled, 3.0), ("from disk", cached, 0.5)):
        total, imported, matmul = (median(r[k] for r in runs) for k in range(3))
        yield {
            "work": f"first matmul of a process, {name}",
            "ms": (matmul * 1e3, limit * 1e3),
            "ours": f"{matmul:.2f} s ({imported:.2f} s with imports and the driver's start, process {total:.2f} s)",
            "peer": f"limit {limit} s",
            "ratio": f"{limit / matmul:.1f}x",
        }


CASES = {"first calls": first_calls}
