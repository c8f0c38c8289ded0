"""What machine code depends on besides its source, found without importing the compiler."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ABSENT = "absent"


@cache
def versions(lowering: str, packages: tuple[str, ...]) -> str:
    """Versions of the packages, and a digest of the ops.

    Args:
        lowering: the files that lower the text, those of the backend first, as
            "cuda/codegen/lowering.py".
        packages: what it needs.
    """
    backends = Path(__file__).parent.parent
    backend = lowering.partition("/")[0]
    files = [
        *backends.glob("llvm/ops/**/*.py"),
        *backends.glob("gpu/ops/*.py"),
        *backends.glob(f"{backend}/ops/*.py"),
        *(backends / f"llvm/{name}.py" for name in ("generated_source", "passes", "straight")),
        *(file for files in lowering.split() for file in backends.glob(files)),
    ]
    sources = hashlib.sha256()
    for file in sorted(files):
        sources.update(file.read_bytes())
    return " ".join(
        [f"ops {sources.hexdigest()[:16]}", *(f"{n} {version_of(n)}" for n in packages)]
    )


def version_of(package: str) -> str:
    """The version of a package that is installed, or `ABSENT`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ABSENT
