"""Our times beside those of other libraries, in one process, interleaved: what `make bench` prints.

    python asv_benchmarks/ratios.py                      # everything
    python asv_benchmarks/ratios.py --only matmul        # operations whose name begins so
    python asv_benchmarks/ratios.py --write out.md       # and write the table as Markdown

Every row is the median of several rounds in which each library runs, one after the other. The error is against
float64. What the memory and the multipliers can do is measured by kernels in the same process.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from benchmarks.cases import LIBRARIES, WORKS, case, data, keep_memory
from benchmarks.work import numbers
from gpu import write

PACKAGES = ("numpy", "numba", "torch", "onnxruntime")
MARK, ALONE = "<!-- cpu table -->", "<!-- cpu table, one thread -->"
BUDGET = 1.2  # seconds for all rounds of a row, about


def seconds(run: Callable[[], Any]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def limits() -> tuple[float, float, float]:
    """Bytes read a second, bytes copied a second (read and written), float32 operations a second."""
    from cubepy import kernels as K
    from cubepy.tune.roofline import measure_peaks
    from cubepy.tune.stopwatch import HostStopwatch

    peaks = measure_peaks("cpu", HostStopwatch())
    x = np.ones(1 << 24, np.float32)
    out = np.empty_like(x)
    copied = 2 * x.nbytes / min(seconds(lambda: K.copy(x, out=out)) for _ in range(15))
    return peaks.bytes, copied, peaks.flops["f32"]


def error(op: str, shape: str) -> float | None:
    """Largest error relative to the largest value, against float64."""
    arrays = data(op, WORKS[op].quick or shape)
    try:
        exact = WORKS[op].truth(*arrays)
    except NotImplementedError:  # what is exact needs a library that is not here
        return None
    if exact is None:
        return None
    ours = np.asarray(WORKS[op].cubepy(*arrays)()).astype(np.float64)
    return float(np.abs(ours - exact).max() / max(np.abs(exact).max(), 1e-30))


def measure(op: str, shape: str, rounds: int) -> dict[str, Any]:
    """Medians by library, interleaved; a pause between libraries lets idle threads go to sleep."""
    runs, repeats = {}, {}
    for library in LIBRARIES:
        try:
            runs[library] = case(op, library, shape)
        except NotImplementedError:
            continue
        runs[library]()
        repeats[library] = max(1, min(200, int(BUDGET / rounds / len(LIBRARIES) / seconds(runs[library]))))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            time.sleep(0.04)
            run()
            times[name].append(median(seconds(run) for _ in range(repeats[name])))
    ours = median(times["cubepy"])
    return {
        "op": op, "shape": shape, "seconds": ours,
        "peers": {name: median(t) for name, t in times.items() if name != "cubepy"}, "error": error(op, shape),
    }  # fmt: skip


def rate(row: dict[str, Any], known: tuple[float, float, float]) -> str:
    """What a row moved or computed a second, and its share of the limit."""
    work, shape = WORKS[row["op"]], numbers(row["shape"])
    if work.flops is not None:
        done = work.flops(*shape) / row["seconds"]
        share = "" if "bf16" in row["op"] else f", {100 * done / known[2]:.0f} % of the peak"
        return f", {done / 1e9:.0f} GFLOP/s{share}"
    if work.bytes is not None:
        reads = row["op"] == "linear" or row["op"].split("_")[0] in ("sum", "max", "argmax") and "pool" not in row["op"]
        done = work.bytes(*shape) / row["seconds"]
        limit, name = (known[0], "reading") if reads else (known[1], "copying")
        return f", {done / 1e9:.0f} GB/s, {100 * done / limit:.0f} % of {name}"
    return ""


def line(row: dict[str, Any], known: tuple[float, float, float]) -> str:
    """A row of the table."""
    peers = sorted(row["peers"].items(), key=lambda p: p[1])
    ratios = ", ".join(f"{name} {t / row['seconds']:.2f}x" for name, t in peers)
    exact = "" if row["error"] is None else f"{row['error']:.0e}"
    return f"| {row['op']} {row['shape']} | {row['seconds'] * 1e3:.3g} ms{rate(row, known)} | {ratios} | {exact} |"


def described(threads: int, known: tuple[float, float, float]) -> str:
    """What the table was measured with."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    return (
        f"{datetime.date.today().isoformat()}, {threads} threads, Python {platform.python_version()}, "
        f"{', '.join(found)}; limits measured in the run: "
        f"reading {known[0] / 1e9:.0f} GB/s, copying {known[1] / 1e9:.0f} GB/s, float32 {known[2] / 1e9:.0f} GFLOP/s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", action="append", help="operations whose name begins so (may be given several times)")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    from cubepy.backends.cpu.threads import threads

    keep_memory()
    known = limits()
    lines = [described(threads(), known), "", "| work | cubepy | times faster than | error |", "|---|---|---|---|"]
    print("\n".join(lines))
    rows = []
    for op, work in WORKS.items():
        for shape in work.shapes:
            if not options.only or any(op.startswith(name) for name in options.only):
                row = measure(op, shape, options.rounds)
                rows.append(row)
                lines.append(line(row, known))
                print(lines[-1], flush=True)
            data.cache_clear()
    if options.json:
        options.json.write_text(json.dumps({"threads": threads(), "limits": known, "rows": rows}, indent=2))
    if options.write:
        write(options.write, "\n".join(lines), MARK if threads() > 1 else ALONE)


if __name__ == "__main__":
    main()
