"""The smaller and the larger of two f32 in one instruction that keeps NaN, which GPUs from Ampere
on have.
"""

from __future__ import annotations

from typing import Any

from cubepy.backends.cuda.ops.ptx import asm, packed
from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.registry import Op
from cubepy.backends.llvm.ops.types import F32
from cubepy.backends.llvm.ops.values import lane, lanes_of


def _extreme(name: str, mnemonic: str, doc: str) -> Op:
    def one(b: Any, x: Any, y: Any) -> Any:
        return asm(b, F32, f"{mnemonic}.NaN.f32 $0, $1, $2;", [x, y], memory=False)

    def emit(b: Any, dtype: str, x: Any, y: Any) -> Any:
        if dtype != "f32":
            raise NotImplementedError(f"{name} works on f32, not on {dtype}")
        lanes = lanes_of(x.type)
        return (
            packed(b, [one(b, lane(b, x, k), lane(b, y, k)) for k in range(lanes)])
            if lanes
            else one(b, x, y)
        )

    return elementwise(name, 2, emit, "float", doc=doc)


kept_minimum = _extreme("kept_minimum", "min", "The smaller; NaN if either is NaN.")
kept_maximum = _extreme("kept_maximum", "max", "The larger; NaN if either is NaN.")
