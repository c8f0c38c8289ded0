"""Model files that are drawn, right and wrong ones: each ends in a result or an error of ours.

    python scripts/fuzz_files.py                              # 1,000 files of each kind
    python scripts/fuzz_files.py gguf pickles --count 20000 --seed 3
    python scripts/fuzz_files.py gguf --file 17               # one again, with its traceback

A file is made of the seed and its place, which are printed where another exception comes out, a
file takes more than a second of CPU time or 64 MB more than it has, or the process ends.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.models.odd import run  # noqa: E402

CHUNK = 500
HANG = 60  # seconds of CPU time of a file; ten times that where it waits


def chunk(kind: str, seed: int, first: int, last: int, home: str) -> None:
    """Some files, in a process of their own; what is wrong is written down."""
    tracemalloc.start()
    place, notes = Path(home) / "place", Path(home) / "notes"
    place.write_text(str(first))
    run.tried(kind, (seed, 2**31), Path(home))  # imports, and code that is compiled
    with open(notes, "a", buffering=1) as out:
        for n in range(first, last):
            place.write_text(str(n))
            found = run.tried(kind, (seed, n), Path(home))
            again = found
            if found.seconds > run.SECONDS:  # it may have compiled
                again = run.tried(kind, (seed, n), Path(home))
            slow = min(found.seconds, again.seconds)
            print(int(found.refused), f"{slow:.4f}", found.memory, file=out)
            wrong = found.wrong or (f"{slow:.1f} seconds" if slow > run.SECONDS else "")
            if wrong:
                print(f"{kind} {seed} {n}: {wrong}", flush=True)


def cpu_of(pid: int | None) -> float:
    """Seconds of CPU time of a process; 0 where nothing says so."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended(child: multiprocessing.process.BaseProcess, place: Path) -> bool:
    """Wait for the end of a process; one that stays at a file is ended."""
    seen, since, used = "", time.perf_counter(), 0.0
    while child.is_alive():
        child.join(1)
        now = place.read_text() if place.exists() else ""
        if now != seen:
            seen, since, used = now, time.perf_counter(), cpu_of(child.pid)
        elif cpu_of(child.pid) - used > HANG or time.perf_counter() - since > 10 * HANG:
            child.kill()
            child.join()
            return False
    return True


def main() -> int:
    """Draw files, and say what was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", default=list(run.KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--file", type=int, help="one file again")
    parser.add_argument("--seconds", type=float, default=0, help="of a kind, at most")
    options = parser.parse_args()
    bad = False
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as home:
            if options.file is not None:
                one, where = run.KINDS[kind], Path(home)
                raw, given = one.draw(np.random.default_rng((options.seed, options.file)), where)
                (where / f"drawn.{one.suffix}").write_bytes(raw)
                one.open(where / f"drawn.{one.suffix}", given)
                continue
            start, first = time.perf_counter(), 0
            while first < options.count:
                last = min(first + CHUNK, options.count)
                child = multiprocessing.get_context("spawn").Process(
                    target=chunk, args=(kind, options.seed, first, last, home)
                )
                child.start()
                if not ended(child, Path(home) / "place"):
                    print(f"{kind}: no end", flush=True)
                if child.exitcode:
                    last = int((Path(home) / "place").read_text()) + 1
                    print(f"{kind} {options.seed} {last - 1}: the process ended, {child.exitcode}")
                    bad = True
                first = last
                if options.seconds and time.perf_counter() - start > options.seconds:
                    break
            notes = Path(home) / "notes"
            rows = [r.split() for r in notes.read_text().splitlines()] if notes.exists() else []
            refused = sum(r[0] == "1" for r in rows)
            slowest = max((float(r[1]) for r in rows), default=0.0)
            largest = max((int(r[2]) for r in rows), default=0)
            print(
                f"{kind}: {len(rows)} files, {refused} refused, slowest {slowest:.2f} s, most "
                f"memory {largest / 2**20:.1f} MB, {time.perf_counter() - start:.0f} s",
                flush=True,
            )
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
