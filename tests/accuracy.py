"""How far functions of floats are from the truth, in units of the last place: draws, references,
distances.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

FORMATS = {  # dtype, bits of precision, exponent of the smallest subnormal
    "f16": (np.dtype(np.float16), 11, -24),
    "bf16": (np.dtype(ml_dtypes.bfloat16), 8, -133),
    "f32": (np.dtype(np.float32), 24, -149),
    "f64": (np.dtype(np.float64), 53, -1074),
}
PLACES = (
    0.25,
    0.347,
    7 / 16,
    0.5,
    11 / 16,
    1,
    19 / 16,
    1.5,
    math.pi / 2,
    2,
    39 / 16,
    2.5,
    3,
    math.pi,
    4,
    5,
    7.5,
    8,
    9.2,
    10.1,
    26.6,
    88.7,
    171.6,
    355,
    710,
)
"""Where some function has a zero, a pole, an end, or goes from one formula to another one."""
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    1000.0,
    -1000.0,
    math.inf,
    -math.inf,
    math.nan,
)


def of_libm(name: str) -> Callable[[float], float]:
    """A function of the C library in extended precision; Python's `math.lgamma` is another one, and
    less exact.
    """
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.argtypes, function.restype = [ctypes.c_longdouble], ctypes.c_longdouble
    return function  # type: ignore[no-any-return]


def each(function: Callable[[float], float]) -> Callable[[Any], np.ndarray]:
    """A function of floats, element by element, in double precision."""
    return lambda x: np.array([function(float(v)) for v in x.flat]).reshape(x.shape)


UNARY: dict[str, Callable[..., Any]] = {
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "log10": np.log10,
    "cbrt": np.cbrt,
    "erfc": each(of_libm("erfcl")),
    "lgamma": each(of_libm("lgammal")),
}
BINARY: dict[str, Callable[..., Any]] = {
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "fmod": np.fmod,
    "copysign": np.copysign,
}


def special(dtype: str) -> np.ndarray:
    """Zeros, ends and what is no number."""
    kind = FORMATS[dtype][0]
    info = ml_dtypes.finfo(kind)
    ends = [float(v) for v in (info.max, info.tiny, info.smallest_subnormal)]
    return np.array([*SPECIAL, *ends, *(-v for v in ends)], kind)


def draws(dtype: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of all exponents (random bits), of moderate size, and close to the places of
    `PLACES`.
    """
    kind = FORMATS[dtype][0]
    part = count // 4
    word = np.dtype(f"u{kind.itemsize}")
    anything = rng.integers(0, np.iinfo(word).max, part, word, endpoint=True).view(kind)
    signs = rng.choice([-1.0, 1.0], (3, part))
    near = rng.choice(PLACES, part) * (
        1 + rng.normal(size=part) * 10.0 ** rng.uniform(-16, -1, part)
    )
    sizes = 10.0 ** rng.uniform(-6, 3, part)
    with np.errstate(all="ignore"):
        made = (signs * [near, sizes, rng.uniform(0, 12, part)]).reshape(-1).astype(kind)
    return np.concatenate([special(dtype), anything, made])


def pairs(dtype: str, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of any numbers, pairs of like size, and all pairs of special numbers."""
    x, ends = draws(dtype, count, rng), special(dtype)
    with np.errstate(all="ignore"):
        like = (x.astype(np.float64) * 10.0 ** rng.uniform(-3, 3, x.size)).astype(x.dtype)
    y = np.where(rng.random(x.size) < 0.5, like, rng.permutation(x))
    first, second = np.meshgrid(ends, ends)
    return np.concatenate([first.reshape(-1), x]), np.concatenate([second.reshape(-1), y])


def reference(name: str, *values: np.ndarray) -> np.ndarray:
    """What a function should give: in extended precision, where there is one, for f64. No NaN of an
    argument signals: C libraries differ in what they make of those.
    """
    wide = np.longdouble if values[0].dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        found = [x.astype(wide) for x in values]
        given = [np.where(np.isnan(v), np.copysign(wide(np.nan), v), v) for v in found]
        return np.asarray((UNARY | BINARY)[name](*given))


def largest(kind: Any) -> float:
    """The largest finite number of a dtype."""
    return float((np.finfo if np.dtype(kind).kind == "f" else ml_dtypes.finfo)(kind).max)


def ulps(got: np.ndarray, want: np.ndarray, dtype: str) -> np.ndarray:
    """The distance in units of the last place of what is wanted; infinite for a wrong NaN, infinity
    or sign of zero. Where what is wanted is finite before it is rounded, an infinity counts as the
    number that would follow the largest one.
    """
    kind, precision, least = FORMATS[dtype]
    with np.errstate(all="ignore"):
        near = want.astype(kind)
        exponent = np.frexp(np.where(np.isfinite(want), want, 1))[1]
        unit = np.ldexp(np.ones(want.shape, want.dtype), np.maximum(exponent - precision, least))
        beyond = 2 * np.ldexp(want.dtype.type(1), np.frexp(want.dtype.type(largest(kind)))[1] - 1)
        value = np.where(np.isinf(got), np.copysign(beyond, got), got.astype(want.dtype))
        away = np.abs(value - want) / unit
        nothing = np.isnan(got) | np.isnan(near)
        same = np.where(nothing, np.isnan(got) & np.isnan(near), got == near)
        zeros = (got == 0) & (near == 0) & (np.signbit(got) != np.signbit(near))
        finite = np.isfinite(want) & ~nothing
    exact = same & ~np.isfinite(near.astype(np.float64))
    return np.where(zeros, np.inf, np.where(exact, 0, np.where(finite, away, np.inf))).astype(float)


EXACT = ("fmod", "copysign")
LIBDEVICE = {  # what NVIDIA's guide states of its math library, in f32 and f64
    "tan": (4, 2),
    "asin": (4, 2),
    "acos": (3, 2),
    "atan": (2, 2),
    "sinh": (3, 2),
    "cosh": (2, 2),
    "asinh": (3, 3),
    "acosh": (4, 3),
    "atanh": (3, 2),
    "log10": (2, 1),
    "cbrt": (1, 1),
    "erfc": (4, 5),
    "lgamma": (6, 4),
    "atan2": (3, 2),
    "hypot": (3, 2),
}
REFERENCE = ("erfc", "lgamma")
"""Whose references in f64 are rounded."""


def bound(name: str, dtype: str, device: str) -> float:
    """Units of the last place that a function may be off on a device."""
    if name in EXACT:
        return 0.0
    double = dtype == "f64"
    doubt = 0.5 * (name in REFERENCE) if double else 0.05
    if device == "cuda":
        return LIBDEVICE[name][double] + 0.5 + doubt
    return (6.0 if device == "python" else 2.0) + doubt if double else 0.5 + doubt
