"""Launch arguments as kernels see them on the python backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.backends.python.memory import Memory
from cubepy.backends.python.values import Value, convert
from cubepy.lang import dtypes as dt
from cubepy.lang.declare import Param
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.lang.struct import Struct
from cubepy.lang.views import plain


def argument(this: Any, param: Param, value: Any) -> Any:
    """A launch argument as the kernel sees it."""
    if param.kind == "comptime":
        return Value(value, as_dtype(value.dtype)) if isinstance(value, np.integer) else value
    if param.kind == "view" and isinstance(value, np.ndarray):
        value = plain(value)
    return _any(this, param.name, value, param.dtype)


def _any(this: Any, name: str, value: Any, dtype: DType | None) -> Any:
    if isinstance(value, np.ndarray):
        return Memory(this, name, value if value.ndim else value.reshape(1), "global")
    if isinstance(value, Struct):
        fields = {
            f.name: value.__cubepy_values__[f.name]
            if f.kind == "comptime"
            else _any(this, f"{name}.{f.name}", value.__cubepy_values__[f.name], f.dtype)
            for f in value.__cubepy_type__.fields
        }
        return this.made(value.__cubepy_type__, fields)
    if isinstance(value, tuple):
        return tuple(_any(this, f"{name}.{i}", v, None) for i, v in enumerate(value))
    if dtype is not None:
        return (
            Value(value, dtype.compute)
            if not dtype.is_float
            else convert(Value(value, dt.f64), dtype.compute)
        )
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value
    if isinstance(value, (bool, int, np.generic)):
        d = dt.scalar_dtype(value)
        return convert(Value(value, d), d.compute)
    return value
