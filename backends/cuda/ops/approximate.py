"""exp2, exp, log2 and log by the special function unit, for kernels that take the liberty `afn`;
square roots without their path for rare numbers, for kernels that take `nnan` and `ninf`.

Errors on f32: 2 ulp for exp2, 1e-6 relative for log2 away from 1; subnormal results become zero.
Square roots of 0 and of numbers from 1e-30 on are correctly rounded, by the steps that `sqrt.rn`
takes for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cubepy.backends.cuda.ops.ptx import asm
from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.registry import Op
from cubepy.backends.llvm.ops.types import F32
from cubepy.backends.llvm.ops.values import const, each_lane, lanes_of
from cubepy.backends.llvm.ops.values import math as math_of


def _by_unit(name: str, mnemonic: str, doc: str, before: float = 1.0, after: float = 1.0) -> Op:
    def one(b: Any, x: Any) -> Any:
        x = b.fmul(x, const(x.type, before)) if before != 1.0 else x
        y = asm(b, F32, f"{mnemonic}.approx.ftz.f32 $0, $1;", [x], memory=False)
        return b.fmul(y, const(y.type, after)) if after != 1.0 else y

    def emit(b: Any, dtype: str, x: Any) -> Any:
        if dtype != "f32":
            raise NotImplementedError(f"{name} works on f32, not on {dtype}")
        step: Callable[[Any], Any] = lambda v: one(b, v)
        return each_lane(b, x, step) if lanes_of(x.type) else step(x)

    return elementwise(name, 1, emit, "float", doc=doc)


approximate_exp2 = _by_unit("approximate_exp2", "ex2", "2 ** x.")
approximate_exp = _by_unit("approximate_exp", "ex2", "e ** x.", before=math.log2(math.e))
approximate_log2 = _by_unit("approximate_log2", "lg2", "Logarithm to base 2.")
approximate_log = _by_unit("approximate_log", "lg2", "Natural logarithm.", after=math.log(2.0))


def _root(b: Any, dtype: str, x: Any) -> Any:
    if dtype != "f32":
        raise NotImplementedError(f"plain_sqrt works on f32, not on {dtype}")

    def one(x: Any) -> Any:
        least = const(x.type, 2.0**-100)
        y = asm(
            b, F32, "rsqrt.approx.ftz.f32 $0, $1;", [math_of(b, "maxnum", x, least)], memory=False
        )
        root, half = b.fmul(x, y), b.fmul(y, const(y.type, 0.5))
        rest = math_of(b, "fma", b.fsub(const(x.type, -0.0), root), root, x)
        return math_of(b, "fma", rest, half, root)

    return each_lane(b, x, one) if lanes_of(x.type) else one(x)


plain_sqrt = elementwise(
    "plain_sqrt", 1, _root, "float", doc="Square root of 0 or a finite number that is not tiny."
)
