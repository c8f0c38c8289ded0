"""What opening and running a file takes of memory, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rows import Options, Row, at_most

PROCESS = """
import json, os, resource, sys
import cubepy as cb, cubepy.models.gguf_model, cubepy.models.onnx, numpy
path, runs = sys.argv[1], sys.argv[2] == "run"

def private():
    with open("/proc/self/smaps_rollup") as file:
        found = {line.split(":")[0]: line.split()[1] for line in file if line.rstrip().endswith("kB")}
    return int(found["Private_Dirty"]) << 10  # what is read of a file is no memory of the process

cb.look(path)  # what reading needs of code is not the file's
before = private()
model = cb.load(path)
after = private() - before
if runs:
    model.generate([2, 3, 4, 5], max_new_tokens=32)
print(json.dumps([after, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10]))
"""


def used(path: Path, runs: bool) -> tuple[float, float]:
    """Private memory after opening, and the greatest resident size, in parts of the file."""
    command = [sys.executable, "-c", PROCESS, str(path), "run" if runs else "open"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    private, peak = json.loads(out.splitlines()[-1])
    size = path.stat().st_size
    return private / size, peak / size


def run(options: Options) -> Iterator[Row]:
    """Large files."""
    paths = sorted(p for s in ("vit_s_focus.onnx", "*.gguf") for p in options.folder.rglob(s))
    for path in paths:
        runs = path.suffix == ".gguf"
        private, peak = used(path, runs)
        yield at_most(f"{path.stem}: private memory after opening, of the file", 0.1, private)
        if runs:
            yield at_most(f"{path.stem}: greatest resident size, of the file", 1.4, peak)
