"""Generated files as modules of Python."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def load_source(path: Path) -> Any:
    """Import a generated file under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"cubepy_generated_{path.stem[:16]}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
