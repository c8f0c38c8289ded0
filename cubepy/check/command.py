"""`python -m cubepy check DEVICE`: the cases in a process that may end, and the report."""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from typing import IO, Any

from cubepy.check import worker
from cubepy.checkout import HERE
from cubepy.errors import ConfigError
from cubepy.runtime.device import as_device

PACKAGES = ("cubepy", "numpy", "numba", "llvmlite", "numba-cuda", "numba-hip", "torch")
LIMIT = 120.0
"""Seconds that a case may take on a GPU; emulated ones may take ten times as long."""
PROCESSES = 8
"""After so many that ended before their time, no more are begun."""
NAME = "cubepy-check-{}.json"


def add_command(commands: Any) -> None:
    """Declare the arguments of the command."""
    check = commands.add_parser(
        "check", help="whether a GPU does what it should; writes a report to send"
    )
    check.add_argument("device", help="such as hip, hip:1 or cuda")
    check.add_argument("--emulate", metavar="PROCESSOR", help="emulate one, such as gfx942")
    check.add_argument("--only", metavar="PATTERN", help="cases whose names this matches")
    check.add_argument("--report", metavar="FILE", help="file to write")
    check.add_argument("--worker", metavar="NUMBERS", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Check a device; 0 where all cases pass, 1 where one does not.

    Raises:
        ConfigError: no case is meant, or an emulator that is not there.
        DeviceError: there is no such device.
    """
    if arguments.worker is not None:
        numbers = [int(n) for n in arguments.worker.split(",")]
        return worker.work(arguments.device, arguments.emulate, numbers)
    if not arguments.emulate:
        as_device(arguments.device)
    names = worker.all_names()
    numbers = [n for n, (_, name) in enumerate(names) if matches(arguments.only, name)]
    if not numbers:
        raise ConfigError(
            f"no case is called {arguments.only!r}",
            hint="the cases are " + ", ".join(name for _, name in names),
        )
    path = arguments.report or NAME.format(arguments.device.replace(":", "-"))
    check_writable(path)
    report = checked(arguments.device, arguments.emulate, numbers)
    with open(path, "w") as file:
        json.dump(report, file, indent=1)
    bad = [r for r in report["results"] if r["status"] != "passed"]
    for r in bad:
        print(f"{r['group']}: {r['name']}: {r['status']}: {r.get('detail', '')}")
    for name, value in () if arguments.emulate else speeds(report):
        print(f"{name}: {value:.3g}")
    print(f"{len(report['results']) - len(bad)} of {len(report['results'])} cases passed; {path}")
    return 1 if bad else 0


def check_writable(path: str) -> None:
    """Raise, before the work, the `OSError` that writing a report would end with."""
    known = os.path.exists(path)
    open(path, "a").close()
    if not known:
        os.remove(path)


def speeds(report: dict[str, Any]) -> list[tuple[str, float]]:
    """What was measured, by name."""
    return [item for r in report["results"] for item in r.get("measured", {}).items()]


def matches(pattern: str | None, name: str) -> bool:
    """Whether a case is meant.

    Raises:
        ConfigError: the pattern is none.
    """
    try:
        return pattern is None or re.search(pattern, name) is not None
    except re.error as error:
        raise ConfigError(f"--only is no regular expression: {error}") from error


def checked(device: str, emulate: str | None, numbers: list[int]) -> dict[str, Any]:
    """The report about a device.

    Raises:
        ConfigError: the process for it cannot begin.
    """
    start, left, ended = time.perf_counter(), list(numbers), 0
    found: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    while left:
        lines, how = one_process(device, emulate, left)
        if not lines:
            raise ConfigError(how)
        begun = None
        for line in lines:
            about = line.get("device", about)
            begun = line.get("begins", begun)
            if "found" in line:
                found.append(line["found"])
                left.remove(line["number"])
                begun = None
        if begun is not None:
            found.append({**named(begun), "status": "ended", "detail": how})
            left.remove(begun)
        ended += 1
        if ended == PROCESSES:
            found += [{**named(n), "status": "not run", "detail": how} for n in left]
            break
    return {
        "device": about,
        "emulated": emulate or False,
        "versions": versions(),
        "seconds": round(time.perf_counter() - start, 1),
        "results": found,
    }


def named(number: int) -> dict[str, Any]:
    """Group and name of a case."""
    return dict(zip(("group", "name"), worker.all_names()[number], strict=True))


def one_process(
    device: str, emulate: str | None, numbers: list[int]
) -> tuple[list[dict[str, Any]], str]:
    """What a process said of cases, until it ended; and how it ended."""
    command = [sys.executable, "-m", "cubepy", "check", device]
    command += ["--worker", ",".join(map(str, numbers))]
    command += ["--emulate", emulate] if emulate else []
    paths = [os.path.dirname(HERE), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    limit = LIMIT * (10 if emulate else 1)
    lines: list[dict[str, Any]] = []
    said: queue.Queue[str | None] = queue.Queue()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        assert process.stdout is not None
        threading.Thread(target=listen, args=(process.stdout, said), daemon=True).start()
        how = ""
        try:
            while (line := said.get(timeout=limit)) is not None:
                lines.append(json.loads(line))
        except queue.Empty:
            how = f"it said nothing for {limit:.0f} s; "
        finally:
            if how or sys.exc_info()[0] is not None:
                process.kill()
            status = process.wait()
        errors.seek(0)
        tail = errors.read().decode(errors="replace")[-2000:]
    return lines, f"{how}the process ended with the status {status}: {tail}"


def listen(stream: IO[str], said: queue.Queue[str | None]) -> None:
    """Pass lines of JSON on, until there are no more."""
    for line in stream:
        if line.startswith("{"):
            said.put(line)
    said.put(None)


def versions() -> dict[str, str]:
    """Of Python, the system, and packages that matter."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    found |= {k: v for k, v in os.environ.items() if k.startswith(("HIP_", "ROCR_", "HSA_"))}
    return found
