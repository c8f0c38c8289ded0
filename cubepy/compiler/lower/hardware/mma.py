"""Rules of what a plane multiplies: fragments in registers, and how they get there."""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr, VType
from cubepy.compiler.lower.hardware.operands import (
    FALSE,
    FP8,
    NONE,
    choice,
    element,
    emit,
    flag,
    matrix_dtype,
    memory,
    require,
    result,
    words,
)
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value, describe
from cubepy.errors import FeatureError, KernelTypeError
from cubepy.lang import dtypes as dt

NVIDIA = 4, 2, 4
"""Words of a and b and numbers of c wherever there is the feature "mma"."""


def lengths(s: Scope, dtype: dt.DType, c: Value) -> tuple[int, int, int]:
    """Words of a and b and numbers of c that a unit holds on the device: of the instruction with
    sums like c, or of the first.

    Raises:
        FeatureError: it does not multiply matrices of this dtype.
    """
    known = [m.lengths for m in s.properties.matrix_instructions if m.dtype == dtype.name]
    if known:
        sums = c.type.lanes if isinstance(c, Expr) else 0
        return next((found for found in known if found[2] == sums), known[0])
    if "mma" in s.properties.features:
        return NVIDIA
    there = ", ".join(dict.fromkeys(m.dtype for m in s.properties.matrix_instructions))
    raise FeatureError(
        f"{s.properties.name} has no matrix units for {dtype.name}", hint=f"it has them for {there}"
    )


@lowers("mma")
def _mma(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    if not s.properties.matrix_instructions:
        require(s, name)
    a, b, c, dtype_v, other_v = unpack(name, args, kwargs, "a", "b", "c", "dtype", other=NONE)
    dtype = matrix_dtype(s, dtype_v, name)
    kind = dtype.name
    if other_v != NONE:
        other = matrix_dtype(s, other_v, name, (kind, "i8", "u8") if dtype.is_int else (kind,))
        kind = kind if other is dtype else f"{kind}.{other.name}"
    acc = dt.i32 if dtype.is_int else dt.f32
    of_a, of_b, of_c = lengths(s, dtype, c)
    values = (
        words(s, a, (of_a,), "the fragment a of cb.mma"),
        words(s, b, (of_b,), "the fragment b of cb.mma"),
        words(s, c, (of_c,), "the accumulator of cb.mma", acc),
    )
    return result(s, "mma", VType(acc, of_c), (), values, (kind,))


@lowers("load_matrix")
def _load_matrix(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    source, i, count_v, flip = unpack(
        name, args, kwargs, "shared", "i", count=Const(4), transpose=FALSE
    )
    mem = memory(source, ("shared",), "the source of cb.load_matrix")
    count = choice(s, count_v, (1, 2, 4), "the count of cb.load_matrix")
    where = element(s, mem, i, "the source of cb.load_matrix")
    s.read.add(mem.name)
    return result(s, name, VType(dt.u32, count), (mem,), (where,), (count, flag(flip, "transpose")))


@lowers("store_matrix")
def _store_matrix(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    target, i, line, flip = unpack(name, args, kwargs, "shared", "i", "words", transpose=FALSE)
    mem = memory(target, ("shared",), "the target of cb.store_matrix")
    value = words(s, line, (1, 2, 4), "what cb.store_matrix stores")
    where = element(s, mem, i, "the target of cb.store_matrix")
    s.written.add(mem.name)
    return emit(s, name, (mem,), (value, where), (flag(flip, "transpose"),))


@lowers("pack", "unpack")
def _pack(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    if not s.properties.matrix_instructions:
        require(s, name)
    v, dtype_v = unpack(name, args, kwargs, "v", "dtype")
    kinds: tuple[str, ...] = ("f16", "bf16")
    if "mma" in s.properties.features:
        kinds = ("f16", "bf16", "f32", *FP8) if name == "pack" else ("f16", "bf16", "f32")
    dtype = matrix_dtype(s, dtype_v, name, kinds)
    each = 32 // dtype.bits
    if name == "unpack":
        x = words(s, v, tuple(range(1, 64 // each + 1)), "what cb.unpack takes apart")
        return result(s, name, VType(dt.f32, x.type.lanes * each), (), (x,), (dtype.name,))
    if not isinstance(v, Expr) or not v.type.lanes or not v.type.dtype.is_float:
        raise KernelTypeError(f"cb.pack takes a line of floats, not {describe(v)}")
    if v.type.lanes % each:
        raise KernelTypeError(
            f"{v.type.lanes} lanes of {dtype.name} do not fill whole words of {each}"
        )
    x = convert.cast(v, dt.f32)
    return result(s, name, VType(dt.u32, x.type.lanes // each), (), (x,), (dtype.name,))


@lowers("packed_fma")
def _packed_fma(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    *lines, dtype_v = unpack(name, args, kwargs, "a", "b", "c", "dtype")
    dtype = matrix_dtype(s, dtype_v, name, ("f16", "bf16"))
    first = words(s, lines[0], tuple(range(1, 17)), "a of cb.packed_fma")
    a, b, c = (
        words(s, v, (first.type.lanes,), f"{k} of cb.packed_fma")
        for k, v in zip("abc", lines, strict=True)
    )
    return result(s, name, a.type, (), (a, b, c), (dtype.name,))


@lowers("packed_max")
def _packed_max(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    *both, dtype_v = unpack(name, args, kwargs, "a", "b", "dtype")
    dtype = matrix_dtype(s, dtype_v, name, ("f16", "bf16"))
    first = words(s, both[0], tuple(range(17)), "a of cb.packed_max")
    a, b = (
        words(s, v, (first.type.lanes,), f"{k} of cb.packed_max")
        for k, v in zip("ab", both, strict=True)
    )
    return result(s, name, a.type, (), (a, b), (dtype.name,))
