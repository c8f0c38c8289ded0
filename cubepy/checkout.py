"""Finds `cubepy.backends`, `cubepy.nn` and `cubepy.quant` where a checkout has them: beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = ("backends", "nn", "quant")
"""The folders that `setup.py` maps into the package."""


class Beside:
    """A finder of these names alone: whatever else lies in a checkout is not of the package."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names = frozenset(f"cubepy.{part}" for part in PARTS)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module is loaded from; None for one that is not ours."""
        return PathFinder.find_spec(name, [self.folder], target) if name in self.names else None


def install() -> None:
    """Let the parts be imported from beside the package, unless they lie inside it.

    The finder comes first: an editable install of another checkout would answer for its own.
    """
    if not os.path.isdir(os.path.join(HERE, "nn")):
        sys.meta_path.insert(0, Beside(os.path.dirname(HERE)))
