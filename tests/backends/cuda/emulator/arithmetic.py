"""Arithmetic on numbers and lines: 16-bit floats are carried as f32, signed integers as Python's."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tests.backends.cuda.emulator.memory import DTYPES, plain

OPERATORS: dict[str, type[ast.operator]] = {
    "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "floordiv": ast.FloorDiv, "mod": ast.Mod, "and_": ast.BitAnd,
    "or_": ast.BitOr, "xor": ast.BitXor, "shl": ast.LShift, "shr": ast.RShift,
}  # fmt: skip
"""Ops that are operators of Python, written as such: a call costs more than they do."""


def converted(dtype: Any) -> Callable[[Any], Any]:
    return lambda value: (
        value.astype(dtype, copy=False) if isinstance(value, np.ndarray) else dtype(value)
    )


def rounded(dtype: str) -> Callable[[Any], Any]:
    return lambda value: np.asarray(value, np.float32).astype(DTYPES[dtype]).astype(np.float32)[()]


def signed(dtype: Any) -> Callable[[Any], Any]:
    half = 1 << 8 * np.dtype(dtype).itemsize - 1

    def number(v: Any) -> Any:
        if type(v) is int and -half <= v < half:
            return v
        return v.astype(dtype) if isinstance(v, np.ndarray) else (int(v) + half) % (2 * half) - half

    return number


def u32(value: Any) -> Any:
    return (
        value.astype(np.uint32)
        if isinstance(value, np.ndarray)
        else np.uint32(int(value) & 0xFFFFFFFF)
    )


def u64(value: Any) -> Any:
    return (
        value.astype(np.uint64)
        if isinstance(value, np.ndarray)
        else np.uint64(int(value) & 0xFFFFFFFFFFFFFFFF)
    )


def i64(value: Any) -> Any:
    return value.astype(np.int64) if isinstance(value, np.ndarray) else int(value)


def bitcast(value: Any, dtype: str) -> Any:
    bits = (
        value
        if isinstance(value, np.ndarray)
        else np.asarray(value, np.int32 if isinstance(value, int) else None)
    )
    return plain(bits.view(DTYPES[dtype])[()])


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    alike = type(a)
    if alike is type(b) is type(c):  # most are
        if alike is int:
            return a * b + c
        if alike is not np.ndarray:
            return alike(float(a) * float(b) + float(c))
        if a.dtype is b.dtype is c.dtype:
            return (a.astype(np.float64) * b + c).astype(a.dtype)
    if isinstance(a, int) and isinstance(b, int):
        return a * b + c
    kind = np.result_type(*(v.dtype for v in (a, b, c) if isinstance(v, (np.ndarray, np.generic))))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) or isinstance(c, np.ndarray):
        return (np.asarray(a, np.float64) * b + c).astype(kind)
    return kind.type(float(a) * float(b) + float(c))


def erf(x: Any) -> Any:
    """The error function, in its argument's dtype."""
    return np.vectorize(math.erf, [x.dtype])(x)[()]


def inserted(line: np.ndarray, k: int, value: Any) -> np.ndarray:
    out = line.copy()
    out[k] = value
    return out


def smaller(a: Any, b: Any) -> Any:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.fmin(a, b)


def larger(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.fmax(a, b)


def select(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b) if isinstance(condition, np.ndarray) else a if condition else b


def splat(value: Any, lanes: int) -> np.ndarray:
    wide = type(value) is int and not -(1 << 31) <= value < 1 << 31
    return ones(np.int64 if wide else type(value), lanes) * value


@lru_cache(256)
def ones(kind: type, lanes: int) -> np.ndarray:
    """To multiply with, which is quicker than to fill."""
    return np.ones(lanes, np.int32 if kind is int else kind)


@lru_cache(256)
def places(lanes: str) -> tuple[np.ndarray, int]:
    """The numbers of a text, and the largest of them."""
    at = np.array([int(k) for k in lanes.split()])
    return at, int(at.max())


def shuffle(a: Any, b: Any, lanes: str) -> np.ndarray:
    """Lanes of two lines, in the order of a text of numbers."""
    at, last = places(lanes)
    if type(a) is np.ndarray:
        if last < len(a):
            return a[at]
        if type(b) is np.ndarray:
            return np.concatenate((a, b))[at]
    both = (v if isinstance(v, np.ndarray) else np.atleast_1d(v) for v in (a, b))
    return np.concatenate(tuple(both))[at]


def packed_fma(a: Any, b: Any, c: Any, dtype: str) -> np.ndarray:
    """The pairs that words hold, rounded once."""
    x, y, z = (
        np.atleast_1d(np.asarray(v, np.uint32)).view(DTYPES[dtype]).astype(np.float64)
        for v in (a, b, c)
    )
    return (x * y + z).astype(DTYPES[dtype]).view(np.uint32)


def packed_max(a: Any, b: Any, dtype: str) -> Any:
    """The larger of the pairs that words hold, or NaN."""
    x, y = (np.atleast_1d(np.asarray(v, np.uint32)).view(DTYPES[dtype]) for v in (a, b))
    found = np.maximum(x, y).view(np.uint32)
    return found if isinstance(a, np.ndarray) and a.ndim else found[0]


def tf32_of(x: np.ndarray, even: bool) -> np.ndarray:
    """f32 with 10 bits of fraction, to nearest; what lies in the middle to even, or away from zero."""
    bits = x.view(np.uint32)
    half = 0xFFF + (bits >> 13 & 1) if even else 0x1000
    return (
        np.where(np.isfinite(x), bits + half & 0xFFFFE000, bits).astype(np.uint32).view(np.float32)
    )


def pack(line: Any, dtype: str) -> np.ndarray:
    """The words of a fragment."""
    x = np.asarray(line).astype(DTYPES[dtype])
    return (tf32_of(x, even=False) if dtype == "f32" else x).view(np.uint32)


ARITHMETIC: dict[str, Any] = {
    "INF": np.float32(np.inf), "NAN": np.float32(np.nan), "i64": i64, "u32": u32, "u64": u64,
    "i8": signed(np.int8), "i16": signed(np.int16), "i32": signed(np.int32),
    "u8": lambda v: np.uint8(int(v) & 0xFF), "u16": lambda v: np.uint16(int(v) & 0xFFFF),
    "popcount": lambda v: int(v).bit_count(),
    "ctz": lambda v: (int(v) & -int(v)).bit_length() - 1,
    "f32": converted(np.float32), "f64": converted(np.float64), "f16": rounded("f16"), "bf16": rounded("bf16"), "bitcast": bitcast,
    "neg": lambda a: -a, "absolute": np.abs, "fma": fma, "minnum": smaller, "maxnum": larger, "maximum": np.maximum, "minimum": np.minimum, "kept_maximum": np.maximum, "kept_minimum": np.minimum, "select": select, "rint": np.rint, "floor": np.floor,
    "exp2": np.exp2, "log2": np.log2, "approximate_exp2": np.exp2, "approximate_exp": np.exp, "erf": erf, "approximate_log2": np.log2, "approximate_log": np.log, "splat": splat,
    "extract": lambda line, k: plain(line[k]), "shuffle": shuffle,
    "line_sum": lambda line: plain(line.sum(dtype=line.dtype)), "line_max": lambda line: plain(line.max()),
    "line_min": lambda line: plain(line.min()), "line_all": lambda line: plain(np.all(line)), "line_any": lambda line: plain(np.any(line)), "pack": pack,
    "line_count": lambda line: np.int32(np.sum(line)),
    "partition": lambda line, mask: np.concatenate([line[mask], line[~mask]]),
    "opaque": lambda x: x, "no_unroll": lambda: None, "insert": inserted, "tanh": np.tanh, "isinf": np.isinf,
    "iota": lambda dtype, lanes: np.arange(lanes, dtype=DTYPES[dtype]), "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "plain_sqrt": np.sqrt,
    "packed_fma": packed_fma, "packed_max": packed_max, "unpack": lambda w, d: np.atleast_1d(np.asarray(w, np.uint32)).view(DTYPES[d]).astype(np.float32),
    **{name: eval(f"lambda a, b: a {sign} b") for name, sign in  # where an op is passed on as a value
       {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "and_": "&", "or_": "|", "xor": "^",
        "shl": "<<", "shr": ">>"}.items()},
}  # fmt: skip
