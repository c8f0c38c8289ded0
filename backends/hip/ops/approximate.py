"""exp2, exp, log2 and log by the special function unit, for kernels that take the liberty `afn`.

Errors on f32 are those of V_EXP_F32 and V_LOG_F32, 1 ulp; subnormal operands and results become
zero. Square roots without their path for rare numbers are the ordinary ones here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cubepy.backends.hip.ops.topology import call
from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.registry import Op
from cubepy.backends.llvm.ops.types import F32
from cubepy.backends.llvm.ops.values import const, each_lane
from cubepy.backends.llvm.ops.values import math as math_of


def _by_unit(name: str, unit: str, doc: str, before: float = 1.0, after: float = 1.0) -> Op:
    def one(b: Any, x: Any) -> Any:
        x = b.fmul(x, const(x.type, before)) if before != 1.0 else x
        y = call(b, f"{unit}.f32", F32, x)
        return b.fmul(y, const(y.type, after)) if after != 1.0 else y

    def emit(b: Any, dtype: str, x: Any) -> Any:
        if dtype != "f32":
            raise NotImplementedError(f"{name} works on f32, not on {dtype}")
        step: Callable[[Any], Any] = lambda v: one(b, v)
        return each_lane(b, x, step)

    return elementwise(name, 1, emit, "float", doc=doc)


approximate_exp2 = _by_unit("approximate_exp2", "exp2", "2 ** x.")
approximate_exp = _by_unit("approximate_exp", "exp2", "e ** x.", before=math.log2(math.e))
approximate_log2 = _by_unit("approximate_log2", "log", "Logarithm to base 2.")
approximate_log = _by_unit("approximate_log", "log", "Natural logarithm.", after=math.log(2.0))
plain_sqrt = elementwise(
    "plain_sqrt", 1, lambda b, d, x: math_of(b, "sqrt", x), "float", doc="Square root."
)
