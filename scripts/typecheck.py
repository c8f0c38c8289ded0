"""Run mypy over the package as it is imported: a folder of links puts backends, nn and quant inside
it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("backends", "nn", "quant")


def farm(folder: Path) -> Path:
    """Lay links into `folder` so that it holds the package as an installed one is; where it lies."""
    package = folder / "cubepy"
    package.mkdir()
    for entry in [*(ROOT / "cubepy").iterdir(), *(ROOT / part for part in PARTS)]:
        if entry.name != "__pycache__":
            (package / entry.name).symlink_to(entry)
    return package


def main() -> int:
    """The exit status of mypy."""
    with tempfile.TemporaryDirectory() as folder:
        farm(Path(folder))
        settings = ["--config-file", str(ROOT / "pyproject.toml")]
        command = [sys.executable, "-m", "mypy", *settings, "-p", "cubepy"]
        return subprocess.run(
            [*command, "--cache-dir", str(ROOT / ".mypy_cache")], cwd=folder, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
