"""Kernels of single elements in checked mode beside the same loops for numba's `prange`: medians of
ratios, measured in turns.

    OMP_NUM_THREADS=1 python asv_benchmarks/scalar.py
    OMP_NUM_THREADS=2 python asv_benchmarks/scalar.py sparse jacobi

1.0 is level; above it ours is faster.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 15
SECONDS = 0.01  # a measurement of one library takes so long, at least


def seconds(run: Callable[[], None], calls: int) -> float:
    """How long a call takes: the lesser of two measurements."""
    found = []
    for _ in range(2):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        found.append((time.perf_counter() - start) / calls)
    return min(found)


def ratio(ours: Callable[[], None], theirs: Callable[[], None]) -> tuple[float, float]:
    """The median of theirs / ours, and the least time of ours in seconds."""
    calls = max(1, int(SECONDS / max(1e-6, seconds(ours, 1))))
    rounds = [(seconds(ours, calls), seconds(theirs, calls)) for _ in range(ROUNDS)]
    return statistics.median(b / a for a, b in rounds), min(a for a, _ in rounds)


def main() -> None:
    """Print a table."""
    threads = os.environ.get("OMP_NUM_THREADS") or str(os.cpu_count())
    os.environ["CUBEPY_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = threads
    sys.path.insert(0, str(Path(__file__).parent))
    from benchmarks.scalar_kernels import SIZES, WORKS, pair

    print(f"| {threads} threads | " + " | ".join(SIZES) + " |\n|---|" + "---|" * len(SIZES))
    for name in sys.argv[1:] or WORKS:
        cells = []
        for size in SIZES:
            found, least = ratio(*pair(name, size))
            cells.append(f"{found:.2f} ({least * 1e6:.0f} us)")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
