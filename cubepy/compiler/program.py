"""A specialised kernel: what launches know of it. The statements of its body are in `ir`, which a
process loads that walks kernels or prints them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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

    def __init__(self, dtype: DType, lanes: int = 0, weak: bool = False) -> None:
        own = self.__dict__  # half of what the made one takes
        own["dtype"], own["lanes"], own["weak"] = dtype, lanes, weak

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


@dataclass
class Stmt:
    """Base of statements; `loc` is the user's source."""

    loc: Location | None = field(default=None, kw_only=True)


@dataclass
class Argument:
    """One runtime leaf of the launch arguments, in the order of the argument block."""

    path: str
    mem: Mem | None = None
    scalar: VType | None = None


@dataclass
class Program:
    """A specialised kernel.

    Attributes:
        name: the kernel's name.
        arguments: the leaves of its runtime arguments.
        body: what every unit does.
        variables: the type of every variable.
        shared: shared memory of a cube.
        units: units of a cube along x, y, z.
        index: dtype of topology and sizes.
        mode: "checked", "validate" or "unchecked".
        outputs: names of the argument memories that are written.
        written: the arguments that are arrays and written, by their numbers.
        reads: names of the argument memories that are read.
        has_barrier: whether units meet at barriers.
        cluster: cubes of a cluster along x, y, z.
        resident: how many cubes must fit on a core at once.
        overlap: whether a launch may begin before the one before it has ended.
        properties: of the device that it is made for.
        axes: whether it asks for positions or counts along Y or Z.
        typed: the dtype of runtime variables by function and name, where all calls agree on it, and
            of conditional expressions by place.
        guard: what says whether globals and the like are what they were (`reads.Guard`); None where
            none were read.
        kept: the name under which another process finds what launches need of it.
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
    written: tuple[int, ...]
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
