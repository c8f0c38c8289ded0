"""The typed statements that backends print: expressions are trees without side effects.

Loads are expressions; whatever orders them against stores is a statement, and the front end puts a
loaded value into a variable before any later statement can change the memory that it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cubepy.compiler.program import Argument, Mem, Program, Stmt, VType

__all__ = [
    "Alloc",
    "Argument",
    "Assign",
    "Atomic",
    "Barrier",
    "Break",
    "Continue",
    "DebugAssert",
    "DebugPrint",
    "Expr",
    "For",
    "Hardware",
    "If",
    "Mem",
    "Prefetch",
    "Program",
    "Stmt",
    "Store",
    "VType",
    "While",
    "children",
    "contains_barrier",
    "expressions",
    "walk",
]


@dataclass(frozen=True)
class Expr:
    """An operation on values; `attr` holds what is not a value (a name, a constant, a memory, an
    axis).
    """

    op: str
    type: VType
    args: tuple[Expr, ...] = ()
    attr: Any = None

    def __init__(
        self, op: str, type: VType, args: tuple[Expr, ...] = (), attr: Any = None
    ) -> None:  # half of what the made one takes
        own = self.__dict__
        own["op"], own["type"], own["args"], own["attr"] = op, type, args, attr

    def walk(self) -> Iterator[Expr]:
        """This expression and all below it."""
        waiting = [self]
        while waiting:
            e = waiting.pop()
            yield e
            waiting += e.args[::-1]

    @property
    def touches_memory(self) -> bool:
        """Whether evaluating it reads memory, so that it must not move past a store."""
        return any(e.op in ("load", "line_load") for e in self.walk())


@dataclass
class Assign(Stmt):
    name: str
    value: Expr


@dataclass
class Store(Stmt):
    """`mem[indices] = value`; a line goes to consecutive places from there on.

    `linear`: `indices` is one position in the C order of the logical shape (line stores only).
    `valid`: how many lanes of a line to write, or None for all that fit.
    """

    mem: Mem
    indices: tuple[Expr, ...]
    value: Expr
    linear: bool = False
    valid: Expr | None = None
    stream: bool = False


@dataclass
class Prefetch(Stmt):
    """A hint that `mem[indices]` is wanted soon; `linear`: `indices` is one position in the C
    order.
    """

    mem: Mem
    indices: tuple[Expr, ...]
    linear: bool = False


@dataclass
class Atomic(Stmt):
    """`target = old value of mem[indices]`, updated by `op` with `operands`."""

    target: str
    op: str
    mem: Mem
    indices: tuple[Expr, ...]
    operands: tuple[Expr, ...]


@dataclass
class Hardware(Stmt):
    """`target = op(mems, args, attrs)`: an instruction of matrix units or asynchronous copies.

    Printed as a call with the pointers of `mems`, the values of `args` (integers in 64 bits) and
    the literals of `attrs`, in this order. It reads and writes memory, or waits; nothing moves past
    it.
    """

    op: str
    target: str | None
    mems: tuple[Mem, ...] = ()
    args: tuple[Expr, ...] = ()
    attrs: tuple[Any, ...] = ()


@dataclass
class If(Stmt):
    cond: Expr
    then: list[Stmt]
    orelse: list[Stmt]


@dataclass
class For(Stmt):
    """`for var in range(start, stop, step)`; the step is a nonzero int, or an expression.

    `rolled`: code generators must not unroll it; its step is a constant.
    """

    var: str
    start: Expr
    stop: Expr
    step: Expr
    body: list[Stmt]
    rolled: bool = False


@dataclass
class While(Stmt):
    cond: Expr
    body: list[Stmt]


@dataclass
class Break(Stmt):
    pass


@dataclass
class Continue(Stmt):
    pass


@dataclass
class Barrier(Stmt):
    """Units of the cube meet; with `plane`, only those of a plane."""

    plane: bool = False


@dataclass
class Alloc(Stmt):
    """Local memory of the unit (shared memory is listed in the program)."""

    mem: Mem


@dataclass
class DebugPrint(Stmt):
    parts: tuple[Any, ...]  # texts and expressions


@dataclass
class DebugAssert(Stmt):
    cond: Expr
    message: str


BLOCKS: dict[type[Stmt], Callable[[Any], list[list[Stmt]]]] = {
    If: lambda s: [s.then, s.orelse],
    For: lambda s: [s.body],
    While: lambda s: [s.body],
}
EXPRESSIONS: dict[type[Stmt], Callable[[Any], list[Expr]]] = {
    Assign: lambda s: [s.value],
    Store: lambda s: [*s.indices, s.value, *([] if s.valid is None else [s.valid])],
    Prefetch: lambda s: [*s.indices],
    Atomic: lambda s: [*s.indices, *s.operands],
    Hardware: lambda s: [*s.args],
    If: lambda s: [s.cond],
    While: lambda s: [s.cond],
    DebugAssert: lambda s: [s.cond],
    For: lambda s: [s.start, s.stop, s.step],
    DebugPrint: lambda s: [p for p in s.parts if isinstance(p, Expr)],
}


def children(stmt: Stmt) -> list[list[Stmt]]:
    """The statement lists directly inside a statement."""
    blocks = BLOCKS.get(type(stmt))
    return blocks(stmt) if blocks else []


def walk(body: list[Stmt]) -> Iterator[Stmt]:
    """Every statement of a body, outer ones first."""
    waiting = body[::-1]
    while waiting:
        stmt = waiting.pop()
        yield stmt
        for inner in reversed(children(stmt)):
            waiting += inner[::-1]


def expressions(stmt: Stmt) -> list[Expr]:
    """The expressions that a statement itself evaluates (not those of statements inside it)."""
    found = EXPRESSIONS.get(type(stmt))
    return found(stmt) if found else []


def contains_barrier(body: list[Stmt]) -> bool:
    """Whether a barrier is anywhere in a body."""
    return any(isinstance(s, Barrier) for s in walk(body))
