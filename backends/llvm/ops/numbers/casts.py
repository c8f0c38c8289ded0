"""`i8(x)` ... `f64(x)`, `bool_(x)`: conversions, and rounding to the narrow floats that f32
carries.
"""

from __future__ import annotations

from typing import Any

from numba.core import errors, types

from cubepy.backends.llvm.ops.numbers.convert import (
    NARROW_FLOATS,
    convert,
    decode,
    encode,
    narrowed,
)
from cubepy.backends.llvm.ops.registry import Op, literal_op
from cubepy.backends.llvm.ops.types import (
    SCALARS,
    bits,
    described,
    ir_type,
    itemsize,
    literal,
    memory_ir,
    value_type,
)


def _cast(target: str) -> Op:
    narrow = target in NARROW_FLOATS

    def define(x: Any) -> Any:
        dtype, lanes = described(x)
        change = narrowed if narrow else convert
        result = value_type("f32" if narrow else target, lanes)
        return result(types.unliteral(x)), lambda b, v: change(b, v, dtype, target)

    define.__doc__ = f"`{target}(x)`: a scalar or line as {target}" + (
        ", carried in f32." if narrow else "."
    )
    return Op(target, define, pure=True)


bool_, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64 = (_cast(name) for name in SCALARS)
f16, bf16, fp8_e4m3, fp8_e5m2 = (_cast(name) for name in NARROW_FLOATS)


@literal_op
def bitcast(x: Any, dtype: Any) -> Any:
    """`bitcast(x, dtype)`: the same bits as another carrier dtype; a line's lane count follows from
    the width.
    """
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


def _narrow_name(dtype: Any) -> str | None:
    name = literal(dtype)
    if name is not None and name not in NARROW_FLOATS:
        raise errors.TypingError(f"{name!r} is not a narrow float")
    return name


@literal_op
def bits_of(x: Any, dtype: Any) -> Any:
    """`bits_of(x, dtype)`: the bits of a narrow float that f32 carries, as u16 or u8."""
    name = _narrow_name(dtype)
    if name is None:
        return None
    source, lanes = described(x)
    word = f"u{8 * itemsize(name)}"

    def emit(b: Any, v: Any, _: Any) -> Any:
        return b.bitcast(encode(b, v, source, name), ir_type(word, lanes))

    return value_type(word, lanes)(types.unliteral(x), dtype), emit


@literal_op
def from_bits(x: Any, dtype: Any) -> Any:
    """`from_bits(x, dtype)`: u16 or u8 bits as a narrow float, carried in f32."""
    name = _narrow_name(dtype)
    if name is None:
        return None
    source, lanes = described(x)
    if bits(source) != 8 * itemsize(name):
        raise errors.TypingError(f"from_bits from {source} to {name}: their widths differ")

    def emit(b: Any, v: Any, _: Any) -> Any:
        return decode(b, b.bitcast(v, memory_ir(name, lanes)), name)

    return value_type("f32", lanes)(types.unliteral(x), dtype), emit
