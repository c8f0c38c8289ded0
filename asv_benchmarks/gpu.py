"""Our times on an NVIDIA GPU beside those of the vendor's libraries: the table of
docs/benchmarks/h200.md.

    python asv_benchmarks/gpu.py                      # print everything
    python asv_benchmarks/gpu.py --only matmul        # one part
    python asv_benchmarks/gpu.py --write out.md       # and write the table as Markdown

Every row is the median of rounds in which each side runs once, timed by events on the GPU, on
random data that is rotated beyond the second-level cache. The peer is torch unless the row says
otherwise; the error is against float64.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import gpu_timing

PARTS = (
    "memory_bound", "library", "matmul", "convolution", "attention", "quant", "launch", "minilm", "models", "training", "eager", "decode", "fusion", "cold_start", "sweep",
)  # fmt: skip
PACKAGES = ("numpy", "numba", "numba-cuda", "torch", "triton")
MARK = "<!-- gpu table -->"


def rows(part: str) -> list[dict[str, Any]]:
    """The rows of one part."""
    return list(gpu_timing.rows(importlib.import_module(f"gpu_{part}").CASES))


def described() -> str:
    """What the table was measured with."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = (
        subprocess.run(query, capture_output=True, text=True, check=False)
        .stdout.strip()
        .splitlines()
    )
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    today = datetime.date.today().isoformat()
    return f"{today}, {gpu[0] if gpu else 'no GPU'}, Python {platform.python_version()}, {', '.join(found)}"


def table(found: Iterable[dict[str, Any]]) -> str:
    """Rows as Markdown."""
    names = ("work", "ours", "peer", "ratio", "error")
    lines = ["| work | cubepy | peer | ratio | error |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(str(r.get(n, "")) for n in names) + " |" for r in found]
    return "\n".join(lines)


def write(path: Path, text: str, mark: str = MARK) -> None:
    """Replace a file in one step; in a page with marks, what stands between them."""
    if path.exists() and path.read_text().count(mark) == 2:
        before, _, after = path.read_text().split(mark)
        text = f"{before}{mark}\n{text}\n{mark}{after}"
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w") as out:
        out.write(text)
    Path(name).replace(path)


def main() -> int:
    """Run the parts that are asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="a part to run (may be given several times)"
    )
    parser.add_argument("--write", type=Path, help="a file for the table")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(rows(options.part)))
        return 0
    found: list[dict[str, Any]] = []
    for part in options.only or PARTS:
        command = [sys.executable, __file__, "--part", part]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
            found.append({"work": part, "ours": f"failed: {reason[:200]}"})
            print(done.stderr, file=sys.stderr)
        else:
            found += json.loads(done.stdout.strip().splitlines()[-1])
        print(
            table(found[-40:]) if part == (options.only or PARTS)[-1] else f"{part}: done",
            flush=True,
        )
    text = f"{described()}\n\n{table(found)}"
    if options.write:
        write(options.write, text)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
