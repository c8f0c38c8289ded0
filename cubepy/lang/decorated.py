"""What `@cb.kernel` and `@cb.func` may stand above."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from typing import Any

from cubepy.errors import KernelTypeError, Location


def written(fn: Any, decorator: str) -> Callable:
    """What a decorator was given, which must be a function written in Python.

    Raises:
        KernelTypeError: it is something else: a class, a builtin, a lambda, a `functools.partial`,
            ...
    """
    if isinstance(fn, (staticmethod, classmethod)) or hasattr(fn, "launches"):
        kind = "kernel" if hasattr(fn, "launches") else type(fn).__name__
        raise KernelTypeError(
            f"@cb.{decorator} takes a function written in Python, not a {kind}",
            hint=f"write @{kind} above @cb.{decorator}"
            if kind == "staticmethod"
            else f"write @cb.{decorator} alone above the def",
        )
    inner = inspect.unwrap(fn) if callable(fn) else fn
    if not (inspect.isfunction(inner) or inspect.ismethod(inner)):
        raise KernelTypeError(
            f"@cb.{decorator} takes a function written in Python, not {fn!r}",
            hint="write a def, and give what is fixed as a cb.Comptime parameter",
        )
    if inner.__name__ == "<lambda>":
        code = inner.__code__
        at = linecache.getline(code.co_filename, code.co_firstlineno).find("lambda")
        raise KernelTypeError(
            f"@cb.{decorator} takes a function made with def, not a lambda",
            location=Location(
                code.co_filename, code.co_firstlineno, max(0, at), inner.__qualname__
            ),
            hint=f"it is read from its source: write @cb.{decorator} above a def",
        )
    return fn  # type: ignore[no-any-return]
