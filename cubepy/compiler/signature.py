"""What of a launch's arguments decides the generated code: dtypes, ranks, layouts, comptime values.

Shapes, strides and scalar values are not in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Union

from cubepy.lang.struct import StructType
from cubepy.lang.dtypes import DType


@dataclass(frozen=True)
class ArraySpec:
    """An array: `layout` is "contiguous", "last" (unit stride on the last axis) or "strided"."""

    dtype: DType
    ndim: int
    layout: str


@dataclass(frozen=True)
class TensorMapSpec:
    """A tensor map: the element, and the box that one copy takes."""

    dtype: DType
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True)
class ScalarSpec:
    """A runtime number; weak when it came as a Python float without annotation."""

    dtype: DType
    weak: bool = False


@dataclass(frozen=True)
class ComptimeSpec:
    """A comptime value, by value (and by type: True is not 1)."""

    value: Any

    def __hash__(self) -> int:
        return hash(exact(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComptimeSpec) and bool(exact(self.value) == exact(other.value))


def exact(value: Any) -> Any:
    """A key that tells apart what `==` does not: 1, 1.0 and True, 0.0 and -0.0, also inside tuples."""
    t = type(value)
    if t is tuple:
        return (tuple, *map(exact, value))
    return (t, value, math.copysign(1, value)) if t is float else (t, value)


@dataclass(frozen=True)
class StructSpec:
    """A struct: its class and the specs of its fields."""

    type: StructType
    fields: tuple[tuple[str, Spec], ...]


@dataclass(frozen=True)
class TupleSpec:
    """A tuple that holds runtime values."""

    items: tuple[Spec, ...]


Spec = Union[ArraySpec, ScalarSpec, ComptimeSpec, StructSpec, TupleSpec, TensorMapSpec]


@dataclass(frozen=True)
class Target:
    """What the code is generated for."""

    backend: str
    units: tuple[int, int, int]
    mode: str
    index: DType
    plane: int
    shared_limit: int
    properties: Any
    debug: bool = False

    def __hash__(self) -> int:
        return hash((self.backend, self.units, self.mode, self.index, self.debug))
