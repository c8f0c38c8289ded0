"""Run data-apis/array-api-tests on `cubepy.tensor`: `make array-api-tests SUITE=path`.

The path is that of a checkout with its submodule `array-api`. What is left out is in `OUT`, each
with its reason; whatever else fails is an error.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = "2024.12"
LEFT_OUT = ("fft",)
"""Extensions of the standard that the namespace has not."""
OUT = {
    "complex numbers, which kernels do not have": ("real(x_i)", "imag(x_i)", "vecdot_conj"),
    "the extension fft is of complex numbers": ("test_has_names[fft-",),
}
"""Why tests are left out, and what their names hold."""


def reason(name: str) -> str | None:
    """Why a test is left out; None for one that has to pass."""
    for why, parts in OUT.items():
        if any(part in name for part in parts):
            return why
    return None


def names(suite: Path, environment: dict[str, str]) -> list[str]:
    """The names of all tests of the suite."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "--disable-warnings",
        "array_api_tests",
    ]
    found = subprocess.run(
        command, cwd=suite, env=environment, capture_output=True, text=True, check=False
    )
    tests = [line for line in found.stdout.splitlines() if "::" in line]
    if not tests:
        raise SystemExit(f"no tests are collected in {suite}:\n{found.stdout}{found.stderr}")
    return tests


def main() -> int:
    """The exit status of the suite."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("suite", type=Path, help="the checkout")
    options, rest = parser.parse_known_args()
    environment = os.environ | {
        "ARRAY_API_TESTS_MODULE": "cubepy.tensor",
        "ARRAY_API_TESTS_VERSION": VERSION,
        "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    left = {name: why for name in names(options.suite, environment) if (why := reason(name))}
    for why in OUT:
        print(f"left out: {sum(w == why for w in left.values())} tests: {why}")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as skips:
        skips.write("\n".join(left))
        skips.flush()
        command = [
            *(sys.executable, "-m", "pytest", "-q", "--disable-warnings", "--disable-deadline"),
            *("--skips-file", skips.name, "--disable-extension", *LEFT_OUT, "--"),
            "array_api_tests",
        ]
        at = command.index("--disable-extension")
        command = [*command[:at], *rest, *command[at:]]
        return subprocess.run(command, cwd=options.suite, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
