"""Planes of AMD GPUs (waves): 32 or 64 units that exchange words.

A word goes to any unit by ds_bpermute, which takes the ways of shared memory but none of its bytes.
Where the distance of a butterfly is known, there are shorter ways: within a row of 16 units the
operand of any vector instruction may come from another lane (DPP).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.gpu.ops.plane import Plane, collectives
from cubepy.backends.hip.ops.topology import call, lane_of
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I1, I32, I64

QUADS = {1: 0xB1, 2: 0x4E, 3: 0x1B}
"""Codes of DPP: within four units."""
ROTATE_8, MIRROR_8, MIRROR_16, XOR = 0x128, 0x141, 0x140, 0x160
"""By eight within a row; halves of rows and rows in reverse; by any number (RDNA alone)."""
SAME_ORDER = (0x76543210, 0xFEDCBA98)
EVERY = 0xF


def crossed(b: Any, word: Any, distance: int) -> Any:
    """The word of the unit at position xor `distance`, if there is a short way; else None."""
    rdna = b.module.architecture.major >= 10
    code = QUADS.get(distance) or {7: MIRROR_8, 8: ROTATE_8, 15: MIRROR_16}.get(distance)
    if code is None and rdna and distance < 16:
        code = XOR | distance
    if code is not None:
        every = (I32(code), I32(EVERY), I32(EVERY), I1(1))
        return call(b, "update.dpp.i32", I32, I32(0), word, *every)
    if distance == 16 and rdna:
        order = [I32(n) for n in SAME_ORDER]
        return call(b, "permlanex16.i32", I32, I32(0), word, *order, I1(0), I1(0))
    if distance < 32:
        return call(b, "ds.swizzle", I32, word, I32(0x1F | distance << 10))
    return None


class Wave(Plane):
    """What AMD's instructions say of a plane."""

    def size(self, b: Any) -> int:
        units: int = b.module.architecture.plane
        return units

    def active(self, b: Any) -> Any:
        return self.ballot(b, None, I1(1))

    def ballot(self, b: Any, mask: Any, x: Any) -> Any:
        return call(b, f"ballot.i{self.size(b)}", ir.IntType(self.size(b)), x)

    def position(self, b: Any) -> Any:
        return lane_of(b)

    def word(self, b: Any, mask: Any, mode: str, word: Any, other: Any) -> Any:
        if mode == "bfly" and isinstance(other, ir.Constant) and 0 < other.constant < self.size(b):
            found = crossed(b, word, other.constant)
            if found is not None:
                return found
        unit = self._source(b, mode, other)
        return call(b, "ds.bpermute", I32, b.shl(unit, I32(2)), word)

    def _source(self, b: Any, mode: str, n: Any) -> Any:
        """The unit to read from; where that would lie outside of the plane, this one."""
        last = I32(self.size(b) - 1)
        if mode == "idx":
            return b.and_(n, last)
        here = lane_of(b)
        if mode == "bfly":
            return b.and_(b.xor(here, n), last)
        there = b.sub(here, n) if mode == "up" else b.add(here, n)
        return b.select(b.icmp_unsigned("<=", there, last), there, here)


WAVE = Wave()
globals().update(collectives(WAVE))


@op
def same_in_plane(v: Any) -> Any:
    """`same_in_plane(v)`: v, an integer that all units have alike; it then lies in a register of
    the plane.
    """

    def emit(b: Any, x: Any) -> Any:
        return b.sext(call(b, "readfirstlane.i32", I32, b.trunc(x, I32)), I64)

    return types.int64(types.int64), emit
