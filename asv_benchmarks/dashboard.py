"""Run the asv suite on this machine and publish a page that opens from disk: what `make asv` does.

    python asv_benchmarks/dashboard.py                   # everything: half an hour and more
    python asv_benchmarks/dashboard.py --bench Softmax   # classes or functions that match
    python asv_benchmarks/dashboard.py --publish-only    # the page, from the results that are there

Benchmarks run in the interpreter that runs this script, with the peers that it has, on the working
tree. Times are kept in asv's own format in `asv_benchmarks/results`, under the commit that the tree
is at, and belong into the repository: the page shows their history. A tree with changes that are
not committed is measured, too, but not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WORK = ROOT / ".asv"


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(re.findall(r"^([^\t:]+)\s*: (.*)$", text, re.MULTILINE))
    family = (
        f" family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else ""
    )
    return fields.get("model name", platform.machine()) + family


def machine_name() -> str:
    """A name that the same kind of machine has again: processor and number of cores, not the host's
    name.
    """
    return (
        re.sub(r"\W+", "-", f"{cpu_name()} {len(os.sched_getaffinity(0))} cores").strip("-").lower()
    )


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def changed() -> bool:
    """Whether files that git follows differ from the commit."""
    return bool(
        git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!asv_benchmarks/results")
    )


def configured(results: Path) -> Path:
    """The project's settings of asv with another folder for results, as a file."""
    settings = json.loads((HERE / "asv.conf.json").read_text())
    places = {"repo": ROOT, "benchmark_dir": HERE / "benchmarks", "results_dir": results,
              "html_dir": WORK / "html" / "asv", "env_dir": WORK / "env"}  # fmt: skip
    settings |= {name: str(place) for name, place in places.items()}
    WORK.mkdir(exist_ok=True)
    file = WORK / "asv.conf.json"
    file.write_text(json.dumps(settings, indent=4))
    return file


def asv(*words: str) -> int:
    """Call asv in a process of its own; its exit status."""
    return subprocess.run([sys.executable, "-m", "asv", *words], cwd=HERE, check=False).returncode


def measure(config: Path, bench: list[str], quick: bool) -> int:
    """Describe the machine, then run what is asked for."""
    name, settings = machine_name(), ["--config", str(config)]
    cores = str(len(os.sched_getaffinity(0)))
    asv("machine", "--yes", "--machine", name, "--cpu", cpu_name(), "--num_cpu", cores, *settings)
    words = [
        "run",
        "--machine",
        name,
        "-E",
        f"existing:{sys.executable}",
        "--set-commit-hash",
        git("rev-parse", "HEAD"),
    ]
    words += [w for b in bench for w in ("--bench", b)]
    if quick:
        words += ["--quick", "--show-stderr"]
    return asv(*words, *settings)


def without_paths(folder: Path) -> None:
    """Name results after the version of Python, not after where it lies: that is nobody's business,
    and changes.
    """
    name = f"existing-py{platform.python_version()}"
    for file in folder.glob("*/*-existing-py_*.json"):
        found = json.loads(file.read_text())
        found |= {"env_name": name, "python": platform.python_version()}
        found["params"]["python"] = platform.python_version()
        target = file.with_name(f"{found['commit_hash'][:8]}-{name}.json")
        if target.exists():  # of other benchmarks of this commit
            found["results"] = json.loads(target.read_text())["results"] | found["results"]
        file.write_text(json.dumps(found))
        file.replace(target)


def main() -> int:
    """Run, publish, say where the page is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--bench", action="append", default=[], help="a regular expression: what to run"
    )
    parser.add_argument(
        "--quick", action="store_true", help="call everything once, keep nothing: does it run?"
    )
    parser.add_argument("--publish-only", action="store_true", help="measure nothing")
    options = parser.parse_args()
    kept, passing = HERE / "results", WORK / "results"
    dirty = changed()
    config = configured(passing if dirty else kept)
    status = 0 if options.publish_only else measure(config, options.bench, options.quick)
    without_paths(passing if dirty else kept)
    if not options.quick:
        asv(
            "publish", "--no-pull", "--config", str(config)
        )  # asv's own pages: they need a server and a network
    folders = [kept, passing] if dirty else [kept]
    target = page.write(page.load(folders), WORK / "html" / "index.html")
    if dirty and not options.publish_only:
        print("the tree has changes that are not committed: these times are shown, not kept")
    print(f"open {target}")
    return status


if __name__ == "__main__":
    sys.exit(main())
