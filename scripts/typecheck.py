"""Run mypy over the package as it is imported: a temporary folder of links puts backends, nn and quant inside it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """The exit status of mypy."""
    with tempfile.TemporaryDirectory() as folder:
        farm = Path(folder) / "cubepy"
        farm.mkdir()
        for entry in (ROOT / "cubepy").iterdir():
            if entry.name != "__pycache__":
                (farm / entry.name).symlink_to(entry)
        for part in ("backends", "nn", "quant"):
            (farm / part).symlink_to(ROOT / part)
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "-p",
            "cubepy",
        ]
        return subprocess.run(
            [*command, "--cache-dir", str(ROOT / ".mypy_cache")], cwd=folder, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
