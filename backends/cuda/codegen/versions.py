"""What machine code depends on besides its source, found without importing the compiler."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("numba", "numba-cuda", "llvmlite", "nvidia-nvjitlink", "nvidia-nvvm")


@cache
def versions() -> str:
    """Versions of the packages, and a digest of the ops."""
    here = Path(__file__).parent
    backends = here.parent.parent
    sources = hashlib.sha256()
    shared = [*backends.glob("llvm/ops/*.py"), backends / "llvm/passes.py"]
    for file in sorted([*shared, *backends.glob("cuda/ops/*.py"), here / "lowering.py"]):
        sources.update(file.read_bytes())
    return " ".join([f"ops {sources.hexdigest()[:16]}", *(f"{n} {_version(n)}" for n in PACKAGES)])


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
