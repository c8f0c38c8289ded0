"""Expressions of the functions that generated CPU code calls, compiled; and what Python's integers
say they are.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

numba = pytest.importorskip("numba")

from cubepy.backends.cpu.lowering import lower
from cubepy.backends.llvm import ops
from cubepy.backends.llvm.emitted import Parameter
from cubepy.backends.llvm.machine_code import load_object
from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import Ptr, memory_ir
from cubepy.runtime.cache import digest

NUMPY = {
    "bool_": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2,
    "int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4,
}  # fmt: skip
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64")
WIDTHS = (0, 1, 3, 8, 16, 64)
N = 192  # a multiple of every width


@literal_op
def pointer_to(address: Any, dtype: Any) -> Any:
    """An integer address as a pointer."""
    name = getattr(dtype, "literal_value", None)
    if name is None:
        return None
    return (
        Ptr(name)(numba.types.int64, dtype),
        lambda b, at, _: b.inttoptr(at, memory_ir(name).as_pointer()),
    )


def name_of(array: np.ndarray) -> str:
    return next(k for k, v in NUMPY.items() if np.dtype(v) == array.dtype)


def compiled(body: str, dtypes: list[str], fastmath: bool = False) -> Callable[..., Any]:
    """Compile the body of a function of pointers p0, p1, ... and integers n0, n1, ..."""
    head = "".join(f"    p{k} = pointer_to(a{k}, {d!r})\n" for k, d in enumerate(dtypes))
    names = ", ".join([f"a{k}" for k in range(len(dtypes))] + ["n0", "n1"])
    text = f"def kernel({names}):\n" + head + "".join(f"    {line}\n" for line in body.splitlines())
    scope = {**ops.OPS, "pointer_to": pointer_to, "INF": math.inf, "NAN": math.nan}
    exec(text, scope)
    return numba.njit(error_model="numpy", fastmath=fastmath)(scope["kernel"])


def run(body: str, *arrays: np.ndarray, n0: int = 0, n1: int = 0) -> None:
    """Compile a body as kernels are compiled and call it on arrays."""
    words = np.array([*(a.ctypes.data for a in arrays), n0, n1], np.int64)
    entry(body, tuple(name_of(a) for a in arrays))(0, 1, words.ctypes.data)


@cache
def entry(body: str, dtypes: tuple[str, ...]) -> Callable[..., None]:
    """The machine code of a body: a function of two numbers and the address of its arguments."""
    pointers = tuple(Parameter(f"p{k}", "ptr", d) for k, d in enumerate(dtypes))
    names = "first", "last", *(p.name for p in pointers), "n0", "n1"
    before, after = (tuple(Parameter(n, "i64") for n in two) for two in (names[:2], names[-2:]))
    text = f"from {ops.__name__} import *\n\n\ndef kernel({', '.join(names)}):\n"
    text += "".join(f"    {line}\n" for line in body.splitlines())

    def source() -> Any:
        scope = {**ops.OPS, "INF": math.inf, "NAN": math.nan}
        exec(text, scope)
        return scope["kernel"]

    symbol = f"op_{digest(body, *dtypes)}"
    code, _ = lower(source, text, (*before, *pointers, *after), symbol, frozenset(), False)
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    laid = load_object(code, symbol)
    found = call(laid.entry)
    found.laid = laid
    return found


def apply(exprs: list[tuple[str, str]], width: int, *inputs: np.ndarray) -> list[np.ndarray]:
    """Evaluate expressions of a, b, c (the inputs) on scalars (width 0) or lines; each gives an
    array of a dtype.
    """
    outs = [np.zeros(inputs[0].size, NUMPY[d]) for _, d in exprs]
    k = len(inputs)
    reads = [f"load(p{j}, i)" if width == 0 else f"load_line(p{j}, i, {width})" for j in range(k)]
    put = "store" if width == 0 else "store_line"
    body = [f"for i in range(0, n0, {width or 1}):"]
    body += [f"    {name} = {read}" for name, read in zip("abc", reads, strict=False)]
    body += [f"    {put}(p{k + j}, i, {e})" for j, (e, _) in enumerate(exprs)]
    run("\n".join(body), *inputs, *outs, n0=inputs[0].size)
    return outs


def wrapped(value: int, dtype: str) -> int:
    """A Python int in the range of a dtype."""
    width = int(dtype[1:])
    value &= (1 << width) - 1
    return value - (1 << width) if dtype[0] == "i" and value >> (width - 1) else value


def ints(dtype: str, seed: int) -> np.ndarray:
    """Edge values and random ones."""
    info = np.iinfo(NUMPY[dtype])
    rng = np.random.default_rng(seed)
    edge = [v for v in (0, 1, -1, 2, -2, 3, 7, info.bits - 1, info.bits, info.min, info.max, info.max // 2)
            if info.min <= v <= info.max]  # fmt: skip
    out = rng.integers(info.min, info.max, N, dtype=NUMPY[dtype], endpoint=True)
    out[: N // 2] = rng.choice(np.array(edge, NUMPY[dtype]), N // 2)
    return out


def floats(dtype: str, seed: int) -> np.ndarray:
    """Edge values, among them infinities, NaN and subnormal numbers, and random ones."""
    info = np.finfo(NUMPY[dtype])
    rng = np.random.default_rng(seed)
    edge = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 3.0, -3.0, 1e6, math.inf, -math.inf,
                     math.nan, info.max, -info.max, info.tiny, info.smallest_subnormal], NUMPY[dtype])  # fmt: skip
    out = (rng.standard_normal(N) * 10.0 ** rng.integers(-3, 4, N)).astype(NUMPY[dtype])
    out[: N // 2] = rng.choice(edge, N // 2)
    return out


def same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    np.testing.assert_array_equal(got, want, err_msg=what)
    if got.dtype.kind == "f":
        zero = got == 0
        np.testing.assert_array_equal(
            np.signbit(got[zero]), np.signbit(want[zero]), err_msg=f"{what}: sign of zero"
        )


def int_reference(name: str, x: int, y: int, dtype: str) -> int | bool:
    width = int(dtype[1:])
    name = name.removesuffix("_by")
    if name == "floordiv":
        return wrapped(x // y, dtype) if y else 0
    if name == "mod":
        return wrapped(x % y, dtype) if y else 0
    if name == "shl":
        return wrapped(x << y, dtype) if 0 <= y < width else 0
    if name == "shr":
        return x >> y if 0 <= y < width else (-1 if x < 0 else 0)
    if name == "pow_":
        if y < 0:
            return {1: 1, -1: -1 if y & 1 else 1}.get(x, 0)
        return wrapped(pow(x, y, 1 << width), dtype)
    python = {
        "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and_": operator.and_, "or_": operator.or_,
        "xor": operator.xor, "minnum": min, "maxnum": max, "minimum": min, "maximum": max,
    }  # fmt: skip
    return wrapped(python[name](x, y), dtype)
