"""Dtypes, what they promote to, and what the namespace says of itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from cubepy.errors import ArgumentError, DTypeError
from cubepy.lang import dtypes as known
from cubepy.lang.dtypes import DType, as_dtype, promote
from cubepy.runtime.device import BACKENDS, Device, backend_named, current
from cubepy.tensor.array import Tensor, as_tensor, operand

bool = known.bool_
int8, int16, int32, int64 = known.i8, known.i16, known.i32, known.i64
uint8, uint16, uint32, uint64 = known.u8, known.u16, known.u32, known.u64
float16, bfloat16, float32, float64 = known.f16, known.bf16, known.f32, known.f64
e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

_SIGNED: dict[str, DType] = {"int8": int8, "int16": int16, "int32": int32, "int64": int64}
_UNSIGNED: dict[str, DType] = {"uint8": uint8, "uint16": uint16, "uint32": uint32, "uint64": uint64}
_FLOATS: dict[str, DType] = {"float32": float32, "float64": float64}
_KINDS: dict[str, dict[str, DType]] = {
    "bool": {"bool": bool},
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED | _UNSIGNED,
    "real floating": _FLOATS,
    "complex floating": {},
    "numeric": _SIGNED | _UNSIGNED | _FLOATS,
}


def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Tensor:
    """A tensor in another dtype; floats to integers truncate and saturate."""
    found = as_tensor(x).astype(dtype)
    if device is not None:
        found = found.to(device)
    return found.clone() if copy and found is x else found


def can_cast(from_: Any, to: Any, /) -> Any:
    """Whether a dtype (or that of a tensor) promotes to another one."""
    given = from_.dtype if isinstance(from_, Tensor) else as_dtype(from_)
    return promote(given, as_dtype(to)) is as_dtype(to)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that tensors, dtypes and numbers promote to; a number takes that of the others, as
    far as it fits.
    """
    numbers = [v for v in arrays_and_dtypes if isinstance(v, (int, float))]
    dtypes = [
        v.dtype if hasattr(v, "dtype") else as_dtype(v)
        for v in arrays_and_dtypes
        if not isinstance(v, (int, float))
    ]
    if not dtypes:
        raise ArgumentError("result_type needs a tensor or a dtype")
    found: DType = as_dtype(dtypes[0])
    for dtype in dtypes[1:]:
        found = promote(found, as_dtype(dtype))
    for number in numbers:
        found = promote(found, operand(number, Tensor(_number(found))).dtype)
    return found


def _number(dtype: DType) -> Any:
    return as_tensor(np.zeros((), dtype.numpy)).storage


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is one, or of a kind such as "integral", or of one of several."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str) and kind in _KINDS:
        found = as_dtype(dtype)
        if kind in ("real floating", "numeric") and found.is_float:
            return True
        return found in _KINDS[kind].values()
    if isinstance(kind, str):
        raise ArgumentError(f"there is no kind of dtypes {kind!r}", hint=", ".join(_KINDS))
    return as_dtype(dtype) is as_dtype(kind)


@dataclass(frozen=True)
class FloatInfo:
    """What `finfo` gives."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """What `iinfo` gives."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a float dtype (or that of a tensor)."""
    found = type.dtype if isinstance(type, Tensor) else as_dtype(type)
    if not found.is_float:
        raise DTypeError(f"finfo is of floats, not of {found.name}")
    info = ml_dtypes.finfo(found.numpy)
    small = float(info.smallest_normal)
    ends = float(info.eps), float(info.max), float(info.min)
    return FloatInfo(found.bits, *ends, small, found)


def iinfo(type: Any, /) -> IntegerInfo:
    """The limits of an integer dtype (or that of a tensor)."""
    found = type.dtype if isinstance(type, Tensor) else as_dtype(type)
    if not found.is_int:
        raise DTypeError(f"iinfo is of integers, not of {found.name}")
    top = (1 << found.bits - (found.kind == "i")) - 1
    return IntegerInfo(found.bits, top, -top - 1 if found.kind == "i" else 0, found)


class Info:
    """What `__array_namespace_info__` gives."""

    def capabilities(self) -> dict[str, Any]:
        """What can be done."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where new tensors are."""
        return current()

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Dtypes of new tensors."""
        return {"real floating": float32, "integral": int64, "indexing": int64}

    def devices(self) -> list[Device]:
        """Where tensors may be."""
        return [Device(b, n) for b in BACKENDS for n in range(backend_named(b).count())]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes of the standard, or those of a kind, or of several."""
        if kind is None:
            return _KINDS["bool"] | _KINDS["numeric"]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        found: dict[str, DType] = {}
        for one in kinds:
            if one not in _KINDS:
                raise ArgumentError(f"there is no kind of dtypes {one!r}", hint=", ".join(_KINDS))
            found |= _KINDS[one]
        return found


def __array_namespace_info__() -> Info:
    return Info()


__array_api_version__ = "2024.12"


__all__ = [
    "astype",
    "bfloat16",
    "bool",
    "can_cast",
    "e",
    "finfo",
    "float16",
    "float32",
    "float64",
    "iinfo",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "nan",
    "newaxis",
    "pi",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
