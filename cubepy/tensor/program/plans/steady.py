"""What stays from call to call, so that a program need not look at it again.

A program reads tensors from outside, and each time looks at all of them: does the handle still have
a value of the program's kind? For the weights of a model that is longer than anything else that
Python does for a call. So a program notes the handles, and their values, that it looked at; who
gives one of them something else says so, and whatever was noted is looked at again.

No lock is needed, because of the order in which things happen. A program first joins what is noted
(`now[0]`) and reads the handles in a later call; who exchanges first writes the handle and then
asks whether it is noted. So either the program sees what was written, or the writer sees that it
must say so; that replaces `now[0]` by an empty one, which no program has joined.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from cubepy.errors import ArgumentError

PAUSE = 63
"""Calls at most for which a program whose tensors are exchanged all the time looks at them without
noting them."""


class Noted(set[int]):
    """The identities of handles and values that programs do not look at. What is collected may
    leave its identity to something else, so whoever finds one asks what joined.

    Attributes:
        joined: weak references to what noted them, which come before the identities.
        memos: those of what has their arrays.
    """

    def __init__(self) -> None:
        self.joined: list[weakref.ref[Memo]] = []
        self.memos: list[weakref.ref[Memo]] = []

    def has(self, thing: Any) -> bool:
        """Whether a handle or a value is noted itself."""
        if id(thing) not in self:
            return False
        memos = [known() for known in [*self.joined]]
        return any(
            handle is thing or handle.value is thing
            for memo in memos
            if memo is not None
            for handle in memo.handles
        )


now: list[Noted] = [Noted()]
"""What is noted: a program that joined another one looks at everything."""
_nothing: tuple[Any, ...] = (None, (), None, None)


def renew() -> None:
    """Let programs look at everything; nothing but tensors has arrays then."""
    before, now[0] = now[0], Noted()
    for known in [*before.memos]:
        memo = known()
        if memo is not None:
            memo.seen = _nothing


def exchange(handle: Any, value: Any) -> None:
    """Give a handle another value: the only way to do so for one that somebody may have."""
    before = handle.value  # nothing of it is collected before all is done
    if now[0].has(handle):
        renew()
    try:
        handle.value = value
        if now[0].has(handle):
            renew()
    except BaseException:  # an interrupt in between
        renew()
        raise
    del before


def changed(things: Iterable[Any]) -> None:
    """Some handles or values are others than they were."""
    noted, found = now[0], list(things)
    if not noted.isdisjoint(map(id, found)) and any(map(noted.has, found)):
        renew()


class Memo:
    """What a program saw of some handles.

    Attributes:
        handles: which.
        noted: what they joined.
        seen: the same, the arrays that the handles have, what was made of weights, and where the
            elements of the arrays are.
    """

    __slots__ = ("__weakref__", "handles", "left", "noted", "pause", "seen")

    def __init__(self, handles: Iterable[Any]) -> None:
        self.handles = tuple(handles)
        self.noted: Noted | None = None
        self.seen = _nothing
        self.left = self.pause = 0

    def note(
        self, noted: Noted | None, arrays: tuple[Any, ...], made: Any = None, words: Any = None
    ) -> None:
        """All handles are of the program's kind.

        Args:
            noted: what they had joined before they were looked at.
            arrays: of the handles.
            made: of weights.
            words: addresses of the arrays, for who needs no more (`plans.bundles`).
        """
        here = now[0]
        if noted is here:
            self.seen = here, arrays, made, words
            here.memos.append(weakref.ref(self, here.memos.remove))
            if now[0] is not here:
                self.seen = _nothing
        elif self.left:
            self.left -= 1
        elif self.noted is not here:
            here.joined.append(weakref.ref(self, here.joined.remove))
            here.update(map(id, self.handles))
            here.update([id(h.value) for h in self.handles])  # once exchanges are seen
            self.noted = here
            self.left, self.pause = self.pause, min(2 * self.pause + 1, PAUSE)


class Exchanged:
    """Handles from outside that a program gives other values in every call.

    Attributes:
        notes, count: when none of them was noted.
    """

    __slots__ = ("count", "ids", "notes")

    def __init__(self, handles: Iterable[Any]) -> None:
        self.ids = frozenset(map(id, handles))
        self.notes, self.count = now[0], -1

    def look(self) -> None:
        """Say so if one of them is noted."""
        notes = now[0]
        count = len(notes)
        if notes.isdisjoint(self.ids):
            self.notes, self.count = notes, count
        else:
            renew()


class Steady(tuple[Any, ...]):
    """Tensors, in tuples, that are passed in call after call: a program looks at them once.

    Attributes:
        memos: what programs saw of them, by the numbers of programs.

    Raises:
        ArgumentError: something that can change, or is no tensor.

    Example:
        >>> import cubepy as cb
        >>> pair = Steady([(cb.tensor([1.0]), cb.tensor([2.0]))])
        >>> cb.jit(lambda pair: pair[0][0] + pair[0][1])(pair)
        tensor([3.])
    """

    memos: dict[int, Memo]

    def __new__(cls, parts: Sequence[Any]) -> Steady:
        made = super().__new__(cls, parts)
        made.memos = {}
        for leaf in made.leaves():
            if not hasattr(leaf, "value"):
                raise ArgumentError(
                    f"a Steady is made of tensors and tuples of them, not {type(leaf).__name__}"
                )
        return made

    def leaves(self) -> list[Any]:
        """The tensors in their order."""
        found: list[Any] = []
        stack: list[Any] = [*reversed(self)]
        while stack:
            part = stack.pop()
            if type(part) is tuple:
                stack += reversed(part)
            else:
                found.append(part)
        return found

    def memo(self, program: int) -> Memo:
        """What a program saw of them."""
        return self.memos.setdefault(program, Memo(self.leaves()))
