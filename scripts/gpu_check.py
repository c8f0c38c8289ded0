"""Everything that needs an NVIDIA GPU, with one command: the tests, the sanitizers, the table of
benchmarks.

    python scripts/gpu_check.py                            # the tests
    python scripts/gpu_check.py --sanitize --benchmarks    # and races, memory, speed
    python scripts/gpu_check.py --only tests --only racecheck --out logs

What each step printed is in the folder `--out`, beside `summary.json`; the exit status is the
number of failed steps. The sanitizers are compute-sanitizer of the CUDA toolkit; a machine without
it skips them and says so. They run at the same time, each in several processes, after a run without
them has compiled the kernels; arrays do not share memory then, so that what lies beyond an array is
nobody's. A planted mistake must be found each time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "tests/device",
    "tests/conformance",
    "tests/backends/cuda/test_matrix.py",
    "tests/conformance/test_random_kernels.py",
)
TENSORS = ("tests/tensor", "tests/nn", "tests/models", "tests/quant", "tests/tour")
"""Run with the GPU as the default device, but for `tests/device/of_the_host.txt`."""
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
PARTS = (
    "memory_bound",
    "library",
    "matmul",
    "convolution",
    "attention",
    "quant",
    "launch",
    "minilm",
    "models",
    "training",
    "cold_start",
    "sweep",
)
SANITIZED = ("tests/conformance", "tests/backends/cuda/test_matrix.py")
PLANTED = ("memcheck", "racecheck", "initcheck")  # what `tests.device.planted` has a mistake for
HONEST = "not cpu and not python and not fault and not out_of_bounds and not assert"
"""Without the tests that make mistakes on purpose."""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
STRESS = [sys.executable, "scripts/stress_gpu.py", "--seconds", "60", "--interval", "4"]
"""In a round of its own: how much memory the GPU has left tells of this process alone."""
WORKERS = max(1, (os.cpu_count() or 1) - 2)
SECONDS = 900
LIBRARY = (
    "memcheck-library",
    "racecheck-library",
)  # the tools that run over the library's tests, too
ON_GPU = {"CUBEPY_TEST_DEVICE": "cuda"}
FOUND = 9  # the exit status of a sanitizer that found a mistake
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|hazards?)\b")


@dataclass(frozen=True)
class Step:
    """Commands that run at the same time, and the exit status that each should have."""

    name: str
    commands: list[list[str]]
    variables: dict[str, str] = field(default_factory=dict)
    expected: int = 0
    shared: bool = False  # its commands take turns at the GPUs


def rounds(out: Path, sanitize: bool, benchmarks: bool, only: list[str]) -> list[list[Step]]:
    """What is run: the steps of a round at the same time, one round after the other."""
    spread = (
        ["-n", str(WORKERS), "--dist", "worksteal"] if importlib.util.find_spec("xdist") else []
    )
    found = [
        [Step("tests", [[*PYTEST, *TESTS, "-k", "not cpu and not python", *spread]])],
        [Step("library", [[*PYTEST, "tests/kernels", *spread]], ON_GPU)],
        [Step("tensors", [[*PYTEST, *TENSORS, *spread]], {"CUBEPY_BACKEND": "cuda"})],
        [Step("stress", [STRESS])],
    ]
    tools = [tool for tool in (*TOOLS, *LIBRARY) if tool in only or (sanitize and not only)]
    if tools and shutil.which("compute-sanitizer"):
        found += sanitizers([tool for tool in tools if tool not in LIBRARY], spread)
        over = [tool for tool in tools if tool in LIBRARY]
        if over:
            tests = tests_of("tests/kernels", **ON_GPU)
            found.append(
                [
                    under(name.split("-")[0], name, tests, -(-WORKERS // len(over)), ON_GPU)
                    for name in over
                ]
            )
    elif tools:
        print("compute-sanitizer is not on the path: no sanitizers", flush=True)
    for part in PARTS if benchmarks or only else ():
        files = ["--write", str(out / f"{part}.md"), "--json", str(out / f"{part}.json")]
        found.append(
            [
                Step(
                    f"{part}-speed",
                    [[sys.executable, "asv_benchmarks/gpu.py", "--only", part, *files]],
                )
            ]
        )
    wanted = {*only, "compiled", *(f"{tool}-planted" for tool in only)}
    return [[step for step in steps if not only or step.name in wanted] for steps in found]


def sanitizers(tools: list[str], spread: list[str]) -> list[list[Step]]:
    """The tools side by side, after a run that compiles."""
    if not tools:
        return []
    tests = tests_of(*SANITIZED)
    steps = [under(tool, tool, tests, -(-WORKERS // len(tools)), {}) for tool in tools]
    for tool in tools:
        if tool in PLANTED:
            command = [*wrapped(tool), sys.executable, "-m", "tests.device.planted", tool]
            steps.append(Step(f"{tool}-planted", [command], {"CUBEPY_MEMORY_POOL": "0"}, FOUND))
    return [[Step("compiled", [[*PYTEST, *SANITIZED, "-k", HONEST, *spread]])], steps]


def tests_of(*paths: str, **variables: str) -> list[str]:
    """The tests in files, without those that make mistakes on purpose."""
    listing = [*PYTEST, *paths, "-k", HONEST, "--collect-only"]
    env = {**os.environ, **variables}
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    return [line for line in listed.stdout.splitlines() if "::" in line]


def wrapped(tool: str) -> list[str]:
    """What comes before a command that runs under a tool."""
    return ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND)]


def under(tool: str, name: str, tests: list[str], parts: int, variables: dict[str, str]) -> Step:
    """Tests under a tool, in so many processes."""
    shares = [tests[k::parts] for k in range(parts)]
    commands = [[*wrapped(tool), *PYTEST, "--durations=3", *share] for share in shares if share]
    return Step(name, commands, {"CUBEPY_MEMORY_POOL": "0", **variables}, shared=True)


def run(step: Step, number: int, log: Path) -> int:
    """Run a command of a step with its output in a file; its exit status."""
    gpu = (
        {"CUDA_VISIBLE_DEVICES": str(number % len(gpus()))}
        if step.shared and len(gpus()) > 1
        else {}
    )
    with log.open("w") as file:
        try:
            return subprocess.run(
                step.commands[number],
                cwd=ROOT,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
                env={**os.environ, **gpu, **step.variables},
            ).returncode
        except subprocess.TimeoutExpired:
            return 124


@cache
def gpus() -> list[str]:
    """The GPUs that a command sees."""
    code = "import cubepy; print(*[d.name for d in cubepy.devices() if d.backend == 'cuda'], sep=chr(10))"
    listed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return listed.stdout.splitlines()


def together(steps: list[Step], out: Path) -> list[dict[str, object]]:
    """Run the commands of several steps; for each step its status, its time and what its last lines
    count.
    """
    jobs = [
        (step, n, out / f"{step.name}.{n}.log") for step in steps for n in range(len(step.commands))
    ]
    start = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as pool:
        statuses = list(pool.map(lambda job: run(*job), jobs))
    seconds, rows = round(time.perf_counter() - start, 1), []
    for step in steps:
        mine = [
            (log, status) for (s, _, log), status in zip(jobs, statuses, strict=True) if s is step
        ]
        counts: Counter[str] = Counter()
        with (out / f"{step.name}.log").open("w") as whole:
            for log, _ in mine:
                text = log.read_text(errors="replace")
                whole.write(text)
                log.unlink()
                for number, what in COUNTED.findall("\n".join(text.splitlines()[-3:])):
                    counts[what.rstrip("s")] += int(number)
        lines = (out / f"{step.name}.log").read_text().splitlines()
        rows.append(
            {
                "step": step.name,
                "status": max(status != step.expected for _, status in mine),
                "seconds": seconds,
                **counts,
                "last": next((line[:200] for line in reversed(lines) if line.strip()), ""),
                "found": [
                    line[:200] for line in lines if line.startswith(("FAILED", "=========     at "))
                ],
            }
        )
    return rows


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sanitize", action="store_true", help="also run compute-sanitizer's four tools"
    )
    parser.add_argument(
        "--benchmarks",
        action="store_true",
        help="also measure the table of docs/benchmarks/h200.md",
    )
    parser.add_argument(
        "--only", action="append", default=[], help="a step (may be given several times)"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "gpu", help="folder of the logs"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, object]] = []
    for steps in rounds(options.out, options.sanitize, options.benchmarks, options.only):
        for row in together(steps, options.out):
            found.append(row)
            counted = ", ".join(
                f"{row[k]} {k}" for k in ("passed", "failed", "error", "hazard") if k in row
            )
            print(
                f"{row['step']:<14}{row['status']:>4}{row['seconds']:>8} s  {counted or row['last']}",
                flush=True,
            )
            (options.out / "summary.json").write_text(json.dumps(found, indent=1))
    return sum(1 for row in found if row["status"])


if __name__ == "__main__":
    sys.exit(main())
