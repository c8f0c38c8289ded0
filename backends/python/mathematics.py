"""What the functions of `lang.mathematics` mean on typed values; `MEANING` has a function for each
name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.backends.python.values import Value, convert, is_weak, meeting, strong
from cubepy.errors import DTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang import mathematics
from cubepy.lang.dtypes import DType

MEANING: dict[str, Callable[..., Any]] = {}


def _of_floats(name: str) -> Callable[..., Any]:
    """A function of one or two floats, computed in double precision and rounded to their dtype."""

    def evaluate(*given: Any, **named: Any) -> Any:
        order = ("y", "x") if name == "atan2" else ("x", "y")
        values = [*given, *(named[k] for k in order if k in named)]
        if all(is_weak(v) for v in values):
            return mathematics.evaluate(name, *values).item()
        dtype = strong(values[0]).dtype if len(values) == 1 else meeting(*values)
        if not dtype.is_float:
            dtype = _float_dtype(dtype)
        wide = [convert(v, dtype).data.astype(np.float64) for v in values]
        found = mathematics.evaluate(name, *wide)
        if name == "isfinite":
            return Value(found, dt.bool_)
        return Value(np.asarray(found).astype(dtype.numpy), dtype)

    return evaluate


def _float_dtype(dtype: DType) -> DType:
    return dt.f32 if dtype.kind == "b" else dt.float_for(dtype)


def _sign(x: Any) -> Any:
    v = strong(x)
    if v.dtype.kind == "b":
        raise DTypeError("cb.sign needs a number, not bool_", hint="cast it to an integer")
    if is_weak(x):
        return type(x)(mathematics.evaluate("sign", x).item())
    return Value(np.sign(v.wide).astype(v.dtype.numpy), v.dtype)


def _ldexp(x: Any, n: Any) -> Any:
    power = strong(n)
    if not power.dtype.is_int:
        raise DTypeError(f"cb.ldexp needs an integer exponent, not {power.dtype.name}")
    if is_weak(x) and is_weak(n):
        return float(mathematics.times_power(float(x), n))
    v = strong(x)
    if not v.dtype.is_float:
        v = convert(v, _float_dtype(v.dtype))
    found = np.asarray(mathematics.times_power(v.wide, power.data))
    return Value(found.astype(v.dtype.numpy), v.dtype)


def _integers(name: str, *values: Any) -> None:
    for v in values:
        if not strong(v).dtype.is_int:
            raise DTypeError(f"cb.{name} needs integers, not {strong(v).dtype.name}")


def _lanewise(function: Callable[..., int], dtype: DType, *values: Value) -> Value:
    lines = np.broadcast_arrays(*(v.data for v in values))
    rows = zip(*(np.atleast_1d(line).tolist() for line in lines), strict=True)
    found = np.array([function(*row) for row in rows], dtype.numpy)
    return Value(found.reshape(lines[0].shape), dtype)


def _mulhi(x: Any, y: Any) -> Any:
    _integers("mulhi", x, y)
    dtype = meeting(x, y)
    if is_weak(x) and is_weak(y):
        return mathematics.high_half(x, y, dtype.bits)
    a, b = convert(x, dtype), convert(y, dtype)
    return _lanewise(lambda p, q: mathematics.high_half(p, q, dtype.bits), dtype, a, b)


def _reverse_bits(x: Any) -> Any:
    _integers("reverse_bits", x)
    v = strong(x)
    bits, signed = v.dtype.bits, v.dtype.kind == "i"
    if is_weak(x):
        return mathematics.reversed_bits(x, bits, signed)
    return _lanewise(lambda p: mathematics.reversed_bits(p, bits, signed), v.dtype, v)


MEANING.update({n: _of_floats(n) for n in (*mathematics.UNARY, *mathematics.BINARY, "isfinite")})
MEANING.update({"sign": _sign, "ldexp": _ldexp, "mulhi": _mulhi, "reverse_bits": _reverse_bits})
