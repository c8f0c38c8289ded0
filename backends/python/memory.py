"""Memory of the reference: every access is checked for bounds, and for races between units."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from cubepy.backends.python.missing import ZERO_IS_LEAST, Missing
from cubepy.backends.python.values import Value, binary, convert, extreme, is_weak, strong
from cubepy.errors import DTypeError, KernelTypeError, OutOfBoundsError, RaceError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType, as_dtype


class Running(Protocol):
    """What an access asks of the run that it is part of."""

    index: DType
    mode: str
    name: str
    cube: Any
    phase: int
    unit: Any

    def location(self) -> Any:
        """The line that runs."""
        ...


class Memory:
    """An array argument, shared or local memory, as a kernel sees it."""

    def __init__(
        self, run: Running, name: str, array: np.ndarray, kind: str, dtype: DType | None = None
    ) -> None:
        self.run, self.name, self.array, self.kind = run, name, array, kind
        self.dtype = dtype or as_dtype(array.dtype)
        self.compute = self.dtype.compute
        self.lines = 0
        self.touched: dict[int, _Access] = {}

    @property
    def ndim(self) -> int:
        """Rank."""
        return self.array.ndim - bool(self.lines)

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape as plain ints."""
        return self.array.shape[: self.ndim]

    @property
    def size(self) -> Any:
        """Number of elements."""
        n = math.prod(self.extents)
        return n if self.kind != "global" else Value(n, self.run.index)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Lengths of the axes."""
        return tuple(n if self.kind != "global" else Value(n, self.run.index) for n in self.extents)

    @property
    def stride(self) -> tuple[Any, ...]:
        """Strides in elements."""
        strides = tuple(s // self.array.itemsize for s in self.array.strides)
        return tuple(s if self.kind != "global" else Value(s, self.run.index) for s in strides)

    # What follows is for debuggers, where an array acts as NumPy's do; kernels cannot write it.

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.array, dtype)

    def __repr__(self) -> str:
        return repr(self.array)

    def __str__(self) -> str:
        return str(self.array)

    def _indices(self, key: Any) -> tuple[int, ...]:
        if type(key) is Value and self.array.ndim == 1 and key.dtype.is_int:
            return (int(key.data),)
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) != self.array.ndim - (self.lines > 0):
            raise KernelTypeError(
                f"{self.name} has rank {self.ndim} and is indexed with {len(parts)} indices"
            )
        for p in parts:
            if isinstance(p, float) or (isinstance(p, Value) and not p.dtype.is_int):
                raise KernelTypeError("an index must be an integer")
        return tuple(int(p) for p in parts)

    def _inside(self, at: tuple[int, ...]) -> bool:
        for i, n in zip(at, self.array.shape, strict=False):
            if not 0 <= i < n:
                break
        else:
            return True
        if self.run.mode == "validate":
            flat = at[0]
            for i, n in zip(at[1:], self.extents[1:], strict=True):
                flat = flat * n + i
            raise OutOfBoundsError(
                f"{self.run.name} accesses index {flat} of {self.name!r}, whose length is "
                f"{math.prod(self.extents)}",
                location=self.run.location(),
                hint=f"guard it with: if i < {self.name}.size",
            )
        return False

    def _zero(self) -> Value:
        return Value(np.zeros(self.lines) if self.lines else 0, self.dtype.compute)

    def __getitem__(self, key: Any) -> Any:
        for k in key if isinstance(key, tuple) else (key,):
            if isinstance(k, slice) or k is Ellipsis:
                return self.array[key].copy()  # for debuggers, too
        at = self._indices(key)
        if not self._inside(at):
            return self._zero()
        self.note(at, "read")
        return Value(self.array[at].astype(self.compute.numpy), self.compute)

    def __setitem__(self, key: Any, value: Any) -> None:
        at = self._indices(key)
        v = self.storable(value)
        if v.lanes and not self.lines:
            raise KernelTypeError(
                "a line cannot be stored into one element", hint=f"use {self.name}.store(i, line)"
            )
        if self._inside(at):
            self.note(at, "write")
            self.array[at] = v.data.astype(self.array.dtype)

    def storable(self, value: Any) -> Value:
        """A value converted for this memory; a float never becomes an integer by itself."""
        target = self.dtype.compute
        is_float = isinstance(value, float) if is_weak(value) else strong(value).dtype.is_float
        if is_float and not target.is_float:
            raise DTypeError(
                f"a float cannot be put into the array {self.name!r} of dtype {self.dtype.name}"
            )
        return convert(value, target)

    def _lane_indices(self, where: Any, lanes: int, valid: Any) -> list[tuple[int, ...] | None]:
        """Where each lane of a line is; None outside."""
        limit = lanes if valid is None else max(0, min(lanes, int(valid)))
        out: list[tuple[int, ...] | None] = []
        if isinstance(where, tuple) and self.ndim > 1:
            at = self._indices(where)
            for k in range(lanes):
                index = (*at[:-1], at[-1] + k)
                good = at[-1] >= 0 and all(
                    0 <= i < n for i, n in zip(index, self.extents, strict=True)
                )
                out.append(index if k < limit and good else None)
            start_ok = all(0 <= i < n for i, n in zip(at, self.extents, strict=True))
        else:
            start = int(where[0] if isinstance(where, tuple) else where)
            extents = self.extents
            total = math.prod(extents)
            for k in range(lanes):
                good = start >= 0 and start + k < total and k < limit
                out.append(unravelled(start + k, extents) if good else None)
            start_ok, at = 0 <= start < total, (start,)
        if not start_ok and limit and self.run.mode == "validate":
            raise OutOfBoundsError(
                f"{self.run.name} accesses index {at[0]} of {self.name!r}, "
                f"whose length is {math.prod(self.extents)}",
                location=self.run.location(),
            )
        return out

    def _whole(self, where: Any, lanes: int, valid: Any) -> tuple[np.ndarray, int] | None:
        """The elements of a line that is inside one row, a view of them, and the position of the
        first in C order; None if some lane is missing, or the line goes beyond a row.
        """
        array = self.array
        if self.lines or (valid is not None and int(valid) < lanes):
            return None
        if isinstance(where, tuple) and array.ndim > 1:
            *outer, start = self._indices(where)
            if any(not 0 <= i < n for i, n in zip(outer, array.shape, strict=False)):
                return None
            row, flat = array[tuple(outer)], 0
            for i, n in zip(outer, array.shape, strict=False):
                flat = flat * n + i
            flat = flat * array.shape[-1] + start
        elif array.ndim == 1:
            start = int(where[0] if isinstance(where, tuple) else where)
            row, flat = array, start
        else:
            return None
        inside = 0 <= start and start + lanes <= len(row)
        return (row[start : start + lanes], flat) if inside else None

    def load(self, where: Any, lanes: int, valid: Any = None, other: Any = None) -> Value:
        """A line from a position in C order, or from coordinates; `other` is in missing lanes."""
        whole = self._whole(where, int(lanes), valid) if other is None else None
        if whole is not None:
            if self.kind != "local":
                for k in range(whole[1], whole[1] + int(lanes)):
                    self.note_flat(k, "read")
            return Value(whole[0].astype(self.compute.numpy), self.compute)
        data = np.zeros(int(lanes), self.dtype.compute.numpy)
        if other is not None:
            data[:] = self.storable(other).data
        inside = self._lane_indices(where, int(lanes), valid)
        for k, at in enumerate(inside):
            if at is not None:
                self.note(at, "read")
                data[k] = self.array[at]
        line = Value(data, self.dtype.compute)
        if other is None and self.run.mode == "validate" and None in inside:
            line.missing = Missing(self.run, self.name, ZERO_IS_LEAST[self.dtype.kind])
        return line

    def store(self, where: Any, line: Any, valid: Any = None) -> None:
        """A line to a position in C order, or to coordinates."""
        v = self.storable(line)
        data = np.atleast_1d(v.data)
        whole = self._whole(where, data.shape[0], valid)
        if whole is not None:
            if self.kind != "local":
                for k in range(whole[1], whole[1] + data.shape[0]):
                    self.note_flat(k, "write")
            whole[0][:] = data.astype(self.array.dtype)
            return
        for k, at in enumerate(self._lane_indices(where, data.shape[0], valid)):
            if at is not None:
                self.note(at, "write")
                self.array[at] = data[k].astype(self.array.dtype)

    store_stream = store

    def prefetch(self, where: Any) -> None:
        """A hint, which changes nothing."""

    def atomic(self, op: str, index: Any, values: tuple[Any, ...]) -> Value:
        """An atomic update; the old value."""
        at = self._indices(index)
        if not self._inside(at):
            return self._zero()
        self.note(at, "atomic")
        old = Value(self.array[at], self.dtype)
        operands = [self.storable(v) for v in values]
        if op == "exchange":
            new = operands[0]
        elif op == "compare_exchange":
            new = operands[1] if bool(old.data == operands[0].data) else old
        elif op in ("max", "min"):
            new = extreme(op, old, operands[0])
        else:
            new = binary({"and": "and_", "or": "or_"}.get(op, op), old, operands[0])
        self.array[at] = new.data.astype(self.array.dtype)
        return old

    def note(self, at: tuple[int, ...], how: str) -> None:
        """Remember an access, and look for another unit's that it is not ordered with."""
        if self.kind == "local":
            return
        flat = at[0] if at else 0
        for i, n in zip(at[1:], self.array.shape[1:], strict=False):
            flat = flat * n + i
        self.note_flat(flat, how)

    def note_flat(self, flat: int, how: str) -> None:
        """The same for a position in C order, of an array or shared memory."""
        access = self.touched.get(flat)
        if access is None:
            access = self.touched[flat] = _Access()
        other = access.conflict(how, self.run.cube, self.run.phase, self.run.unit)
        if other is not None:
            raise RaceError(
                f"in {self.run.name}, unit {self.run.unit} of cube {self.run.cube} and unit "
                f"{other[2]} of cube {other[0]} touch index {flat} of {self.name!r} "
                "without a barrier between them, and one of them writes",
                location=self.run.location(),
                hint="separate them with cb.sync_cube(), or use an atomic",
            )


class _Access:
    """Who read and wrote one element: (cube, phase, unit)."""

    __slots__ = ("atomic", "readers", "writer")

    def __init__(self) -> None:
        self.writer: tuple[int, int, int] | None = None
        self.atomic = False
        self.readers: dict[tuple[int, int], set[int]] = {}

    def read(self, cube: int, phase: int, unit: int) -> None:
        """Note a reader; two of a cube and phase are enough to know."""
        units = self.readers.get((cube, phase))
        if units is None:
            self.readers[cube, phase] = {unit}
        elif len(units) < 2:
            units.add(unit)

    def conflict(self, how: str, cube: int, phase: int, unit: int) -> tuple[int, int, int] | None:
        w = self.writer
        if how == "read" and w is None:
            self.read(cube, phase, unit)
            return None
        me = (cube, phase, unit)
        if w is not None and not _ordered(w, me) and not (how == "atomic" and self.atomic):
            return w
        if how == "read":
            self.read(cube, phase, unit)
            return None
        for (c, p), units in self.readers.items():
            for u in units:
                if not _ordered((c, p, u), me):
                    return (c, p, u)
        self.writer, self.atomic = me, how == "atomic"
        self.readers = {k: v for k, v in self.readers.items() if k[0] != cube}
        return None


def unravelled(at: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Where an element is, from its position in C order."""
    found: tuple[int, ...] = ()
    for n in extents[:0:-1]:
        at, i = divmod(at, n)
        found = (i, *found)
    return (at, *found) if extents else ()


def _ordered(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    """Whether access a certainly happened before access b: the same unit, or an earlier phase of
    the same cube.
    """
    return a[0] == b[0] and (a[2] == b[2] or a[1] < b[1])


def poisoned(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Uninitialised memory that shows: NaN for floats, the lowest pattern for the rest."""
    if dtype.is_float:
        return np.full(shape, np.nan).astype(dtype.numpy)
    if dtype.kind == "b":
        return np.ones(shape, np.bool_)
    return np.full(shape, np.iinfo(dtype.numpy).max, dtype.numpy)


__all__ = ["Memory", "dt", "poisoned"]
