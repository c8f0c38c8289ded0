"""Whether two commits generate the same code: the proof of a refactoring.

Runs the test suite on both commits and notes every program that a backend is asked to compile: the
generated text, the options and the parameters, which is what names an entry of the cache (without
the versions of the packages and of the ops, which belong to the installation). A commit that only
moves or renames leaves the set as it is.

    python scripts/same_code.py HEAD~1 HEAD
    python scripts/same_code.py main my-branch -- -n 2 tests/kernels tests/conformance

With `--names` programs are compared up to the names of their variables and kernels, which is what
a commit that renames identifiers has to leave alone:

    python scripts/same_code.py --names HEAD~1 HEAD -- -n 2 tests/kernels

Everything behind `--` goes to pytest. The exit status is 0 when the sets are equal. Random numbers
that tests draw without a seed are given one, and tests of a file run in order in one process, so
that a second run of the same commit gives the same set.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("backends", "nn", "quant")

RECORDER = """
import atexit, hashlib, keyword, os, re
import numpy as np
from cubepy.runtime import cache

programs, digest, make = set(), cache.digest, np.random.default_rng

WORD = re.compile(r'"[^"\\n]*"|' + r"'[^'\\n]*'" + r'|(?<![\\w.])[A-Za-z_]\\w*(?!\\w|\\()')
NAME = re.compile(r"(?<=\\(name=')[^']*")

def numbered(text, parameters):
    # Variables by their first appearance; ops are what is called, and stay, as texts do.
    names = {}
    def number(m):
        if not (m[0][0].isalpha() or m[0][0] == "_") or keyword.iskeyword(m[0]):
            return m[0]
        return names.setdefault(m[0], f"v{len(names)}")
    title, _, rest = text.partition("\\n")
    text = title.partition(":")[2] + WORD.sub(number, rest)
    return text, NAME.sub(lambda m: names.get(m[0], m[0]), parameters)

def recorded(*parts):
    if len(parts) == 4:  # a backend's: text, options, parameters, versions
        title = parts[0].split("\\n", 1)[0].strip('"')
        text, options, parameters, _ = parts
        if "SAME_CODE_NAMES" in os.environ:
            text, parameters = numbered(text, parameters)
        key = hashlib.sha256("\\0".join([text, options, parameters]).encode()).hexdigest()
        programs.add(key + " " + title)
    return digest(*parts)

def seeded(seed=None):
    return make(0 if seed is None else seed)

def write():
    if programs:
        with open(os.path.join(os.environ["SAME_CODE"], f"{os.getpid()}.txt"), "w") as f:
            f.write("\\n".join(programs))

cache.digest, np.random.default_rng = recorded, seeded
atexit.register(write)

def pytest_sessionfinish():
    write()
"""


def git(*arguments: str) -> str:
    """What a git command prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def programs_of(commit: str, pytest: list[str], folder: Path) -> dict[str, str]:
    """The programs that the tests of a commit compile: their hashes, with a name for each."""
    name = git("rev-parse", "--short", commit)
    tree, notes = folder / f"tree-{name}", folder / f"notes-{name}"
    notes.mkdir()
    git("worktree", "add", "--detach", "--force", str(tree), name)
    try:
        for part in MAPPED:
            (tree / "cubepy" / part).symlink_to(tree / part)
        (notes / "same_code_recorder.py").write_text(RECORDER)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(tree), str(notes)]),
            "SAME_CODE": str(notes),
            "CUBEPY_CACHE_DIR": str(ROOT / ".cache" / "same-code"),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "same_code_recorder"]
        command += ["--dist", "loadfile", *pytest]
        print(f"{commit} ({name}): {' '.join(command[2:])}", flush=True)
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        print("\n".join(done.stdout.strip().splitlines()[-1:]), flush=True)
    finally:
        git("worktree", "remove", "--force", str(tree))
    lines = [line for path in notes.glob("*.txt") for line in path.read_text().splitlines()]
    return dict(line.split(" ", 1) for line in lines)


def only_in(commit: str, programs: Counter[str]) -> None:
    """Print what one side alone has."""
    for text, count in sorted(programs.items()):
        print(f"only in {commit}: {count} x {text}")


def main() -> int:
    """The exit status: 0 when both commits compile the same programs."""
    own, _, pytest = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commits", nargs=2, metavar="COMMIT")
    parser.add_argument("--names", action="store_true", help="compare up to names")
    given = parser.parse_args(own.split())
    first, second = given.commits
    if given.names:
        os.environ["SAME_CODE_NAMES"] = "1"
    with tempfile.TemporaryDirectory(prefix="same-code-") as folder:
        before, after = (
            programs_of(c, pytest.split() or ["-n", "2"], Path(folder)) for c in (first, second)
        )
    lost, new = before.keys() - after.keys(), after.keys() - before.keys()
    print(
        f"{len(before)} programs in {first}, {len(after)} in {second}: {len(lost)} lost, {len(new)} new"
    )
    only_in(first, Counter(before[key] for key in lost))
    only_in(second, Counter(after[key] for key in new))
    if not before:
        print("nothing was compiled: the proof is void")
    return int(bool(lost or new or not before))


if __name__ == "__main__":
    sys.exit(main())
