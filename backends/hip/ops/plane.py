"""Planes of AMD GPUs (waves): 32 or 64 units that exchange words.

A word goes to any unit by ds_bpermute, which takes the ways of shared memory but none of its bytes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.gpu.ops.plane import Plane, collectives
from cubepy.backends.hip.ops.topology import call, lane_of
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I1, I32, I64


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
