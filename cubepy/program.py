"""Running a file as a program, as `python FILE` does."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence


def run_program(path: str, arguments: Sequence[str] = ()) -> None:
    """Run a file as `__main__`: modules beside it can be imported, and `sys.argv` is its own
    meanwhile.
    """
    argv, folders = sys.argv, sys.path
    sys.argv, sys.path = [path, *arguments], [os.path.dirname(os.path.abspath(path)), *folders]
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path = argv, folders
