"""Products of matrices whose plane is one unit, which holds all of them: `cb.mma` on the python
backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.backends.python.builtins import means
from cubepy.backends.python.values import Value, strong
from cubepy.errors import FeatureError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.fragments import Fragment, doubling, instruction

_BY_ROWS = Fragment((), doubling(1, 2, 1) + doubling(1, 2, 0))
INSTRUCTIONS = tuple(
    instruction(name, _BY_ROWS, _BY_ROWS, _BY_ROWS)
    for name in ("f16", "bf16", "i8", "fp8_e4m3", "fp8_e5m2")
)
"""Products of 4 by 4 by 4, row by row."""


def _elements(words: Value, fragment: Fragment, dtype: str) -> np.ndarray:
    """The matrix whose elements words hold, in f64."""
    flat = np.ascontiguousarray(words.data).view(as_dtype(dtype).numpy).astype(np.float64)
    out = np.empty(fragment.shape)
    for k in range(fragment.count):
        out[fragment.at(0, k)] = flat[k]
    return out


@means("mma")
def _mma(a: Value, b: Value, c: Value, dtype: Any, other: Any = None) -> Value:
    name = as_dtype(dtype).name
    found = next(m for m in INSTRUCTIONS if m.dtype == name)
    if other is not None and as_dtype(other).name != name:
        raise FeatureError("the python backend multiplies bytes with signs alone")
    with np.errstate(all="ignore"):
        product = _elements(a, found.a, name) @ _elements(b, found.b, name)
        flat = np.array([product[found.c.at(0, k)] for k in range(found.c.count)])
        if found.sums == "i32":
            total = c.data.astype(np.int64) + flat.astype(np.int64)
            return Value((total & 0xFFFFFFFF).astype(np.uint32).view(np.int32), dt.i32)
        return Value((c.data.astype(np.float64) + flat).astype(np.float32), dt.f32)


@means("pack")
def _pack(v: Any, dtype: Any) -> Value:
    with np.errstate(all="ignore"):
        floats = strong(v).wide.astype(np.float32).astype(as_dtype(dtype).numpy)
    return Value(floats.view(np.uint32), dt.u32)


@means("unpack")
def _unpack(words: Value, dtype: Any) -> Value:
    floats = np.ascontiguousarray(words.data).view(as_dtype(dtype).numpy)
    return Value(floats.astype(np.float32), dt.f32)
