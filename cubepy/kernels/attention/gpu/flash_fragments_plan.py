"""How the attention by fragments that a device describes is cut: planes, keys, and instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.device import DeviceProperties
from cubepy.runtime.fragments import MatrixInstruction

NEIGHBOURS = 8
"""Elements of 16 bytes: what a unit moves at once, and neighbouring keys that it owns."""
WIDEST = 256


@dataclass(frozen=True)
class FragmentAttention:
    """What changes the code.

    Attributes:
        dtype: of queries, keys and values.
        side: rows and columns of an instruction; a plane has as many queries.
        planes, plane: planes of a cube, and units of one.
        keys: keys of a block.
        depth, width: columns of queries and keys, and of values, rounded up.
        causal: a query sees keys up to its own position.
        mask: "none", "bool" (true: may look) or "float" (added to the scores).
        deep: queries and keys have as many columns as `depth`.
        held: a unit's queries stay in registers, not in shared memory.
    """

    dtype: Any
    side: int
    planes: int
    plane: int
    keys: int
    depth: int
    width: int
    causal: bool = False
    mask: str = "none"
    deep: bool = False
    held: bool = True

    @property
    def units(self) -> int:
        """Units of a cube."""
        return self.planes * self.plane

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        queries = 0 if self.held else self.side * self.planes * self.depth
        return 2 * (self.keys * (self.depth + self.width) + queries)


@dataclass(frozen=True)
class Shape:
    """What may be chosen by measuring; zeros leave it to the rules.

    Attributes:
        side: rows and columns of an instruction.
        planes: of a cube.
        keys: of a block.
        held: queries stay in registers.
        columns: of the values, at most; for more of them there are several launches.
    """

    side: int = 0
    planes: int = 0
    keys: int = 0
    held: bool = True
    columns: int = WIDEST


@cache
def owns_queries(m: MatrixInstruction, plane: int) -> bool:
    """Whether all sums of a unit are one column's, in groups of units that follow each other, and
    operands are of the same groups, or the same for two of them.
    """
    m, side = m.rows_in_order, m.columns
    groups, of_depth, each = m.rows // m.c.count, m.depth // m.b.count, m.c.count
    if m.bits != 16 or m.rows != side or plane != side * groups or each not in (4, 8, 16):
        return False
    if of_depth != groups and (of_depth, groups, m.lengths[1]) != (1, 2, NEIGHBOURS):
        return False
    sums = all(
        m.c.at(lane, e) == (lane // side * each + e, lane % side)
        for lane in range(plane)
        for e in range(each)
    )
    return sums and all(
        m.b.at(lane, e) == (lane // side % of_depth * m.b.count + e, lane % side)
        for lane in range(plane)
        for e in range(m.b.count)
    )


def instructions(dtype: str, p: DeviceProperties) -> list[MatrixInstruction]:
    """The products of a dtype that the routine can use, the largest first."""
    found = [m for m in p.matrix_instructions if m.dtype == dtype]
    return sorted((m for m in found if owns_queries(m, p.plane_size)), key=lambda m: -m.rows)


def unfit(dtype: str, depth: int, width: int, p: DeviceProperties) -> str | None:
    """Why the routine cannot do an attention, or None."""
    if not instructions(dtype, p):
        return f"the device has no fragments of {dtype} whose columns belong to units"
    if max(depth, width) > WIDEST:
        return f"rows of {max(depth, width)} are wider than {WIDEST}"
    return None


def shapes(dtype: str, length: int, depth: int, width: int, p: DeviceProperties) -> Iterator[Shape]:
    """What fits registers and shared memory, the one that the rules choose first; cubes that would
    be half empty come last.
    """
    empty = []
    for m in instructions(dtype, p):
        for columns in (WIDEST, *(n for n in (128, 64) if n < width)):
            for planes, keys, held in CHOICES[p.plane_size]:
                shape = Shape(m.rows, planes, keys, held, columns)
                if not fits(m, shape, depth, width, p):
                    continue
                if 2 * length <= planes * m.rows and (planes > 1 or m.rows > 16):
                    empty.append(shape)
                else:
                    yield shape
    yield from reversed(empty)


CHOICES = {
    64: tuple((planes, keys, True) for planes, keys in ((4, 64), (4, 32), (2, 32), (1, 32))),
    32: (
        (8, 64, True),
        (8, 32, True),
        *((planes, 32, held) for planes in (4, 2, 1) for held in (True, False)),
    ),
}
"""By units of a plane: planes of a cube, keys of a block, whether queries are in registers."""


def room_for(m: MatrixInstruction, shape: Shape, p: DeviceProperties) -> int:
    """Registers for numbers that live long, of 512 on CDNA and 256 on RDNA: as many as the compiler
    takes without spilling.
    """
    if p.plane_size == 64:
        return 440
    if m.lengths[0] == NEIGHBOURS:
        return 170 if shape.held else 100
    return 140 if shape.held else 120


def fits(m: MatrixInstruction, shape: Shape, depth: int, width: int, p: DeviceProperties) -> bool:
    """Whether there is shared memory, and there are registers for queries, scores, sums and a block
    that is under way.
    """
    depth, width = rounded(depth, min(width, shape.columns), m)
    queries = depth * m.lengths[1] // m.depth if shape.held else 0
    own = (2 * shape.keys + width) * m.columns // p.plane_size
    moving = shape.keys * max(depth, width) // 2 // (shape.planes * p.plane_size)
    plan = FragmentAttention(
        None, m.rows, shape.planes, p.plane_size, shape.keys, depth, width, held=shape.held
    )
    small = plan.shared_bytes <= p.max_shared_memory
    return small and queries + own + moving <= room_for(m, shape, p)


def rounded(depth: int, width: int, m: MatrixInstruction) -> tuple[int, int]:
    """Depth in whole stages, width in whole instructions. On RDNA 3, whose fragments leave few
    registers for addresses, both are powers of two.
    """
    deep, wide = -(-depth // 32) * 32, -(-width // m.rows) * m.rows
    if m.lengths[0] == NEIGHBOURS:
        return 1 << (deep - 1).bit_length(), 1 << (wide - 1).bit_length()
    return deep, wide


def plan_for(
    q: Any, k: Any, v: Any, mask: str, causal: bool, p: DeviceProperties, shape: Shape = Shape()
) -> FragmentAttention | None:
    """The blueprint for a problem, or None where this routine cannot do it."""
    dtype, depth, width = as_dtype(q.dtype), q.shape[3], v.shape[3]
    if not q.dtype == k.dtype == v.dtype or unfit(dtype.name, depth, width, p):
        return None
    if shape == Shape():
        found = next(shapes(dtype.name, q.shape[2], depth, width, p), None)
        if found is None:
            return None
        shape = found
    m = p.matrix_instruction(dtype.name, shape.side)
    if m is None:
        return None
    deep, wide = rounded(depth, min(width, shape.columns), m)
    cut = FragmentAttention(
        dtype, m.rows, shape.planes, p.plane_size, shape.keys, deep, wide, held=shape.held
    )
    return replace(cut, causal=causal, mask=mask, deep=deep == depth)
