"""Our times beside those of other libraries, in one process, interleaved: what `make bench` prints.

    python asv_benchmarks/ratios.py                      # everything
    python asv_benchmarks/ratios.py --only matmul        # rows that begin so, such as "matmul 64x"
    python asv_benchmarks/ratios.py --write out.md       # and write the table as Markdown

    python asv_benchmarks/ratios.py --no-pauses   # libraries one right after the other, as in programs

Every row is the median of several rounds in which each library runs, one after the other. A library
that needs more than three times as long as the fastest is run no further, and its ratio says
"about". The error is against float64. What the memory and the multipliers can do is measured by
kernels in the same process.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

if (
    __name__ == "__main__"
):  # before NumPy and torch are loaded, which read it; asv.conf.json says the same for asv
    if "--no-pauses" not in sys.argv:
        os.environ.setdefault(
            "OPENBLAS_THREAD_TIMEOUT", "20"
        )  # idle threads turn for 1 ms, not 0.1 s beside others
    os.environ.setdefault(
        "TORCHINDUCTOR_COMPILE_THREADS", "1"
    )  # no pool of processes beside what is timed

# isort: split
import numpy as np
from benchmarks.cases import LIBRARIES, WORKS, case, data, keep_memory
from benchmarks.peers import SETTLE, compiler
from benchmarks.work import numbers
from gpu import write

PACKAGES = ("numpy", "numba", "torch", "jax", "onnxruntime", "openvino")
MARK, ALONE = "<!-- cpu table -->", "<!-- cpu table, one thread -->"
CHOSEN = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables that choose NumPy's kernels: some machines set them for old versions, and slow new
ones.
"""
MIXED = "<!-- cpu table, no pauses -->"
TURNS = 4  # as many rounds of single calls without pauses
BUDGET = 1.2  # seconds for all rounds of a row, about
RESERVE = 3 << 29  # bytes that results may use without new pages
SLOW = 3.0  # times as long as the fastest: measured once


def seconds(run: Callable[[], Any]) -> float:
    """The time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def limits() -> tuple[float, float, float]:
    """Bytes read a second, bytes copied a second (read and written), float32 operations a second."""
    from cubepy import kernels as K
    from cubepy.tune.roofline import Peaks, measure_peaks
    from cubepy.tune.stopwatch import HostStopwatch

    peaks, watch = Peaks(), HostStopwatch()
    for _ in range(2):  # both threads may share a core for as long as one measurement takes
        time.sleep(0.2)
        peaks = peaks.best(measure_peaks("cpu", watch))
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


def first(run: Callable[[], Any]) -> float:
    """The best of a few calls; at least five, unless they take long."""
    taken = [seconds(run)]
    while len(taken) < 5 and sum(taken) < 0.5 or len(taken) < 9 and sum(taken) < 0.05:
        taken.append(seconds(run))
    return min(taken)


def measure(op: str, shape: str, rounds: int, pauses: bool = True) -> dict[str, Any]:
    """Medians by library, interleaved; a pause after each library lets its idle threads go to
    sleep.

    Without pauses, every library is called once in a round, while the threads of the one before
    still turn.
    """
    runs, once = {}, {}
    for library in LIBRARIES:
        try:
            runs[library] = case(op, library, shape)
        except NotImplementedError:
            continue
        once[library] = first(runs[library])
        if pauses:
            time.sleep(SETTLE.get(library, 0.0))
    fastest = min(once.values())
    kept = [name for name in runs if name == "cubepy" or once[name] < SLOW * fastest]
    times: dict[str, list[float]] = {name: [] for name in kept}
    for _ in range(rounds if pauses else TURNS * rounds):
        for name in kept:
            if not pauses:
                times[name].append(seconds(runs[name]))
                continue
            run, share = runs[name], BUDGET / rounds / len(kept)
            if once[name] < share:  # the first call wakes the library's threads
                run()
            times[name].append(
                median(seconds(run) for _ in range(max(1, min(200, int(share / once[name])))))
            )
            time.sleep(SETTLE.get(name, 0.0))
    taken = once | {name: median(t) for name, t in times.items()}
    return {
        "op": op, "shape": shape, "seconds": taken.pop("cubepy"), "peers": taken,
        "about": [name for name in taken if name not in kept], "error": error(op, shape),
    }  # fmt: skip


def rate(row: dict[str, Any], known: tuple[float, float, float]) -> str:
    """What a row moved or computed a second, and its share of the limit."""
    work, shape = WORKS[row["op"]], numbers(row["shape"])
    if work.flops is not None:
        done = work.flops(*shape) / row["seconds"]
        share = "" if "bf16" in row["op"] else f", {100 * done / known[2]:.0f} % of the peak"
        return f", {done / 1e9:.0f} GFLOP/s{share}"
    if work.bytes is not None:
        done = work.bytes(*shape) / row["seconds"]
        limit, name = (known[0], "reading") if work.reads else (known[1], "copying")
        return f", {done / 1e9:.0f} GB/s, {100 * done / limit:.0f} % of {name}"
    return ""


def line(row: dict[str, Any], known: tuple[float, float, float]) -> str:
    """A row of the table."""
    peers = sorted(row["peers"].items(), key=lambda p: p[1])
    ratios = ", ".join(
        f"{name} about {t / row['seconds']:.3g}x"
        if name in row["about"]
        else f"{name} {t / row['seconds']:.2f}x"
        for name, t in peers
    )
    exact = "" if row["error"] is None else f"{row['error']:.0e}"
    return f"| {row['op']} {row['shape']} | {row['seconds'] * 1e3:.3g} ms{rate(row, known)} | {ratios} | {exact} |"


def described(threads: int, known: tuple[float, float, float], pauses: bool = True) -> str:
    """What the table was measured with."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    found += [] if compiler() else ["no C++ compiler for torch.compile"]
    found += [] if pauses else ["no pauses between libraries"]
    found += [
        f"{name}={os.environ[name]} (another NumPy than users have)"
        for name in CHOSEN
        if name in os.environ
    ]
    return (
        f"{datetime.date.today().isoformat()}, {threads} threads, Python {platform.python_version()}, "
        f"{', '.join(found)}; limits measured in the run: "
        f"reading {known[0] / 1e9:.0f} GB/s, copying {known[1] / 1e9:.0f} GB/s, float32 {known[2] / 1e9:.0f} GFLOP/s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--only", action="append", help="rows that begin so (may be given several times)"
    )
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    parser.add_argument(
        "--no-pauses", action="store_true", help="call libraries one right after the other"
    )
    options = parser.parse_args()
    from cubepy.backends.cpu.threads.choice import threads

    keep_memory(RESERVE)
    known = limits()
    pauses = not options.no_pauses
    lines = [
        described(threads(), known, pauses),
        "",
        "| work | cubepy | times faster than | error |",
        "|---|---|---|---|",
    ]
    print("\n".join(lines))
    rows = []
    for op, work in WORKS.items():
        for shape in work.shapes:
            if not options.only or any(f"{op} {shape}".startswith(name) for name in options.only):
                row = measure(op, shape, options.rounds, pauses)
                rows.append(row)
                lines.append(line(row, known))
                print(lines[-1], flush=True)
            data.cache_clear()
    if options.json:
        found = {"threads": threads(), "limits": known, "pauses": pauses, "rows": rows}
        options.json.write_text(json.dumps(found, indent=2))
    if options.write:
        write(
            options.write,
            "\n".join(lines),
            MIXED if options.no_pauses else MARK if threads() > 1 else ALONE,
        )


if __name__ == "__main__":
    main()
