"""`i8(x)` ... `f64(x)`, `bool_(x)`: conversions, and rounding to the narrow floats that f32 carries."""

from __future__ import annotations

from typing import Any

from numba.core import errors, types

from cubepy.backends.cpu.ops.convert import NARROW_FLOATS, convert, narrowed
from cubepy.backends.cpu.ops.registry import Op, literal_op
from cubepy.backends.cpu.ops.types import SCALARS, bits, described, ir_type, literal, value_type


def _cast(target: str) -> Op:
    narrow = target in NARROW_FLOATS

    def define(x: Any) -> Any:
        dtype, lanes = described(x)
        change = narrowed if narrow else convert
        result = value_type("f32" if narrow else target, lanes)
        return result(types.unliteral(x)), lambda b, v: change(b, v, dtype, target)

    define.__doc__ = f"`{target}(x)`: a scalar or line as {target}" + (", carried in f32." if narrow else ".")
    return Op(target, define)


bool_, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64 = (_cast(name) for name in SCALARS)
f16, bf16, fp8_e4m3, fp8_e5m2 = (_cast(name) for name in NARROW_FLOATS)


@literal_op
def bitcast(x: Any, dtype: Any) -> Any:
    """`bitcast(x, dtype)`: the same bits as another carrier dtype; a line's lane count follows from the width."""
    name = literal(dtype)
    if name is None:
        return None
    source, lanes = described(x)
    width = bits(source) * max(lanes, 1)
    lanes = width // bits(name) if lanes else 0
    if width != bits(name) * max(lanes, 1):
        raise errors.TypingError(f"bitcast from {source} to {name}: their widths differ")
    result = value_type(name, lanes)
    return result(types.unliteral(x), dtype), lambda b, v, _: b.bitcast(v, ir_type(name, lanes))
