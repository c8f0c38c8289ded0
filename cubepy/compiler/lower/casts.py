"""Rules of `cb.cast` and `cb.bitcast`."""

from __future__ import annotations

import math

import numpy as np

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr, VType
from cubepy.compiler.lower.operands import dtype_of, number
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value
from cubepy.errors import DTypeError
from cubepy.lang.dtypes import DType


@lowers("cast")
def _cast(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, dtype_v = unpack(name, args, kwargs, "v", "dtype")
    dtype = dtype_of(dtype_v, "the dtype of a cast").compute
    if (
        isinstance(v, Const)
        and v.is_number
        and not dtype.is_float
        and isinstance(v.value, (float, np.floating))
    ):
        low, high = _range(dtype)
        found = 0 if math.isnan(v.value) else int(max(low, min(high, v.value)))
        return convert.constant(min(max(found, low), high), dtype)
    if isinstance(v, Const) and v.is_number and dtype.is_int:
        return convert.constant(_wrapped(int(v.value), dtype), dtype)
    return convert.cast(number(s, v, name), dtype)


def _range(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    return (
        (0, (1 << dtype.bits) - 1)
        if dtype.kind == "u"
        else (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
    )


def _wrapped(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "i" and value >> (dtype.bits - 1) else value


@lowers("bitcast")
def _bitcast(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, dtype_v = unpack(name, args, kwargs, "v", "dtype")
    dtype = dtype_of(dtype_v, "the dtype of a bitcast")
    x = number(s, v, name)
    if {x.type.dtype.name, dtype.name} & {"f16", "bf16"}:
        raise DTypeError(
            "a bitcast of f16 or bf16 is not available",
            hint="reinterpret the array with .view(uint16)",
        )
    have, want = x.type.dtype.bits * max(x.type.lanes, 1), dtype.bits
    lanes = have // want if x.type.lanes else 0
    if have != want * max(lanes, 1) or "b" in (x.type.dtype.kind, dtype.kind) or lanes > 64:
        raise DTypeError(
            f"a bitcast keeps all bits: {x.type} has {have}, which {dtype.name} cannot take",
            hint="name a dtype of as many bits, or convert the number with cb.cast",
        )
    return Expr("bitcast", VType(dtype, lanes), (x,), dtype.name)
