"""What of a launch's arguments decides the generated code: dtypes, ranks, layouts, comptime values.

Shapes, strides and scalar values are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from struct import Struct
from typing import Any, Union

import numpy as np

from cubepy.errors import ComptimeError, KernelTypeError
from cubepy.lang.declare import Param
from cubepy.lang.dtypes import DType
from cubepy.lang.struct import StructType


@dataclass(frozen=True)
class ArraySpec:
    """An array: `layout` is "contiguous", "last" (unit stride on the last axis) or "strided"."""

    dtype: DType
    ndim: int
    layout: str

    def __hash__(self) -> int:  # there are few objects, which are in the key of every launch
        known: int | None = self.__dict__.get("hashed")
        if known is None:
            known = self.__dict__["hashed"] = hash((self.dtype, self.ndim, self.layout))
        return known

    def __reduce__(self) -> Any:  # another process hashes in another way
        return ArraySpec, (self.dtype, self.ndim, self.layout)


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
        known: int | None = self.__dict__.get("hashed")
        if known is None:
            known = self.__dict__["hashed"] = hash(exact(self.value))
        return known

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComptimeSpec):
            return False
        return self.value is other.value or bool(exact(self.value) == exact(other.value))

    def __reduce__(self) -> Any:  # another process hashes in another way
        return ComptimeSpec, (self.value,)


ALONE: set[type] = {int, bool, str, bytes, range, type, type(None), DType}
"""Types whose equal values are alike; types without a meaning of `==` of their own join when they
are met."""
MOST = 1024
_bits = Struct("<d").pack
_records: dict[type, tuple[Any, Any, Any]] = {}
"""By dataclass, the object that was met last, its key, and what gives keys of its objects."""


def exact(value: Any) -> Any:
    """A key that tells apart what `==` does not: 1, 1.0 and True, 0.0 and -0.0, also inside tuples,
    dataclasses and sets; and that knows a NaN again.

    Example:
        >>> exact(1) == exact(True), exact(0.0) == exact(-0.0)
        (False, False)
        >>> exact((0.5, float("nan"))) == exact((0.5, float("nan")))
        True
    """
    kind = type(value)
    if kind in ALONE:
        return kind, value
    if kind is float:
        return (kind, value) if value and value == value else (kind, _bits(value))
    if kind is tuple:
        return (kind, *map(exact, value))
    known = _records.get(kind)
    if known is not None:
        before, key, make = known
        if before is not value:
            key = make(value)
            _records[kind] = value if before is not None else None, key, make
        return key
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if isinstance(value, float):
        return kind, _bits(value)
    if isinstance(value, complex):
        return kind, _bits(value.real), _bits(value.imag)
    if isinstance(value, tuple):  # with names
        return (kind, *map(exact, value))
    if isinstance(value, frozenset):
        return kind, frozenset(map(exact, value))
    if getattr(kind, "__eq__", None) is object.__eq__:
        if len(ALONE) < MOST:
            ALONE.add(kind)
        return kind, value
    written = getattr(getattr(kind.__hash__, "__code__", None), "co_filename", "")
    if not is_dataclass(kind) or written != "<string>":  # the class says itself what is equal
        return kind, value
    names = [f"v.{f.name}" for f in fields(kind) if f.compare]
    parts = [f"(type({n}), {n}) if type({n}) in ALONE else exact({n})," for n in names]
    scope = {"kind": kind, "ALONE": ALONE, "exact": exact}
    if len(_records) >= MOST:
        _records.clear()
    make = eval(f"lambda v: (kind, {' '.join(parts)})", scope)  # text made above
    frozen = kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    key = make(value)
    _records[kind] = value if frozen else None, key, make  # what may change is asked each time
    return key


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


def bind_parameters(
    parameters: tuple[Param, ...], name: str, args: list[Any], kwargs: dict[str, Any]
) -> list[tuple[Param, Any]]:
    """Match arguments to parameters.

    Raises:
        KernelTypeError: too many, unknown, doubled or missing arguments.
        ComptimeError: a comptime parameter without a value.
    """
    positional = [p for p in parameters if not p.keyword_only]
    if len(args) > len(positional):
        raise KernelTypeError(
            f"{name} takes {len(positional)} positional arguments but {len(args)} were given",
            hint=f"its parameters are {', '.join(p.name for p in parameters)}",
        )
    given = dict(zip((p.name for p in positional), args, strict=False))
    for key, value in kwargs.items():
        if key in given:
            raise KernelTypeError(
                f"{name} got two values for {key!r}",
                hint=f"give it by position or by name; its parameters are "
                f"{', '.join(p.name for p in parameters)}",
            )
        if all(p.name != key for p in parameters):
            names = ", ".join(p.name for p in parameters)
            raise KernelTypeError(
                f"{name} has no parameter {key!r}", hint=f"its parameters are {names}"
            )
        given[key] = value
    out = []
    for p in parameters:
        if p.name in given:
            out.append((p, given[p.name]))
        elif p.default is not Param.__dataclass_fields__["default"].default:
            out.append((p, p.default))
        elif p.kind == "comptime":
            raise ComptimeError(f"{name} needs a value for its comptime parameter {p.name!r}")
        else:
            hint = f"its parameters are {', '.join(p.name for p in parameters)}"
            if parameters[0].name == "self":
                hint += "; a kernel is no method: self is what it is launched with, or leave it out"
            raise KernelTypeError(f"{name} needs a value for its parameter {p.name!r}", hint=hint)
    return out
