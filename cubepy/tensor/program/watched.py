"""Objects whose attributes decide what a function of tensors does, such as modules.

They say when any of them changes, which is one number: a program looks closer only when that is
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from cubepy.compiler.reads import HOLDERS, contents, same

Parts = Callable[[Any], Iterator[Any]]
KINDS: dict[type, Parts] = {}
"""Classes of such objects, and what gives all that one holds, itself and what is below."""
version = [0]
"""How often any such object was changed."""


def watch(kind: type, parts: Parts) -> None:
    """Let programs look at objects of a class, which calls `changed` whenever one is changed."""
    KINDS[kind] = parts
    _parts_of.cache_clear()


def changed() -> None:
    """An object was changed."""
    version[0] += 1


def parts_of(value: Any) -> Parts | None:
    """What gives the parts of an object; None if it is not watched."""
    if value.__class__ is type(value):
        of: Any = type(value)
        return _parts_of(of)
    return next((parts for kind, parts in KINDS.items() if isinstance(value, kind)), None)


@lru_cache(1024)
def _parts_of(of: type) -> Parts | None:
    return next((parts for kind, parts in KINDS.items() if issubclass(of, kind)), None)


class Watch:
    """Whether some objects are as they were.

    Args:
        objects: which.
        parts: what each of them holds now.

    Attributes:
        seen: the version at which they were found so.
    """

    def __init__(self, objects: list[Any], parts: list[list[Any]]) -> None:
        self.objects = objects
        self.seen = version[0]
        self.held = self.within(parts)

    def now(self) -> list[Any]:
        """What the objects hold; containers as what is in them, too."""
        found = [(one, parts_of(one)) for one in self.objects]
        return self.within([[*parts(one)] for one, parts in found if parts is not None])

    def within(self, parts: list[list[Any]]) -> list[Any]:
        """The parts of the objects; containers as what is in them, too."""
        held: list[Any] = []
        for of_one in parts:
            for part in of_one:
                held.append(part)
                if isinstance(part, HOLDERS):
                    held.append(contents(part))
        return held

    def holds(self) -> bool:
        """Whether nothing was changed, or all is as it was."""
        before = version[0]
        if self.seen == before:
            return True
        now = self.now()
        if len(now) != len(self.held) or not all(map(same, now, self.held)):
            return False
        self.seen = before
        return True
