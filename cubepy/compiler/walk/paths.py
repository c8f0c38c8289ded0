"""Ways through the code: where they part, where they meet, and how one leaves for elsewhere.

Walking a piece of code gives the *paths* that reach its end: lists of statements that go on there.
What follows is written where they meet, once. A path that leaves for elsewhere (a return, or break
and continue of an unrolled loop) is remembered until it gets there; where others meet before that,
it sets a flag which skips what they share.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Union

from cubepy.compiler import convert
from cubepy.compiler.facts import Restart
from cubepy.compiler.ir import Assign, Expr, If, Stmt
from cubepy.compiler.scope import NOTHING, UNCERTAIN, Scope
from cubepy.compiler.values import ArrayValue, Const, NoValue, Undecided, Value
from cubepy.errors import ComptimeError
from cubepy.lang import dtypes as dt

RETURN = "@return"


@dataclass(frozen=True)
class Marker:
    """Where `continue` (the end of a turn) or `break` (the end) of an unrolled loop goes."""

    loop: int
    end: bool


Item = Union[ast.stmt, Callable[[], None]]


@dataclass
class Loop:
    """A loop around the current place: a runtime one, or an unrolled one (with a number)."""

    unrolled: int = 0
    entry: dict[str, Value] | None = None
    bound: dict[str, Value] = field(default_factory=dict)  # its own variables, as a turn begins
    rebound: set[str] = field(default_factory=set)  # those of them that some turn leaves otherwise
    at: tuple[int, int] = (0, 0)  # where a runtime loop stands
    left_by: str = ""  # the variable that a break sets, if what follows the loop asks for it
    broken: bool = False  # whether a break leaves it
    returned: str = ""  # the variable that a return in it sets


@dataclass
class Path:
    """A way through the code so far: the statements that it goes on after, and what names mean
    there.

    `to` says where it goes: on (None), out of the function (RETURN), or to a marker. `flag` is the
    variable that says "has returned" and is set on it.
    """

    out: list[Stmt]
    env: dict[str, Value]
    to: Marker | str | None = None
    flag: str = ""


@dataclass
class Region:
    """Where a piece of code began: the list and position of its first statement, and which paths
    had left before.
    """

    out: list[Stmt]
    mark: int
    left: int


class Checkpoint:
    """All that changes during a walk, as it is at a statement, to go back to.

    Statements are only ever added behind those that stand: a list is what it was when it is cut.

    Attributes:
        moment: when it was made, as `Facts.now` counts.
    """

    def __init__(self, scope: Scope, left: list[Path], loops: list[Loop]) -> None:
        self.moment = scope.facts.now = scope.facts.now + 1
        self.scope, self.state = scope, scope.state()
        self.lists = [(items, len(items)) for items in (scope.out, left, loops)]
        self.loops = [(loop, loop.broken, set(loop.rebound)) for loop in loops]

    def go_back(self) -> None:
        """Forget everything since."""
        for items, size in self.lists:
            del items[size:]
        for loop, broken, rebound in self.loops:
            loop.broken, loop.rebound = broken, rebound
        self.scope.go_back(self.state)
        self.scope.facts.forget_since(self.moment)


class Paths:
    """The paths of the function that is being walked.

    Attributes:
        scope: what is known at the current place.
        statement: walks one statement; gives the paths after it, None for the one that is being
            written.
        loops: around the current place, the outermost first.
        left: paths that have left for a place which is not reached yet.
    """

    def __init__(self, scope: Scope, statement: Callable[[ast.stmt], list[Path] | None]) -> None:
        self.scope, self.statement = scope, statement
        self.loops: list[Loop] = []
        self.left: list[Path] = []

    def block(self, items: list[Item]) -> list[Path]:
        """Walk items in order; gives the paths that reach the end, none when control never does."""
        marks: list[Checkpoint] = []
        while (position := len(marks)) < len(items):
            marks.append(Checkpoint(self.scope, self.left, self.loops))
            try:
                ends = self.item(items[position], position == len(items) - 1)
            except Restart as restart:
                while marks and marks[-1].moment > restart.since:
                    marks.pop()
                if not marks:
                    raise
                marks.pop().go_back()
                continue
            if ends is not None:
                return ends
        return [Path(self.scope.out, self.scope.frame.env)]

    def item(self, item: Item, last: bool) -> list[Path] | None:
        """Walk one item of a block; gives the paths that reach the block's end if that is known."""
        if not isinstance(item, ast.stmt):
            item()
            return None
        self.scope.locate(item)
        region = self.region()
        paths = self.statement(item)
        if paths and not last:
            self.join(region, paths)
            return None
        return paths

    def branch(self, items: list[Item]) -> tuple[list[Stmt], list[Path]]:
        """Walk items into a list of their own, from the names of here; gives it and the paths that
        reach its end.
        """
        saved, env = self.scope.out, dict(self.scope.frame.env)
        out: list[Stmt] = []
        self.scope.out = out
        try:
            return out, self.block(items)
        finally:
            self.scope.out, self.scope.frame.env = saved, env

    def region(self) -> Region:
        """The piece of code that begins here."""
        return Region(self.scope.out, len(self.scope.out), len(self.left))

    @property
    def flag(self) -> str:
        """The variable that a return in a runtime loop around sets; "" outside of them."""
        return next((loop.returned for loop in self.loops if not loop.unrolled), "")

    def arrived(self, region: Region, to: Marker | str) -> list[Path]:
        """The paths that left a region for a place which is reached now."""
        paths = self.left[region.left :]
        self.left[region.left :] = [p for p in paths if p.to != to]
        return [p for p in paths if p.to == to]

    def join(self, region: Region, paths: list[Path]) -> None:
        """Go on where the paths out of a region meet."""
        gone = self.left[region.left :]
        if gone and len(paths) == 1:  # what follows belongs to this path alone, and needs no flag
            self.scope.out, self.scope.frame.env = paths[0].out, paths[0].env
            return
        self.scope.out, self.scope.frame.env = region.out, self.met(paths)
        if gone:
            self.skip(region, gone)

    def skip(self, region: Region, gone: list[Path]) -> None:
        """Let paths that have left a region skip what follows it, by a flag."""
        # a flag of its own: one that units set later, apart from each other, would make barriers
        # here seem unsafe
        name = gone[0].flag
        if not name or any(path.flag != name for path in gone):
            name = self.scope.fresh("left")
            self.scope.types[name] = convert.BOOL
        region.out.insert(
            region.mark, Assign(name, convert.constant(False, dt.bool_), loc=self.scope.location)
        )
        for path in gone:
            if path.flag != name:
                path.out.append(
                    Assign(name, convert.constant(True, dt.bool_), loc=self.scope.location)
                )
        rest: list[Stmt] = []
        self.scope.emit(
            If(Expr("not_", convert.BOOL, (Expr("var", convert.BOOL, (), name),)), rest, [])
        )
        self.scope.out = rest

    def met(self, paths: list[Path]) -> dict[str, Value]:
        """What names mean where paths meet."""
        env = dict(paths[0].env)
        for path in paths[1:]:
            mixed = env.keys() ^ path.env.keys()
            for name, value in path.env.items():
                if name == UNCERTAIN:
                    mixed |= value.value  # type: ignore[union-attr]
                else:
                    env[name] = self.joined(name, env[name], value) if name in env else value
            if mixed:
                known = env.get(UNCERTAIN, NOTHING).value  # type: ignore[union-attr]
                env[UNCERTAIN] = Const(known | mixed)
        return env

    def joined(self, name: str, a: Value, b: Value) -> Value:
        """One binding for a name that two paths leave with `a` and `b`; unusable if they cannot
        meet.
        """
        for value in (a, b):
            if isinstance(value, Undecided):
                return value
        try:
            self.scope.differ(name, a, b)
        except ComptimeError as error:
            return Undecided(error.message)
        return a

    def check_loop_exit(self) -> None:
        """A name that is comptime before a runtime loop must be unchanged wherever a turn ends; the
        loop's own names are noted if they are not what they were when it began.
        """
        loop = next(loop for loop in reversed(self.loops) if not loop.unrolled)
        env = self.scope.frame.env
        loop.rebound |= {n for n, v in loop.bound.items() if not self.scope.same(env.get(n, v), v)}
        for name, before in (loop.entry or {}).items():
            now = self.scope.frame.env.get(name, before)
            if name in (RETURN, UNCERTAIN) or isinstance(before, Undecided):
                continue
            if isinstance(now, Undecided) and isinstance(before, Const) and before.value is None:
                raise self.scope.facts.make_diverging((*self.scope.frame.path, name, loop.at))
            if isinstance(now, NoValue):
                raise now.refused()
            if (
                isinstance(now, Undecided)
                and now.key is not None
                and not self.scope.facts.is_runtime(now.key)
            ):
                raise self.scope.facts.make_runtime(now.key)
            if isinstance(before, Expr) != isinstance(now, Expr) and not (
                isinstance(before, (Const, ArrayValue)) or isinstance(now, (Const, ArrayValue))
            ):
                raise self.scope.facts.make_diverging((*self.scope.frame.path, name, loop.at))
            self.scope.differ(name, before, now)
