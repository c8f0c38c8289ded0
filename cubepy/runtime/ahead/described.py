"""What a walk over a kernel of the library depends on, as text that is the same in every process.

Only what is certain has a text: numbers, dtypes, objects that a module of cubepy holds under their
own name, functions that are written down as a whole, and immutable records of these. Whatever else
a kernel is given has none, and the kernel is walked.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
import sys
import time
import types
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cubepy.lang.declare import Func, Kernel
from cubepy.lang.dtypes import DType
from cubepy.lang.struct import StructType

STARTED = time.time()
MARGIN = 10.0
"""Seconds: sources that were written later than so long before the process began may not be what it
has imported."""
PLAIN = (bool, int, str, bytes, type(None))


class Unknown(Exception):
    """There is no text for a value."""


def described(value: Any) -> str:
    """A text that is equal for values that mean the same to a kernel, and for no others.

    Raises:
        Unknown: nobody can tell.

    Example:
        >>> import cubepy as cb
        >>> described((1, True, 0.5, cb.f32))
        '(int:1,bool:True,float:0x1.0000000000000p-1,dtype:f32,)'
    """
    kind = type(value)
    if kind in PLAIN:
        return f"{kind.__name__}:{value!r}"
    if kind is float:
        return f"float:{value.hex()}"
    if kind is tuple:
        return "(" + "".join(f"{described(part)}," for part in value) + ")"
    if kind is frozenset:
        return "{" + "".join(f"{part}," for part in sorted(map(described, value))) + "}"
    if kind is DType:
        return f"dtype:{value.name}"
    if isinstance(value, np.dtype) and value.names is None:
        return f"numpy:{value.str}"
    if isinstance(value, enum.Enum):
        return f"{named(kind)}.{value.name}"
    if kind is Func and value.text is not None:
        return f"func:{described(value.text)}"
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:
        fields = dataclasses.fields(value)
        parts = [f"{f.name}={described(getattr(value, f.name))}," for f in fields]
        return f"{named(kind)}({''.join(parts)})"
    if kind in (Func, Kernel):
        if not in_sources(value.fn):
            raise Unknown(value)
        return named(value)
    if isinstance(value, (type, StructType)) or (
        isinstance(value, types.FunctionType) and in_sources(value)
    ):
        return named(value)
    reduced = getattr(kind, "__reduce__", object.__reduce__)
    if reduced is not object.__reduce__ and (kind.__module__ or "").startswith("cubepy.lang."):
        name = reduced(value)  # builtins are known by their names
        if type(name) is str and getattr(sys.modules["cubepy"], name, None) is value:
            return f"builtin:{name}"
    raise Unknown(value)


def named(value: Any) -> str:
    """The name of an object that a module of cubepy holds.

    Raises:
        Unknown: none does.
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if type(module) is not str or module.partition(".")[0] != "cubepy" or type(name) is not str:
        raise Unknown(value)
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not value:
        raise Unknown(value)
    return f"{module}:{name}"


def in_sources(fn: Any) -> bool:
    """Whether a function stands in a file of cubepy, which `sources` looks at."""
    code = getattr(fn, "__code__", None)
    return code is not None and code.co_filename.startswith(_folders())


@cache
def _folders() -> tuple[str, ...]:
    """Where the modules of cubepy are; a checkout has some of them beside the package."""
    found: set[str] = set()
    for name in ("cubepy", "cubepy.backends", "cubepy.nn", "cubepy.quant"):
        spec = find_spec(name)
        if spec is not None:
            found.update(os.path.join(p, "") for p in spec.submodule_search_locations or ())
    return tuple(sorted(found))


def scanned() -> str | None:
    """What tells the sources of cubepy from others: a hash of names, sizes and times of all files,
    as Python itself tells whether a compiled module is up to date, and of what is in them where all
    have one time. None where a file was written so late that the process may have imported
    another one.
    """
    parts: list[str] = []
    paths: list[str] = []
    times: set[int] = set()
    stack, newest = list(_folders()), 0.0
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        stack.append(entry.path)
                elif entry.name.endswith(".py"):
                    state = entry.stat()
                    newest = max(newest, state.st_mtime)
                    times.add(state.st_mtime_ns)
                    paths.append(entry.path)
                    parts.append(f"{entry.path}\0{state.st_size}\0{state.st_mtime_ns}")
    if not parts or newest > STARTED - MARGIN:
        return None
    if len(times) == 1:  # what installed them gave all files one time, which says nothing
        parts += [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in sorted(paths)]
    text = "\n".join([sys.version, str(sys.flags.optimize), *sorted(parts)])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _looked() -> str | None:
    try:
        return scanned()
    except OSError:
        return None


sources = cache(_looked)
"""What `scanned` gave when it was asked first; None where it could not say."""


@lru_cache(maxsize=1)
def _later(period: int) -> str | None:
    """What it gave when it was asked first in a period."""
    return _looked()


def unchanged() -> bool:
    """Whether the sources are what they were when they were looked at first; they are looked at
    again every other second.
    """
    return sources() is not None and _later(int(time.monotonic()) // 2) == sources()
