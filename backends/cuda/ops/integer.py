"""Bytes on a GPU: the dot product of four pairs is one instruction."""

from __future__ import annotations

from typing import Any

from cubepy.backends.cuda.ops.topology import asm
from cubepy.backends.gpu.ops.integer import dot_i8_by
from cubepy.backends.llvm.ops.types import I32


def _dot(b: Any, u: Any, v: Any, s: Any) -> Any:
    text = "dp4a.u32.s32 $0, $1, $2, $3;"
    return asm(b, I32, text, "=r,r,r,r", [u, v, s], side_effect=False)


dot_i8 = dot_i8_by(_dot)
