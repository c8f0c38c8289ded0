"""Everything that needs an NVIDIA GPU, with one command: the tests, the sanitizers, the table of benchmarks.

    python scripts/gpu_check.py                            # the tests
    python scripts/gpu_check.py --sanitize --benchmarks    # and races, memory, speed
    python scripts/gpu_check.py --only tests --only racecheck --out logs

What each step printed is in the folder `--out`, beside `summary.json`; the exit status is the number of failed steps.
The sanitizers are compute-sanitizer of the CUDA toolkit; a machine without it skips them and says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ("tests/gpu", "tests/conformance", "tests/cuda/test_matrix.py", "tests/test_random_kernels.py")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
PARTS = ("memory_bound", "matmul", "convolution", "attention", "quant", "launch", "minilm", "cold_start")
FAULTY = "not fault and not out_of_bounds and not assert"  # tests that make mistakes on purpose


@dataclass(frozen=True)
class Step:
    """A command, and how many seconds it may take."""

    name: str
    command: list[str]
    seconds: int
    variables: dict[str, str] = field(default_factory=dict)


def steps(out: Path, sanitize: bool, benchmarks: bool) -> list[Step]:
    """What is run, in order."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, "-k"]
    spread = ["-n", "8"] if importlib.util.find_spec("xdist") else []
    found = [
        Step("tests", [*pytest, "not cpu and not python", *spread], 900),
        Step(
            "library",
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels", *spread],
            900,
            {"CUBEPY_TEST_DEVICE": "cuda"},
        ),
    ]
    if sanitize and shutil.which("compute-sanitizer"):
        for tool in TOOLS:
            wrapped = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--target-processes", "all"]
            found.append(Step(tool, [*wrapped, *pytest[:6], "tests/conformance", "-k", f"cuda and {FAULTY}"], 900))
    elif sanitize:
        print("compute-sanitizer is not on the path: no sanitizers", flush=True)
    if benchmarks:
        table = [sys.executable, "asv_benchmarks/gpu.py"]
        for part in PARTS:
            files = ["--write", str(out / f"{part}.md"), "--json", str(out / f"{part}.json")]
            found.append(Step(part, [*table, "--only", part, *files], 900))
    return found


def run(step: Step, out: Path) -> dict[str, object]:
    """Run a step with its output in a file; its status and last line."""
    log = out / f"{step.name}.log"
    start = time.perf_counter()
    with log.open("w") as file:
        try:
            status = subprocess.run(
                step.command,
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=step.seconds,
                check=False,
                env={**os.environ, **step.variables},
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return {
        "step": step.name, "status": status, "seconds": round(time.perf_counter() - start, 1),
        "last": lines[-1][:200] if lines else "", "failed": [line[:200] for line in lines if line.startswith("FAILED")],
    }  # fmt: skip


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sanitize", action="store_true", help="also run compute-sanitizer's four tools")
    parser.add_argument("--benchmarks", action="store_true", help="also measure the table of docs/benchmarks.md")
    parser.add_argument("--only", action="append", help="a step (may be given several times)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="folder of the logs")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found = []
    for step in steps(options.out, options.sanitize, options.benchmarks):
        if not options.only or step.name in options.only:
            found.append(run(step, options.out))
            print(
                f"{step.name:<14}{found[-1]['status']:>4}{found[-1]['seconds']:>8} s  {found[-1]['last']}", flush=True
            )
            (options.out / "summary.json").write_text(json.dumps(found, indent=1))
    return sum(1 for row in found if row["status"])


if __name__ == "__main__":
    sys.exit(main())
