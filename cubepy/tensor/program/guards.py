"""What must still be so for a program to be used again: the globals and closure cells that its
function (and those that it calls) names, and the attributes of modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.compiler.reads import Guard, Read, Reads, guard_of, same
from cubepy.tensor.program.watched import Watch, parts_of
from cubepy.tensor.value import Handle


class FunctionReads(Reads):
    """What a function of tensors may read from outside: watched objects by themselves, handles by
    identity.

    Attributes:
        objects: the watched objects.
        parts: what each of them holds.
        seen: objects that said themselves what is read of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.objects: list[Any] = []
        self.parts: list[list[Any]] = []
        self.seen: list[Any] = []

    def inside(self, value: Any) -> None:
        jitted = getattr(type(value), "__cubepy_jitted__", None)
        if jitted is not None:
            self.function(jitted(value))
            return
        reads = getattr(type(value), "__cubepy_reads__", None)
        if reads is not None:
            if not any(value is o for o in self.seen):
                self.seen.append(value)
                reads(value, self)
            return
        parts = parts_of(value)
        if parts is None:
            if not isinstance(value, Handle):
                super().inside(value)
            return
        if any(value is o for o in self.objects):
            return
        self.objects.append(value)
        held = [*parts(value)]
        self.parts.append(held)
        for kind in {type(part): part for part in held if parts_of(part)}:
            for name in ("forward", "__call__"):
                self.function(getattr(kind, name, None))
        self.function(getattr(type(value), "forward", None))


class Guards:
    """Whether what a function read is as it was before it was traced.

    Attributes:
        holds: whether it all is the same objects; quick.
    """

    def __init__(self, function: Callable[..., Any], arguments: list[Any]) -> None:
        reads = FunctionReads()
        reads.function(function)
        for value in arguments:
            if callable(value):
                reads.function(value)
            reads.inside(value)
        self.count = len(reads.all)
        self.guard: Guard | None = guard_of(reads, _plain(function))
        self.watch = Watch(reads.objects, reads.parts)
        self.reads = reads

    def holds(self) -> bool:
        """Whether all is as it was."""
        guard = self.guard
        return (guard is None or guard.holds() or guard.valid()) and self.watch.holds()

    def names(self) -> list[str]:
        """What is looked at, in words."""
        found = [_named(read) for read in self.reads.all.values()]
        found += [f"attributes of {type(o).__name__}" for o in self.watch.objects]
        return list(dict.fromkeys(found))

    def changes(self) -> list[str]:
        """What is not as it was, in words."""
        found = []
        for read in self.reads.all.values():
            try:
                now = read.now()
            except Exception:
                now = "gone"
            if not same(now, read.value):
                found.append(_named(read))
        if not self.watch.holds():
            names = {type(o).__name__ for o in self.watch.objects}
            found.append(f"attributes of {', '.join(sorted(names))}")
        return found


def _named(read: Read) -> str:
    """What was read, in words."""
    if read.key == "__code__":
        return f"code of {getattr(read.of, '__name__', 'a function')}"
    name = read.key if isinstance(read.key, str) and read.key else "what is inside"
    return f"{read.kind} {name}"


def _plain(function: Any) -> Any:
    """A function with globals, for the guard that is written."""
    function = getattr(function, "__func__", function)
    return function if hasattr(function, "__globals__") else _plain_one


def _plain_one() -> None:
    """Whose globals stand for those of an object that is called."""
