"""Planes of NVIDIA GPUs (warps): 32 units that exchange words by `shfl`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from cubepy.backends.cuda.ops.topology import asm, register
from cubepy.backends.gpu.ops.plane import Plane, collectives
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import I1, I32, I64

_MODES = {"idx": 0, "up": 1, "down": 2, "bfly": 3}


class Warp(Plane):
    """What NVIDIA's instructions say of a plane."""

    def size(self, b: Any) -> int:
        return 32

    def active(self, b: Any) -> Any:
        return asm(b, I32, "activemask.b32 $0;", "=r", [])

    def ballot(self, b: Any, mask: Any, x: Any) -> Any:
        kind = ir.FunctionType(I32, [I32, I1])
        fn = cgutils.get_or_insert_function(b.module, kind, "llvm.nvvm.vote.ballot.sync")
        return b.call(fn, [mask, x])

    def position(self, b: Any) -> Any:
        return register(b, "laneid")

    def word(self, b: Any, mask: Any, mode: str, word: Any, other: Any) -> Any:
        fields = ir.LiteralStructType([I32, I1])
        kind = ir.FunctionType(fields, [I32, I32, I32, I32, I32])
        fn = cgutils.get_or_insert_function(b.module, kind, "llvm.nvvm.shfl.sync.i32")
        clamp = 0 if mode == "up" else 31
        return b.extract_value(b.call(fn, [mask, I32(_MODES[mode]), word, other, I32(clamp)]), 0)


WARP = Warp()
globals().update(collectives(WARP))


@op
def same_in_plane(v: Any) -> Any:
    """`same_in_plane(v)`: v, an integer that all 32 units have alike; a shuffle tells the code
    generator so.
    """

    def emit(b: Any, x: Any) -> Any:
        return b.sext(WARP.shuffled(b, I32(-1), "idx", b.trunc(x, I32), I32(0)), I64)

    return types.int64(types.int64), emit
