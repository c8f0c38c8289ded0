"""Objects of Python in graphs: kernels, functions, rules of gradients.

Attributes of nodes are plain values, so a node has the *name* of an object, which keeps it alive. A
graph as text keeps the names that are in it; what is read from a file finds objects of modules that
are imported.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any
from weakref import WeakValueDictionary

from cubepy.errors import FileFormatError

BEGIN = "python:"
_number = itertools.count(1)


class Name(str):
    """The name of an object.

    Attributes:
        of: the object.
    """

    of: Any

    def __new__(cls, text: str, of: Any) -> Name:
        made = super().__new__(cls, text)
        made.of = of
        return made


class Text(str):
    """A graph as text.

    Attributes:
        kept: the names in it.
    """

    kept: tuple[Name, ...]

    def __new__(cls, text: str, kept: tuple[Name, ...]) -> Text:
        made = super().__new__(cls, text)
        made.kept = kept
        return made


_names: WeakValueDictionary[str, Name] = WeakValueDictionary()
_of: WeakValueDictionary[int, Name] = WeakValueDictionary()
"""Names by the identities of what they name."""


def name_of(value: Any) -> Name:
    """The name of an object: its module and qualified name, numbered where others have it.

    Example:
        >>> name_of(name_of)
        'python:cubepy.tensor.custom.names:name_of'
        >>> named(str(name_of(name_of))).of is name_of
        True
    """
    found = _of.get(id(value))
    if found is None:
        module = getattr(value, "__module__", None) or type(value).__module__
        path = getattr(value, "__qualname__", None) or type(value).__qualname__
        text = f"{BEGIN}{module}:{path}"
        if text in _names or _object(text) is not value:
            text = f"{text}#{next(_number)}"
        found = _names[text] = _of[id(value)] = Name(text, value)
    return found


def named(text: str) -> Name:
    """The name that a text is, with its object.

    Raises:
        FileFormatError: there is no such object.
    """
    found = _names.get(text)
    if found is None:
        value = _object(text)
        if value is None:
            raise FileFormatError(
                f"the graph names {text[len(BEGIN) :]!r}, which is not here",
                hint="import the module that defines it first; what was made within a function "
                "has a name in its own process alone",
            )
        found = name_of(value)
    return found


def _object(text: str) -> Any:
    """The object of an imported module that has a name; None where there is none."""
    module, _, path = text[len(BEGIN) :].partition(":")
    value = sys.modules.get(module)
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def names_in(value: Any) -> Iterator[Name]:
    """The names in attributes."""
    if isinstance(value, Name):
        yield value
    elif isinstance(value, Text):
        yield from value.kept
    elif isinstance(value, tuple):
        for part in value:
            yield from names_in(part)


def with_names(value: Any) -> Any:
    """A plain value that was read, with its names as such."""
    if isinstance(value, tuple):
        return tuple([with_names(part) for part in value])
    if not isinstance(value, str) or BEGIN not in value:
        return value
    if value.startswith(BEGIN):
        return named(value)
    if value.startswith("{"):  # the text of a graph
        found = re.findall(rf"{BEGIN}[^\"\\]+", value)
        return Text(value, tuple([named(one) for one in found]))
    return value
