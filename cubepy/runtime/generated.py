"""Functions that are written as text while a program runs, such as the one that repeats a call.

Compiling text to bytecode takes a quarter of a millisecond, as long as all else about a call of a
new shape. What is written therefore holds names in place of numbers that depend on shapes, so that
calls of one structure share the text, and its bytecode is made once. That of a long text is kept on
disk for other processes.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from cubepy.runtime import cache

LONG = 8192
"""Characters of a text whose bytecode is kept: the 84,000 of a small GPT's training step take 20 ms
to compile and 1 ms to read.
"""
PYTHON = f"{importlib.util.MAGIC_NUMBER.hex()} {sys.flags.optimize}"
"""What bytecode depends on besides its text."""


@lru_cache(4096)
def _code(text: str, file: str) -> CodeType:
    if len(text) < LONG:
        return _compiled(text, file)
    name = cache.digest("bytecode", PYTHON, file, text)
    kept = cache.read(name, ".code")
    if kept is not None:
        return marshal.loads(kept)  # type: ignore[no-any-return]
    code = _compiled(text, file)
    cache.write(name, marshal.dumps(code), ".code")
    return code


def _compiled(text: str, file: str) -> CodeType:
    whole = compile(text, file, "exec")
    return next(c for c in whole.co_consts if isinstance(c, CodeType))


def written(text: str, file: str, scope: dict[str, Any]) -> Any:
    """The function that a text defines (one `def` without defaults), with the values of its other
    names.

    Args:
        text: equal for all that differ in values alone.
        file: what tracebacks call it.
        scope: the values; it becomes the function's globals.

    Example:
        >>> written("def add(x):\\n    return x + n", "<example>", {"n": 2})(3)
        5
    """
    scope.setdefault("__builtins__", __builtins__)
    # A copy, since the interpreter keeps in the bytecode itself where it found names: shared, it
    # would look again.
    return FunctionType(_code(text, file).replace(), scope)
