"""What each builtin of the language means, on typed values; `MEANING` maps a name to its
function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.backends.python import mathematics
from cubepy.backends.python.missing import kept
from cubepy.backends.python.values import (
    Value,
    binary,
    compare,
    convert,
    extreme,
    is_weak,
    meeting,
    strong,
)
from cubepy.errors import DTypeError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.builtins import FLOAT_MATH, PLANE_OPS
from cubepy.lang.dtypes import as_dtype, float_for
from cubepy.lang.mathematics import evaluate, fused, of_numbers

MEANING: dict[str, Callable[..., Any]] = {**mathematics.MEANING}


def means(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the meaning of builtins."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        MEANING.update(dict.fromkeys(names, fn))
        return fn

    return register


def _float_math(name: str) -> Callable[[Any], Any]:
    @kept
    def function(x: Any) -> Any:
        if is_weak(x):
            return of_numbers(name, x)
        v = strong(x)
        if not v.dtype.is_float:
            if name in ("floor", "ceil", "trunc") and v.dtype.is_int:
                return v
            v = convert(v, float_for(v.dtype) if v.dtype.kind != "b" else dt.f32)
        result = evaluate(name, v.data)
        if name in ("isnan", "isinf"):
            return Value(result, dt.bool_)
        return Value(result.astype(v.dtype.numpy), v.dtype)

    return function


MEANING.update({name: _float_math(name) for name in FLOAT_MATH})


@means("abs")
def _abs(x: Any) -> Any:
    if is_weak(x):
        return abs(x)
    v = strong(x)
    size = Value(np.abs(v.data), v.dtype)
    size.missing = v.missing and v.missing.but_for("max")
    return size


@means("round")
@kept
def _round(x: Any) -> Any:
    if is_weak(x):
        return of_numbers("round", x)
    v = strong(x)
    return Value(np.rint(v.wide).astype(v.dtype.numpy), v.dtype) if v.dtype.is_float else v


def _extreme(name: str, nan: bool) -> Callable[..., Any]:
    def evaluate(*values: Any) -> Any:
        result = values[0]
        for v in values[1:]:
            if is_weak(result) and is_weak(v):
                result = of_numbers(f"nan_{name}" if nan else name, result, v)
            else:
                result = extreme(name, result, v, nan)
        return result

    return evaluate


MEANING.update(
    {
        "min": _extreme("min", False),
        "max": _extreme("max", False),
        "nan_min": _extreme("min", True),
        "nan_max": _extreme("max", True),
    }
)


@means("clamp")
def _clamp(x: Any, low: Any, high: Any) -> Any:
    return MEANING["min"](MEANING["max"](x, low), high)


@means("pow")
def _pow(x: Any, y: Any) -> Any:
    return of_numbers("pow", x, y) if is_weak(x) and is_weak(y) else binary("pow", x, y)


@means("fma")
@kept
def _fma(a: Any, b: Any, c: Any) -> Any:
    if all(is_weak(v) for v in (a, b, c)):
        return of_numbers("fma", a, b, c)
    product = binary("mul", a, b) if not (is_weak(a) and is_weak(b)) else a * b
    total = binary("add", product, c)
    if not total.dtype.is_float:
        return total
    if total.dtype is dt.f64:
        lanes = np.broadcast_arrays(*(convert(v, dt.f64).data for v in (a, b, c)))
        rounded = [fused(*n) for n in zip(*(p.ravel().tolist() for p in lanes), strict=True)]
        return Value(np.reshape(rounded, total.data.shape), dt.f64)
    x, y, z = (convert(v, total.dtype).data.astype(np.longdouble) for v in (a, b, c))
    return Value(np.asarray(x * y + z).astype(total.dtype.numpy), total.dtype)


@means("select")
def _select(mask: Any, a: Any, b: Any) -> Any:
    if isinstance(mask, bool):
        return a if mask else b
    m = compare("ne", mask, 0) if strong(mask).dtype.kind != "b" else mask
    dtype = meeting(a, b)
    x, y = convert(a, dtype), convert(b, dtype)
    return Value(np.where(m.data, x.data, y.data), dtype)


@means("cast")
def _cast(v: Any, dtype: Any) -> Value:
    target = as_dtype(dtype).compute
    if is_weak(v) and isinstance(v, int) and target.is_int:
        mask = (1 << target.bits) - 1
        word = np.array([v & mask], np.uint64).astype(f"u{target.numpy.itemsize}")
        return Value(word.view(target.numpy)[0], target)
    return convert(Value(v, dt.f64) if isinstance(v, float) else v, target)


@means("bitcast")
def _bitcast(v: Any, dtype: Any) -> Value:
    x, target = strong(v), as_dtype(dtype)
    data = np.atleast_1d(x.data).view(target.numpy)
    return Value(data if x.lanes else data[0], target)


def _bits(name: str) -> Callable[[Any], Value]:
    def count(value: int, width: int) -> int:
        if name == "popcount":
            return bin(value).count("1")
        if name == "clz":
            return width - value.bit_length()
        return width if value == 0 else (value & -value).bit_length() - 1

    def evaluate(x: Any) -> Value:
        v = strong(x)
        if not v.dtype.is_int:
            raise DTypeError(f"cb.{name} needs an integer, not {v.dtype.name}")
        mask = (1 << v.dtype.bits) - 1
        flat = [count(int(i) & mask, v.dtype.bits) for i in np.atleast_1d(v.data)]
        return Value(np.array(flat).reshape(v.data.shape), v.dtype)

    return evaluate


MEANING.update({name: _bits(name) for name in ("popcount", "clz", "ctz")})


@means("splat")
def _splat(v: Any, lanes: Any) -> Value:
    x = strong(v)
    if x.data.ndim:
        if len(x.data) != int(lanes):
            raise KernelTypeError(
                f"cb.splat takes a scalar, or a line of the {int(lanes)} lanes that it gives, not "
                f"one of {len(x.data)}"
            )
        return v
    return (
        WeakLine(np.full(int(lanes), x.data), x.dtype)
        if is_weak(v)
        else Value(np.full(int(lanes), x.data), x.dtype)
    )


class WeakLine(Value):
    """A line made of a literal; it is typed by what it meets."""

    __slots__ = ()


@means("dot_i8")
def _dot(acc: Value, a: Value, b: Value, most: Any = None) -> Value:
    products = a.data.astype(np.int64) * b.data.astype(np.int64)
    total = acc.data.astype(np.int64) + products.reshape(-1, 4).sum(1)
    return Value((total & 0xFFFFFFFF).astype(np.uint32).view(np.int32), dt.i32)


@means("dot_bf16")
def _dot_pairs(acc: Value, a: Value, b: Value) -> Value:
    total = acc.data.astype(np.float64)
    for half in (1, 0):
        x, y = (
            v.data.view(np.uint16).reshape(-1, 2)[:, half].astype(np.uint32) << 16 for v in (a, b)
        )
        total = (total + x.view(np.float32).astype(np.float64) * y.view(np.float32)).astype(
            np.float32
        )
        total = total.astype(np.float64)
    return Value(total.astype(np.float32), dt.f32)


@means("concat")
def _concat(a: Value, b: Value) -> Value:
    return Value(np.concatenate([a.data, b.data]), a.dtype)


@means("interleave")
def _interleave(a: Value, b: Value) -> Value:
    return Value(np.stack([a.data, b.data], 1).reshape(-1), a.dtype)


@means("slice_line")
def _slice(v: Value, start: Any, lanes: Any) -> Value:
    return Value(v.data[int(start) : int(start) + int(lanes)], v.dtype)


@means("shuffle")
def _shuffle(a: Value, b: Value, lanes: Any) -> Value:
    both = np.concatenate([a.data, b.data])
    return Value(both[[int(k) for k in lanes]], a.dtype)


@means("partition")
def _partition(v: Value, mask: Value) -> Value:
    return Value(np.concatenate([v.data[mask.data], v.data[~mask.data]]), v.dtype)


def _plane(name: str) -> Callable[..., Any]:
    def evaluate(v: Any, unit: Any = 0) -> Any:
        if name == "plane_broadcast" and int(unit) != 0:
            raise KernelTypeError(f"unit {int(unit)} is out of range for a plane of 1")
        if name in ("plane_all", "plane_any"):
            return compare("ne", v, 0)
        x = strong(v)
        if x.dtype.kind == "b" and name.endswith(("_sum", "_prod", "_max", "_min")):
            raise DTypeError(f"cb.{name} takes numbers, not bools")
        return Value(np.zeros_like(x.data), x.dtype) if name == "plane_exclusive_sum" else x

    return evaluate


MEANING.update({name: _plane(name) for name in PLANE_OPS})
