"""Options of the library's functions by their annotations: a `bool` is True or False, a `str` is a
string.

What a flag or a name must be is said once, where a function declares its parameters, and looked at
before the function runs: an array as a flag would only fail, or would pass, somewhere inside.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError


def is_flag(value: Any) -> bool:
    """Whether a value is True or False, or a number that stands for one."""
    return (
        value is True
        or value is False
        or (isinstance(value, (int, np.bool_, np.integer)) and value in (0, 1))
    )


def _name(value: Any) -> bool:
    return isinstance(value, str)


_KINDS: dict[str, tuple[type, Callable[[Any], bool], str]] = {
    "bool": (bool, is_flag, "True or False"),
    "bool | None": (bool, lambda value: value is None or is_flag(value), "True, False or None"),
    "str": (str, _name, "a string"),
    "str | None": (str, lambda value: value is None or _name(value), "a string or None"),
}
"""The type that nearly all values of an annotation have, whether one fits, and what a message calls
that.
"""


@functools.cache
def looked_at(function: Callable[..., Any]) -> Callable[[tuple, dict[str, Any]], None]:
    """What raises ArgumentError where an option among the arguments of a call has a wrong type.

    Example:
        >>> def f(x: "Any", keepdims: "bool" = False): ...
        >>> looked_at(f)((1, "yes"), {})
        Traceback (most recent call last):
            ...
        cubepy.errors.ArgumentError: keepdims must be True or False, not 'yes'
    """
    named, placed = {}, []
    for n, p in enumerate(inspect.signature(function).parameters.values()):
        if p.annotation in _KINDS:
            named[p.name] = _KINDS[p.annotation]
            if p.kind is p.POSITIONAL_OR_KEYWORD:
                placed.append((n, p.name))
    first = placed[0][0] if placed else sys.maxsize

    def look(args: tuple, kwargs: dict[str, Any]) -> None:
        for name in kwargs:
            if name in named:
                refuse_misfit(name, kwargs[name])
        if len(args) > first:
            for index, name in placed:
                if index < len(args):
                    refuse_misfit(name, args[index])

    def refuse_misfit(name: str, value: Any) -> None:
        plain, fits, wanted = named[name]
        if type(value) is not plain and not fits(value):
            raise ArgumentError(f"{name} must be {wanted}, not {shown(value)}")

    return look


def shown(value: Any) -> str:
    """A wrong argument in a message: arrays by their shape and dtype."""
    shape = getattr(value, "shape", None)
    return (
        f"{value!r}"[:60]
        if shape is None
        else f"an array of shape {shape} and dtype {getattr(value, 'dtype', '?')}"
    )
