"""The typed statements that backends print: expressions are trees without side effects.

Loads are expressions; whatever orders them against stores is a statement, and the front end puts a
loaded value into a variable before any later statement can change the memory that it came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cubepy.errors import Location
from cubepy.lang.dtypes import DType


@dataclass(frozen=True)
class VType:
    """The type of a runtime value: a dtype, and a lane count for lines (0: scalar).

    A weak type yields to any other dtype that it meets, as a literal does.
    """

    dtype: DType
    lanes: int = 0
    weak: bool = False

    def __str__(self) -> str:
        return f"line of {self.lanes} {self.dtype.name}" if self.lanes else self.dtype.name


@dataclass(frozen=True)
class Mem:
    """A piece of memory that a kernel names: an array argument, shared or local memory.

    `kind` is "global", "shared", "local", or "map" for a tensor map (its `shape` is the box that it
    copies). `shape` is comptime for shared and local memory and None for arguments. `layout` of an
    argument is "contiguous" (C order), "last" (unit stride on the last axis) or "strided". Elements
    of local memory may be lines of `lanes`.
    """

    name: str
    kind: str
    dtype: DType
    ndim: int
    shape: tuple[int, ...] | None = None
    layout: str = "contiguous"
    lanes: int = 0
    argument: str = ""


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
        yield self
        for a in self.args:
            yield from a.walk()

    @property
    def touches_memory(self) -> bool:
        """Whether evaluating it reads memory, so that it must not move past a store."""
        return any(e.op in ("load", "line_load") for e in self.walk())


@dataclass
class Stmt:
    """Base of statements; `loc` is the user's source."""

    loc: Location | None = field(default=None, kw_only=True)


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


@dataclass
class Argument:
    """One runtime leaf of the launch arguments, in the order of the argument block."""

    path: str
    mem: Mem | None = None
    scalar: VType | None = None


@dataclass
class Program:
    """A specialised kernel.

    Attributes: name: the kernel's name. arguments: the leaves of its runtime arguments. body: what
        every unit does. variables: the type of every variable. shared: shared memory of a cube.
        units: units of a cube along x, y, z. index: dtype of topology and sizes. mode: "checked",
        "validate" or "unchecked". outputs: names of the argument memories that are written. reads:
        names of the argument memories that are read. has_barrier: whether units meet at barriers.
        cluster: cubes of a cluster along x, y, z. resident: how many cubes must fit on a core at
        once. overlap: whether a launch may begin before the one before it has ended. properties: of
        the device that it is made for. axes: whether it asks for positions or counts along Y or Z.
        typed: the dtype of runtime variables by function and name, where all calls agree on it.
        guard: what says whether globals and the like are what they were (`reads.Guard`); None where
        none were read. kept: the name under which another process finds what launches need of it.
    """

    name: str
    arguments: list[Argument]
    body: list[Stmt]
    variables: dict[str, VType]
    shared: list[Mem]
    units: tuple[int, int, int]
    index: DType
    mode: str
    fast_math: frozenset[str]
    outputs: frozenset[str]
    reads: frozenset[str]
    has_barrier: bool
    debug: bool
    cluster: tuple[int, int, int] = (1, 1, 1)
    resident: int = 1
    overlap: bool = False
    axes: bool = False
    properties: Any = None
    typed: dict[tuple[str, str], DType] = field(default_factory=dict)
    guard: Any = None
    kept: str | None = None

    @cached_property
    def written(self) -> tuple[int, ...]:
        """The arguments that are arrays and written, by their numbers."""
        return tuple(
            [
                i
                for i, a in enumerate(self.arguments)
                if a.mem is not None and a.mem.kind != "map" and a.mem.name in self.outputs
            ]
        )


def children(stmt: Stmt) -> list[list[Stmt]]:
    """The statement lists directly inside a statement."""
    if isinstance(stmt, If):
        return [stmt.then, stmt.orelse]
    if isinstance(stmt, (For, While)):
        return [stmt.body]
    return []


def walk(body: list[Stmt]) -> Iterator[Stmt]:
    """Every statement of a body, outer ones first."""
    for stmt in body:
        yield stmt
        for inner in children(stmt):
            yield from walk(inner)


def expressions(stmt: Stmt) -> list[Expr]:
    """The expressions that a statement itself evaluates (not those of statements inside it)."""
    if isinstance(stmt, Assign):
        return [stmt.value]
    if isinstance(stmt, Store):
        return [*stmt.indices, stmt.value, *([stmt.valid] if stmt.valid is not None else [])]
    if isinstance(stmt, Prefetch):
        return list(stmt.indices)
    if isinstance(stmt, Atomic):
        return [*stmt.indices, *stmt.operands]
    if isinstance(stmt, Hardware):
        return list(stmt.args)
    if isinstance(stmt, (If, While, DebugAssert)):
        return [stmt.cond]
    if isinstance(stmt, For):
        return [stmt.start, stmt.stop, stmt.step]
    if isinstance(stmt, DebugPrint):
        return [p for p in stmt.parts if isinstance(p, Expr)]
    return []


def contains_barrier(body: list[Stmt]) -> bool:
    """Whether a barrier is anywhere in a body."""
    return any(isinstance(s, Barrier) for s in walk(body))
