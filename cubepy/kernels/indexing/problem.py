"""What is read and written by index, to the routines that do it."""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.entry.shapes import view_as
from cubepy.kernels.indexing.bounds import Look, check_indices
from cubepy.kernels.movement.copy import contiguous, convert_into, copy
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tune import Routine


class Gather(NamedTuple):
    """out[b, j, c] = x[b, index[b, j, c], c]; `out` is contiguous, and x on the host.

    Attributes:
        what: asks, for errors.
        from_end: negative indices count from the end.
    """

    x: Any
    index: Any
    out: Any
    what: str
    from_end: bool = False

    def look(self) -> Look:
        """What a kernel needs to look at the indices."""
        return Look(self.index, self.x.shape[1], self.what, self.from_end)

    def check(self) -> None:
        """Look at the indices before anything is read."""
        check_indices(self.index, self.x.shape[1], self.what, self.from_end)


class Select(NamedTuple):
    """out[b, j] = x[b, index[j]], rows of a contiguous `out`; attributes as of `Gather`."""

    x: Any
    index: Any
    out: Any
    what: str
    from_end: bool = False

    def check(self) -> None:
        """Look at the indices before anything is read."""
        check_indices(self.index, self.x.shape[1], self.what, self.from_end)


class Scatter(NamedTuple):
    """A copy of x, whose positions index[i, j, ...] along an axis are updated with src[i, j, ...],
    to `out`, or to where there is room if that is None or has strides.
    """

    x: Any
    index: Any
    src: Any
    update: str
    out: Any
    axis: int

    def part(self, target: Any) -> Any:
        """What the indices reach of a copy."""
        reach = (slice(0, m) for m in self.index.shape)
        return target[tuple(slice(None) if k == self.axis else s for k, s in enumerate(reach))]

    def blocks(self, work: Any) -> list[Any]:
        """What is updated, the indices, and what with, as (before, along the axis, behind)."""
        return [as_blocks(contiguous(a), self.axis) for a in (work, self.index, self.src)]


class Put(NamedTuple):
    """A copy of x, whose rows that lists of indices for its first axes name together are updated
    with the rows of `src`, to `out` as in `Scatter`.
    """

    x: Any
    lists: tuple[Any, ...]
    src: Any
    update: str
    out: Any

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the axes that are indexed."""
        return tuple(self.x.shape[: len(self.lists)])

    @property
    def known(self) -> bool:
        """Whether the host has looked at the indices."""
        return all(isinstance(i, np.ndarray) for i in self.lists)

    def part(self, target: Any) -> Any:
        """All of a copy."""
        return target


class InPlace(Routine):
    """A routine that updates a copy of the input; `change` does it."""

    def launch(self, p: Any, properties: cb.DeviceProperties) -> Any:
        """What was written."""
        target = copy_of(p.x, p.out)
        if p.src.size:
            part = p.part(target)
            work = working(part, p.update, properties)
            self.change(p, work, properties)
            if not np.shares_memory(work, target):
                convert_into(part, work)
        return target

    def change(self, p: Any, work: Any, properties: cb.DeviceProperties) -> None:
        """Update the contiguous `work`, in the dtype that updates are made in."""
        raise NotImplementedError


def as_blocks(x: Any, d: int) -> Any:
    """(before, along axis d, behind) of a contiguous array."""
    return x.reshape(math.prod(x.shape[:d]), x.shape[d], math.prod(x.shape[d + 1 :]))


def blocks_read(x: Any, d: int) -> Any:
    """The same of an array that is only read: on a GPU a view where strides allow one, since few of
    its elements may be asked for; else of a contiguous copy.
    """
    if isinstance(x, DeviceArray):
        shape = math.prod(x.shape[:d]), x.shape[d], math.prod(x.shape[d + 1 :])
        with contextlib.suppress(AttributeError):
            return view_as(x, shape)
    return as_blocks(contiguous(x), d)


def rounds(x: Any, update: str) -> bool:
    """Whether updates of one position would each be rounded: sums and products of narrow floats are
    made in f32.
    """
    dtype = as_dtype(x.dtype)
    return update in ("add", "mul") and dtype.is_float and dtype.bits < 32


def copy_of(x: Any, out: Any) -> Any:
    """What to write: a contiguous copy of x, or `out` itself where that can be used."""
    if out is None or not (out.flags.c_contiguous or np.may_share_memory(out, x)):
        return copy(x)
    if out is not x:
        copy(x, out=out)
    return out


def room_for(p: Scatter) -> Any:
    """Where a routine writes that makes the copy itself."""
    if p.out is not None and p.out.flags.c_contiguous:
        return p.out
    return memory.empty(p.x.shape, p.x.dtype)


def working(x: Any, update: str, properties: cb.DeviceProperties) -> Any:
    """The array that kernels update: narrow floats are added up in f32; where units work in planes
    only some dtypes have atomics.
    """
    dtype = as_dtype(x.dtype)
    atomics = properties.plane_size > 1 and update != "assign" and dtype.bits < 32
    if not rounds(x, update) and not atomics:
        return contiguous(x)
    wide = memory.empty(x.shape, np.float32 if dtype.is_float else np.int32)
    convert_into(wide, x)
    return wide
