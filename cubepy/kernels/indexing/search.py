"""Where numbers would stand among others that are in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.movement.copy import contiguous
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory
from cubepy.tune import Op, Routine

UNITS = 256
CHUNK = 1 << 12  # elements of a cube of a CPU


@cb.func
def before(a, b, floats: cb.Comptime[bool]):
    """Whether a stands before b in order: NaN is the last."""
    if floats:
        return cb.select(b != b, a == a, a < b)
    return a < b


@cb.func
def stands_before(there, one, right: cb.Comptime[bool], floats: cb.Comptime[bool]):
    """Whether an element comes before another one, or, if `right`, not behind it."""
    if right:
        return not before(one, there, floats)
    return before(there, one, floats)


@cb.kernel
def search_rows(
    known: cb.Array,
    wanted: cb.Array,
    out: cb.Array,
    parts,
    chunk,
    right: cb.Comptime[bool],
    floats: cb.Comptime[bool],
):
    """out[r, k] = how many of known[r] stand before wanted[r, k], with those that equal it if
    `right`; a cube does one of the `parts` of a row. One row of `known` is that of all.
    """
    row, part = cb.CUBE_POS // parts, cb.CUBE_POS % parts
    of = cb.min(row, known.shape[0] - 1)
    stop = cb.min((part + 1) * chunk, wanted.shape[1])
    for at in range(part * chunk + cb.UNIT_POS, stop, cb.CUBE_DIM):
        one = wanted[row, at]
        first, left = 0, known.shape[1]
        while left > 1:  # halves of equal lengths, so that no branch depends on elements
            half = left >> 1
            ahead = stands_before(known[of, first + half - 1], one, right, floats)
            first = cb.select(ahead, first + half, first)
            left -= half
        if left == 1 and stands_before(known[of, first], one, right, floats):
            first += 1
        out[row, at] = cb.cast(first, out.dtype)


class Search(NamedTuple):
    """out[r, k]: where wanted[r, k] would stand in known[r] (or in known[0], if that is one row);
    `right`: behind those that equal it.
    """

    known: Any
    wanted: Any
    out: Any
    right: bool


def _parts(size: int, properties: cb.DeviceProperties) -> tuple[int, int, int]:
    """Units of a cube, cubes of so many neighbours, elements of a cube."""
    if properties.plane_size == 1:
        return 1, -(-size // CHUNK), CHUNK
    units = min(UNITS, 1 << max(5, (size - 1).bit_length()))
    return units, -(-size // units), units


class Halves(Routine):
    """A search by halves for each element."""

    name = "halves"

    def launch(self, p: Search, properties: cb.DeviceProperties) -> None:
        """An element for a unit of planes, a part of a row for a cube of a CPU."""
        rows, size = p.out.shape
        units, parts, chunk = _parts(size, properties)
        search_rows[rows * parts, units](
            p.known,
            p.wanted,
            p.out,
            parts,
            chunk,
            p.right,
            as_dtype(p.known.dtype).is_float,
            mode="unchecked",
        )


SEARCH = Op("searchsorted", [Halves()])


def searched(known: Any, wanted: Any, right: bool) -> Any:
    """Where elements would stand (i64) among others of their dtype that are in order: of each row
    (R, M) in the row (R, N) of the others, or in the only one.

    Example:
        >>> import numpy as np
        >>> searched(np.array([[1.0, 2.0, 2.0]]), np.array([[2.0, 3.0]]), False)
        array([[1, 3]])
    """
    out = memory.empty(wanted.shape, np.int64)
    if out.size:
        first, second = (
            a.view(np.uint8) if a.dtype == np.bool_ else a
            for a in (contiguous(known), contiguous(wanted))
        )
        SEARCH.run(Search(first, second, out, right))
    return out
