"""Our times beside those of other libraries, in one process, interleaved: what `make bench` prints.

Every row is the median of several rounds in which each library runs once, one after the other. The error is
against float64. A copy of 256 MiB before and after tells how fast the memory is today.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from benchmarks.cases import LIBRARIES, case, data, numpy_call

ROWS = (
    ("matmul", 256), ("matmul", 512), ("matmul", 1024), ("linear1", 4096), ("axpy", 2048), ("sum", 4096),
    ("sum_rows", 4096), ("sum_columns", 4096), ("argmax_rows", 4096), ("softmax", 4096), ("layer_norm", 4096),
    ("gelu", 4096), ("transpose", 4096), ("max_pool2d", 512), ("attention", 1024), ("attention_causal", 1024),
)  # fmt: skip


def seconds(run: Any) -> float:
    """The time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def bandwidth() -> float:
    """GB/s of a copy, bytes read and written, one thread."""
    a = np.ones(1 << 26, np.float32)
    b = np.empty_like(a)
    np.copyto(b, a)
    return 2 * a.nbytes / median(seconds(lambda: np.copyto(b, a)) for _ in range(5)) / 1e9


def error(op: str, size: int) -> float | None:
    """Largest error relative to the largest value, against NumPy in float64."""
    xs = data(op, size)
    try:
        exact = np.asarray(numpy_call(op, tuple(x.astype(np.float64) for x in xs))())
    except NotImplementedError:
        return None
    ours = np.asarray(case(op, "cubepy", size)())
    return float(np.abs(ours - exact).max() / max(np.abs(exact).max(), 1e-30))


def measure(op: str, size: int, rounds: int) -> dict[str, Any]:
    """Medians by library, interleaved; a pause between libraries lets idle threads go to sleep."""
    runs = {}
    for library in LIBRARIES:
        try:
            runs[library] = case(op, library, size)
        except NotImplementedError:
            continue
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(0.04)
            run()
            times[name].append(min(seconds(run) for _ in range(3)))
    ours = median(times["cubepy"])
    peers = {name: median(t) for name, t in times.items() if name != "cubepy"}
    return {
        "op": op, "size": size, "dtype": "float32", "ms": ours * 1e3,
        "peers_ms": {n: t * 1e3 for n, t in peers.items()},
        "times_faster": {n: t / ours for n, t in peers.items()},
        "error": error(op, size) if op not in ("argmax_rows",) else None,
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="operations whose name contains this")
    parser.add_argument("--json", default=None, help="also write the rows to this file")
    arguments = parser.parse_args()
    from cubepy.backends.cpu.threads import threads

    before = bandwidth()
    print(f"{threads()} threads, float32, C order; ratios: times faster than the peer; copy {before:.0f} GB/s")
    print(f"{'operation':<18}{'size':>6}{'ms':>10}  ratios")
    rows = []
    for op, size in ROWS:
        if arguments.only in op:
            row = measure(op, size, arguments.rounds)
            rows.append(row)
            ratios = "  ".join(f"{n} {r:.2f}x" for n, r in row["times_faster"].items())
            exact = "" if row["error"] is None else f"  error {row['error']:.1e}"
            print(f"{op:<18}{size:>6}{row['ms']:>10.3f}  {ratios}{exact}", flush=True)
    print(f"copy afterwards {bandwidth():.0f} GB/s")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"threads": threads(), "copy_gbs": before, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
