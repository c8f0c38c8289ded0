"""Element types and the promotion rules of the kernel language.

A dtype is a small immutable object; `cubepy` re-exports each one by name (`cb.f32`). Inside a
kernel a dtype may be called to convert (`cb.f32(x)` is `cb.cast(x, cb.f32)`) and compared
(`x.dtype == cb.bf16`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np

from cubepy.errors import DTypeError
from cubepy.lang.examples import dtype_doc

if TYPE_CHECKING:
    _Base = type  # a dtype annotates a parameter, so that type checkers are told that it is a class
else:
    _Base = object


@dataclass(frozen=True, eq=False)
class DType(_Base):
    """An element type.

    Attributes:
        name: the language's name, such as ``"f32"``.
        kind: ``"b"`` bool, ``"i"`` signed, ``"u"`` unsigned, ``"f"`` floating point.
        bits: width in bits (bool counts as 8 in memory, int4 as 4).
        numpy: the NumPy dtype that stores one element.
        storage_only: values are widened as they are read (fp8 to f32, int4 to i8).

    Example:
        >>> import cubepy as cb
        >>> cb.bf16.bits, cb.bf16.itemsize, cb.bf16.is_float, cb.bf16.numpy
        (16, 2, True, dtype(bfloat16))
        >>> float(cb.bf16(3.14159))  # rounded to the 8 bits of precision that it has
        3.140625
    """

    name: str
    kind: str
    bits: int
    numpy: np.dtype
    storage_only: bool = False

    @property
    def itemsize(self) -> int:
        """Bytes that one element takes in memory."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        """Whether the dtype is a floating-point type."""
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        """Whether the dtype is a signed or unsigned integer."""
        return self.kind in "iu"

    @property
    def compute(self) -> DType:
        """The dtype of a value that was read from memory of this dtype."""
        if not self.storage_only:
            return self
        return f32 if self.is_float else (i8 if self.kind == "i" else u8)

    def __repr__(self) -> str:
        return f"cb.{self.name}"

    def __call__(self, value: Any) -> Any:
        """Convert a Python or NumPy number to this dtype (in a kernel: a cast)."""
        return self.numpy.type(value)

    def __eq__(self, other: object) -> bool:
        """Whether the other is this dtype, or names it as `as_dtype` understands names."""
        return self is other or (type(other) is not DType and self._named_by(other))

    __hash__ = object.__hash__

    def _named_by(self, other: Any) -> bool:
        try:
            return as_dtype(other) is self
        except DTypeError:
            return False

    def __reduce__(self) -> Any:
        return (dtype_named, (self.name,))


def _make(name: str, kind: str, bits: int, storage: Any, storage_only: bool = False) -> DType:
    dtype = DType(name, kind, bits, np.dtype(storage), storage_only)
    object.__setattr__(dtype, "__doc__", dtype_doc(name))
    return dtype


if TYPE_CHECKING:
    from cubepy.lang.scalars import (
        bf16,
        bool_,
        f16,
        f32,
        f64,
        fp8_e4m3,
        fp8_e5m2,
        i8,
        i16,
        i32,
        i64,
        int4,
        u8,
        u16,
        u32,
        u64,
        uint4,
    )
else:
    bool_ = _make("bool_", "b", 8, np.bool_)
    i8 = _make("i8", "i", 8, np.int8)
    i16 = _make("i16", "i", 16, np.int16)
    i32 = _make("i32", "i", 32, np.int32)
    i64 = _make("i64", "i", 64, np.int64)
    u8 = _make("u8", "u", 8, np.uint8)
    u16 = _make("u16", "u", 16, np.uint16)
    u32 = _make("u32", "u", 32, np.uint32)
    u64 = _make("u64", "u", 64, np.uint64)
    f16 = _make("f16", "f", 16, np.float16)
    bf16 = _make("bf16", "f", 16, ml_dtypes.bfloat16)
    f32 = _make("f32", "f", 32, np.float32)
    f64 = _make("f64", "f", 64, np.float64)
    fp8_e4m3 = _make("fp8_e4m3", "f", 8, ml_dtypes.float8_e4m3fn, True)
    fp8_e5m2 = _make("fp8_e5m2", "f", 8, ml_dtypes.float8_e5m2, True)
    int4 = _make("int4", "i", 4, ml_dtypes.int4, True)
    uint4 = _make("uint4", "u", 4, ml_dtypes.uint4, True)

ALL: tuple[DType, ...] = (
    bool_,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    f16,
    bf16,
    f32,
    f64,
    fp8_e4m3,
    fp8_e5m2,
    int4,
    uint4,
)
DTypeLike: TypeAlias = "DType | str | type | np.dtype[Any]"
"""What `as_dtype` makes a dtype of."""
_BY_NAME = {d.name: d for d in ALL} | {"bool": bool_}
_BY_NUMPY = {d.numpy: d for d in ALL}
_PYTHON: dict[type, DType] = {bool: bool_, int: i32, float: f32}


def dtype_named(name: str) -> DType:
    """The dtype with this name, such as ``"f32"``; raises `DTypeError` for an unknown one."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise DTypeError(
            f"there is no dtype {name!r}", hint=f"the dtypes are {', '.join(_BY_NAME)}"
        ) from None


@cache
def _from_numpy(dtype: np.dtype) -> DType:
    found = _BY_NUMPY.get(dtype if dtype.isnative else dtype.newbyteorder("="))
    if found is None or not dtype.isnative:
        raise DTypeError(
            f"arrays of dtype {dtype} cannot be used in a kernel",
            hint="use one of "
            + ", ".join(d.numpy.name for d in ALL)
            + (" in native byte order" if not dtype.isnative else ""),
        )
    return found


def as_dtype(value: Any) -> DType:
    """The cubepy dtype for a dtype, its name, a NumPy dtype or type, PyTorch's, or `bool`, `int`,
    `float`.

    Raises:
        DTypeError: the value names no dtype that kernels can use.

    Example:
        >>> import numpy as np
        >>> as_dtype(np.float32), as_dtype("bf16")
        (cb.f32, cb.bf16)
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, np.dtype):
        return _from_numpy(value)
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    named = str(value).removeprefix("torch.") if type(value).__module__ == "torch" else value
    try:
        if value is None:  # f64 for NumPy
            raise TypeError
        found = np.dtype(named)
    except (TypeError, ValueError):
        raise DTypeError(
            f"{value!r} is not a dtype", hint=f"the dtypes are {', '.join(_BY_NAME)}"
        ) from None
    return _from_numpy(found)


def _int_of(bits: int, signed: bool) -> DType:
    return _BY_NAME[f"{'i' if signed else 'u'}{min(bits, 64)}"]


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype of ``x op y`` for strong operands (language reference, "Types").

    Example:
        >>> promote(i64, f32), promote(u32, i32), promote(f16, bf16)
        (cb.f32, cb.i64, cb.f32)
    """
    if not (isinstance(a, DType) and isinstance(b, DType)):
        raise DTypeError(
            f"promote takes two dtypes such as cb.f32, not {a!r} and {b!r}", hint="cb.as_dtype(...)"
        )
    a, b = a.compute, b.compute
    if a is b:
        return a
    if a.kind == "b" or b.kind == "b":
        return b if a.kind == "b" else a
    if a.is_float or b.is_float:
        if not (a.is_float and b.is_float):
            return a if a.is_float else b
        if a.bits == b.bits:  # f16 with bf16: neither holds the other
            return f32
        return a if a.bits > b.bits else b
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    return signed if signed.bits > unsigned.bits else _int_of(unsigned.bits * 2, signed=True)


@cache
def true_divide_dtype(a: DType, b: DType) -> DType:
    """The dtype of ``x / y``: floats promote, two integers give f32, or f64 when one has
    64 bits.
    """
    a, b = a.compute, b.compute
    if a.is_float or b.is_float:
        return promote(a, b)
    return f64 if 64 in (a.bits, b.bits) else f32


def float_for(dtype: DType) -> DType:
    """The float dtype that a float literal or a float function makes of an operand."""
    dtype = dtype.compute
    if dtype.is_float:
        return dtype
    return f64 if dtype.bits == 64 else f32


def held(value: int, dtype: DType) -> int:
    """A Python integer that a dtype holds; floats hold what is finite in f64.

    Raises:
        DTypeError: it does not.
    """
    if value.bit_length() > 1024 if dtype.is_float else not fits(value, dtype):
        raise DTypeError(
            f"an integer of {value.bit_length()} bits is beyond {dtype.name}",
            hint="write it as a float, or as a number of NumPy with a dtype",
        )
    return value


def scalar_dtype(value: Any) -> DType:
    """The dtype that a scalar launch argument takes when its parameter is not annotated.

    Python ints are i32, or i64 (then u64) when they do not fit; Python floats are kept in f64 and
    are weak in the kernel, as literals are; NumPy scalars keep their dtype.
    """
    if isinstance(value, np.generic):
        return as_dtype(value.dtype)
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        for dtype in (i32, i64, u64):
            if fits(value, dtype):
                return dtype
        raise DTypeError(
            f"the integer {value} does not fit in 64 bits",
            hint="pass float(...), or parts of it as several numbers",
        )
    if isinstance(value, float):
        return f64
    raise DTypeError(
        f"a kernel cannot take a {type(value).__name__} as a runtime argument",
        hint="runtime arguments are arrays, views, structs and numbers; "
        "annotate the parameter cb.Comptime[...] to pass anything hashable",
    )


def fits(value: int, dtype: DType) -> bool:
    """Whether a Python int is in the range of an integer dtype."""
    if dtype.kind == "u":
        return 0 <= value < 1 << dtype.bits
    return -(1 << dtype.bits - 1) <= value < 1 << dtype.bits - 1
