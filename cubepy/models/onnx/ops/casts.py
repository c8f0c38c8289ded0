"""Conversions between element types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from cubepy import tensor as T
from cubepy.errors import DTypeError
from cubepy.lang.dtypes import as_dtype
from cubepy.models.formats.onnx_schema import DTYPES
from cubepy.models.onnx.records import Call, dtype_of, operator
from cubepy.models.onnx.runner import host_of
from cubepy.tensor import Tensor

WHOLE = ("float16", "float32", "float64", "object")


def cast_host(x: Any, dtype: np.dtype, saturate: bool = True, rounding: str = "up") -> Any:
    """Host arrays in another dtype, as `Cast` has it."""
    if x.dtype == dtype:
        return x
    if dtype.kind == "O":
        return np.array([_text(v) for v in x.reshape(-1)], object).reshape(x.shape)
    if x.dtype.kind == "O":
        kind = dtype if dtype.kind in "fiub" else np.dtype(np.float32)
        return np.array([kind.type(v) for v in x.reshape(-1)], kind).reshape(x.shape).astype(dtype)
    name = dtype.name
    if name == "float8_e8m0fnu":
        return _to_e8m0(x.astype(np.float32), saturate, rounding).view(dtype)
    if name.startswith("float8") and saturate:
        limit = float(ml_dtypes.finfo(dtype).max)
        wide = x.astype(np.float32)
        wide = np.where(np.isnan(wide), wide, np.clip(wide, -limit, limit))
        return wide.astype(dtype)
    if name.startswith("float8"):
        return _unsaturated(x.astype(np.float32), dtype)
    if name in ("int4", "uint4", "int2", "uint2"):
        bits = 4 if "4" in name else 2
        whole = np.nan_to_num(x.astype(np.float32)) if x.dtype.kind in "fV" else x
        codes = np.trunc(whole).astype(np.int64) & ((1 << bits) - 1)
        if name[0] == "i":
            codes = codes - ((codes >> (bits - 1)) << bits)
        return codes.astype(np.int8).astype(dtype)
    if x.dtype.kind == "V" and dtype.kind != "V":
        x = x.astype(np.float32)
    if x.dtype.kind in "fV" and dtype.kind in "iu":
        return np.trunc(x.astype(np.float64)).astype(np.int64).astype(dtype)
    return x.astype(dtype)


def _unsaturated(x: Any, dtype: np.dtype) -> Any:
    limit = float(ml_dtypes.finfo(dtype).max)
    made = np.where(np.isnan(x), x, np.clip(x, -limit, limit)).astype(dtype)
    rounded = x.astype(dtype).astype(np.float32)
    beyond = (np.abs(x) > limit) & ((np.abs(rounded) > limit) | ~np.isfinite(rounded))
    out: Any = made.copy()
    infinite = dtype.name == "float8_e5m2"
    out[beyond] = (
        np.sign(x[beyond]) * np.inf if infinite else np.full(beyond.sum(), np.nan)
    ).astype(dtype)
    return out


def _to_e8m0(x: Any, saturate: bool, rounding: str) -> Any:
    """Powers of two that are exponents alone: the codes, of f32 (OCP microscaling formats)."""
    bits = x.view(np.uint32)
    exponent = (bits >> 23 & 255).astype(np.int64)
    fraction = bits & 0x7FFFFF
    if rounding == "up":
        more = (fraction > 0) & ((exponent > 0) | (fraction > 0x400000))
    elif rounding == "nearest":
        more = fraction >= 0x400000
    else:
        more = np.zeros(x.shape, bool)
    made = exponent + more
    made = np.where(made > 254, 254 if saturate else 255, made)
    return np.where(np.isnan(x) | (exponent == 255) & ~saturate, 255, made).astype(np.uint8)


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return (
            "NaN" if value != value else str(value).upper() if abs(value) == np.inf else str(value)
        )
    return str(value)


def cast(x: Any, dtype: np.dtype, saturate: bool = True, rounding: str = "up") -> Any:
    """A value in another dtype; one that tensors do not have becomes a host array."""
    if isinstance(x, np.ndarray):
        return cast_host(x, dtype, saturate, rounding)
    if dtype == x.dtype.numpy:
        return x
    exact = dtype.name == "bfloat16" or dtype.kind in "biu" or dtype.name in WHOLE
    if exact and not x.dtype.storage_only and dtype.kind != "O":
        if not (x.dtype.is_float and dtype.kind in "iu"):
            return x.astype(as_dtype(dtype))
        if dtype.kind == "i" and dtype.itemsize >= 4:
            return x.astype(as_dtype(dtype))
        return x.astype("i32").astype(as_dtype(dtype))
    if x.dtype.storage_only and exact and dtype.kind in "fiub":
        return x.astype(as_dtype(dtype))
    return back(cast_host(host_of(x), dtype, saturate, rounding), x)


def back(array: Any, like: Any) -> Any:
    """A host array as a tensor beside another one, if tensors have its dtype."""
    try:
        as_dtype(array.dtype)
    except DTypeError:
        return array
    return T(array, device=like.device if isinstance(like, Tensor) else None)


@operator("Cast", plain=True)
def cast_to(call: Call, x: Any) -> Any:
    """In another element type."""
    to = call["to"]
    to = {"FLOAT": 1, "INT64": 7, "INT32": 6, "DOUBLE": 11}.get(to, to)
    if to not in DTYPES:
        raise call.refuse(f"an element type {to!r}")
    saturate = bool(call.get("saturate", 1))
    return cast(x, DTYPES[to], saturate, call.get("round_mode", "up"))


@operator("CastLike", plain=True)
def cast_like(call: Call, x: Any, like: Any) -> Any:
    """In the element type of another tensor."""
    return cast(x, dtype_of(like), bool(call.get("saturate", 1)), call.get("round_mode", "up"))


@operator("BitCast", plain=True)
def bit_cast(call: Call, x: Any) -> Any:
    """The same bits as another element type."""
    dtype = DTYPES[call["to"]]
    x = host_of(x) if isinstance(x, Tensor) else x
    if x.dtype.itemsize != dtype.itemsize:
        raise call.refuse(f"{x.dtype} and {dtype} differ in size")
    return back(np.ascontiguousarray(x).reshape(x.shape).view(dtype), None)
