"""Running a file as a program, as `python FILE` does."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
import zipfile
from collections.abc import Sequence
from types import TracebackType

from cubepy.errors import ConfigError


def run_program(path: str, arguments: Sequence[str] = ()) -> None:
    """Run a file as `__main__`: modules beside it can be imported, and `sys.argv` is its own
    meanwhile. `check_program` says before whether it can be run.
    """
    argv, folders = sys.argv, sys.path
    sys.argv, sys.path = [path, *arguments], [os.path.dirname(os.path.abspath(path)), *folders]
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path = argv, folders


def check_program(path: str) -> None:
    """Read a file as Python, as far as that can be done without running it.

    Raises:
        ConfigError: the file holds no Python program.
        OSError: it is not there, or may not be read.
    """
    if not path:
        raise ConfigError("the path of the program is empty", hint="name a .py file")
    if os.path.isdir(path):
        if not os.path.exists(os.path.join(path, "__main__.py")):
            raise ConfigError(
                f"{path} is a folder without a program", hint="name a .py file, or add __main__.py"
            )
        path = os.path.join(path, "__main__.py")
    with open(path, "rb") as file:
        text = file.read()
    if path.endswith(".pyc") or zipfile.is_zipfile(path):
        return
    try:
        compile(text, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # ValueError: bytes of zero, by some Pythons
        line, what = getattr(error, "lineno", None), getattr(error, "msg", None) or str(error)
        where = f" in line {line}" if line else ""
        raise ConfigError(f"{path} is no Python program: {what}{where}") from None


def own_traceback(error: BaseException) -> TracebackType | None:
    """Where an error came from, beginning in the program and not in what ran it."""
    frames = error.__traceback__
    while frames is not None and (
        frames.tb_frame.f_code.co_filename == __file__ or "runpy" not in _file(frames)
    ):
        frames = frames.tb_next
    while frames is not None and "runpy" in _file(frames):
        frames = frames.tb_next
    return frames or error.__traceback__


def _file(frames: TracebackType) -> str:
    return os.path.basename(frames.tb_frame.f_code.co_filename)


def failure(path: str, error: BaseException) -> str:
    """What is said in one line of a program that ended with an error."""
    begun = traceback.extract_tb(own_traceback(error), 1)
    where = f" (line {begun[0].lineno})" if begun else ""
    return f"{path}{where} raised {type(error).__name__}: {error}"
