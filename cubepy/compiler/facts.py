"""What the front end learns about a kernel while walking it, and since when it would have mattered.

Types are inferred forwards. When a later statement shows that an earlier assumption was too narrow
(a comptime variable changes in a runtime loop, a weak variable meets a strong value) the fact is
noted, and the walk goes back to where it was first asked for: what came before is the same with it.
Facts only grow, so the walk ends.
"""

from __future__ import annotations

from typing import Any

from cubepy.compiler.ir import VType
from cubepy.compiler.reads import Reads
from cubepy.errors import DTypeError

Key = tuple[Any, ...]

MAX_CHANGES = 16
"""How often the type of one variable may change while it is inferred."""


class Restart(Exception):
    """New facts make the walk void from a moment on: `since`, as `Facts.now` counts."""

    def __init__(self, since: int) -> None:
        super().__init__(since)
        self.since = since


class Facts:
    """What was learned so far.

    Attributes:
        reads: what was read from outside.
        now: counts the statements that are walked, also those that are walked again.
    """

    def __init__(self) -> None:
        self.reads = Reads()
        self.now = 0
        self._runtime: set[Key] = set()
        self._types: dict[Key, VType] = {}
        self._changes: dict[Key, int] = {}
        self._diverging: set[Key] = set()
        self._asked: dict[str, dict[Key, int]] = {
            kind: {} for kind in ("runtime", "parts", "type", "diverging")
        }

    def is_runtime(self, key: Key) -> bool:
        """Whether a variable cannot be comptime."""
        if key in self._runtime:
            return True
        self._asked["runtime"].setdefault(key, self.now)
        return False

    def parts_change(self, key: Key) -> bool:
        """Whether a part of the aggregate that a key names is a runtime variable."""
        self._asked["parts"].setdefault(key, self.now)
        size = len(key)
        return any(len(k) > size and k[:size] == key for k in self._runtime)

    def type_of(self, key: Key) -> VType | None:
        """The type of a variable, if it is not that of the first value."""
        self._asked["type"].setdefault(key, self.now)
        return self._types.get(key)

    def diverges(self, key: Key) -> bool:
        """Whether a name is another kind of value before a loop than at its end."""
        self._asked["diverging"].setdefault(key, self.now)
        return key in self._diverging

    def make_runtime(self, key: Key, vtype: VType | None = None) -> Restart:
        """Note that a variable cannot be comptime, and its type if that is known."""
        self._runtime.add(key)
        parts = self._asked["parts"]
        since = [parts[key[:n]] for n in range(1, len(key)) if key[:n] in parts]
        since.append(self._since("runtime", key))
        if vtype is not None:
            since.append(self.make_type(key, vtype).since)
        return Restart(min(since))

    def make_type(self, key: Key, vtype: VType) -> Restart:
        """Note a variable's true type.

        Raises:
            DTypeError: it never is the same for long.
        """
        self._changes[key] = self._changes.get(key, 0) + 1
        if self._changes[key] > MAX_CHANGES:
            raise DTypeError(
                f"the dtype of {key[-1]!r} does not settle",
                hint="annotate the variable: x: cb.f32 = 0; or cast the bounds of its range",
            )
        self._types[key] = vtype
        return Restart(self._since("type", key))

    def make_diverging(self, key: Key) -> Restart:
        """Note that a name is another kind of value before a loop than at its end."""
        self._diverging.add(key)
        return Restart(self._since("diverging", key))

    def _since(self, kind: str, key: Key) -> int:
        return self._asked[kind].get(key, self.now)

    def forget_since(self, moment: int) -> None:
        """Drop what was asked at a moment or later: the walk goes back to it."""
        for kind, asked in self._asked.items():
            self._asked[kind] = {key: at for key, at in asked.items() if at < moment}
