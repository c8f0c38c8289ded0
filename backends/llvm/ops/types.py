"""The numba types of generated code: lines, pointers, and the dtypes that carry values.

A value is a numba scalar or a `Line`, an LLVM vector. Both exist for the carrier dtypes only:
narrow floats are carried as f32 and 4-bit integers as 8-bit ones, so that arithmetic needs no case
for them. Memory may hold every dtype; a `Ptr` knows which.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import errors, types
from numba.core.datamodel import models
from numba.core.extending import register_model

SCALARS: dict[str, Any] = {
    "bool_": types.boolean,
    "i8": types.int8,
    "i16": types.int16,
    "i32": types.int32,
    "i64": types.int64,
    "u8": types.uint8,
    "u16": types.uint16,
    "u32": types.uint32,
    "u64": types.uint64,
    "f32": types.float32,
    "f64": types.float64,
}
_NAMES = {t: name for name, t in SCALARS.items()}

CARRIERS = {
    "f16": "f32",
    "bf16": "f32",
    "fp8_e4m3": "f32",
    "fp8_e5m2": "f32",
    "int4": "i8",
    "uint4": "u8",
}
"""The dtype that carries a value of a memory dtype, where it is not that dtype itself."""

_ITEM_BITS = {
    "bool_": 8,
    "f16": 16,
    "bf16": 16,
    "fp8_e4m3": 8,
    "fp8_e5m2": 8,
    "int4": 8,
    "uint4": 8,
}

F32, F64 = ir.FloatType(), ir.DoubleType()
I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
MAX_LANES = 64


class Line(types.Type):
    """`lanes` values of a carrier dtype in an LLVM vector."""

    def __init__(self, dtype: str, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Line({dtype},{lanes})")


class Ptr(types.Type):
    """A pointer to elements of a memory dtype; with `lanes`, to lines on the stack.

    `align` bytes divide its address, where that is known.
    """

    def __init__(self, dtype: str, lanes: int = 0, align: int = 0) -> None:
        self.dtype, self.lanes, self.align = dtype, lanes, align
        super().__init__(name=f"Ptr({dtype},{lanes},{align})" if align else f"Ptr({dtype},{lanes})")


def carrier(dtype: str) -> str:
    """The dtype that carries values of a memory dtype."""
    return CARRIERS.get(dtype, dtype)


def is_float(dtype: str) -> bool:
    """Whether a carrier dtype is f32 or f64."""
    return dtype[0] == "f"


def is_signed(dtype: str) -> bool:
    """Whether a carrier dtype is a signed integer."""
    return dtype[0] == "i"


def is_int(dtype: str) -> bool:
    """Whether a carrier dtype is an integer (bool is not)."""
    return dtype[0] in "iu"


def bits(dtype: str) -> int:
    """Width of a value of a carrier dtype (bool: 1)."""
    return 1 if dtype == "bool_" else int(dtype[1:])


def itemsize(dtype: str) -> int:
    """Bytes that an element of a memory dtype takes."""
    return (_ITEM_BITS.get(dtype) or int(dtype[1:])) // 8


@cache
def ir_type(dtype: str, lanes: int = 0) -> ir.Type:
    """The LLVM type of a scalar (lanes 0) or line of a carrier dtype."""
    element = {"f32": F32, "f64": F64}.get(dtype) or ir.IntType(bits(dtype))
    return ir.VectorType(element, lanes) if lanes else element


@cache
def memory_ir(dtype: str, lanes: int = 0) -> ir.Type:
    """The LLVM type of one or several elements of a memory dtype; narrow floats lie there as
    integers.
    """
    element = {"f32": F32, "f64": F64}.get(dtype) or ir.IntType(8 * itemsize(dtype))
    return ir.VectorType(element, lanes) if lanes else element


@cache
def value_type(dtype: str, lanes: int = 0) -> Any:
    """The numba type of a scalar (lanes 0) or line of a carrier dtype."""
    if dtype not in SCALARS:
        raise errors.TypingError(f"values of dtype {dtype!r} are carried as {carrier(dtype)}")
    if not 0 <= lanes <= MAX_LANES:
        raise errors.TypingError(f"a line has 1 to {MAX_LANES} lanes, not {lanes}")
    return Line(dtype, lanes) if lanes else SCALARS[dtype]


def described(t: Any) -> tuple[str, int]:
    """Dtype and lanes (0: scalar) of the numba type of a value.

    Raises:
        TypingError: the type is neither a scalar nor a line.
    """
    if isinstance(t, Line):
        return t.dtype, t.lanes
    try:
        return _NAMES[types.unliteral(t)], 0
    except KeyError:
        raise errors.TypingError(f"{t} is neither a number nor a line") from None


def literal(t: Any) -> Any:
    """The value of an argument that has to be a literal, or None so that numba tries again with
    literals.
    """
    return getattr(t, "literal_value", None)


@register_model(Line)
class LineModel(models.PrimitiveModel):
    """A line is an LLVM vector wherever it stands."""

    def __init__(self, manager: Any, fe_type: Line) -> None:
        super().__init__(manager, fe_type, ir_type(fe_type.dtype, fe_type.lanes))


@register_model(Ptr)
class PtrModel(models.PrimitiveModel):
    """A pointer is an LLVM pointer to its element."""

    def __init__(self, manager: Any, fe_type: Ptr) -> None:
        element = (ir_type if fe_type.lanes else memory_ir)(fe_type.dtype, fe_type.lanes)
        super().__init__(manager, fe_type, element.as_pointer())
