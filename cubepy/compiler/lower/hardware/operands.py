"""What rules of hardware take: memory, elements, options that an instruction encodes.

Each rule checks that the device has the feature, and the shapes and dtypes that the instruction
takes; the backend only prints the call. Options that an instruction encodes are comptime.
"""

from __future__ import annotations

import math
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr, Hardware, Mem, VType
from cubepy.compiler.lower.operands import as_index, comptime_int, dtype_of
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import ArrayValue, Const, TupleValue, Value, describe, tuple_items
from cubepy.errors import ComptimeError, DTypeError, FeatureError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType
from cubepy.lang.hardware import FEATURES, NEEDS

FALSE, TRUE, ZERO = Const(False), Const(True), Const(0)
NONE = Const(None)
FP8 = ("fp8_e4m3", "fp8_e5m2")
MATRIX_DTYPES = ("f16", "bf16", "f32", "i8", "u8", *FP8)
SWIZZLES = (0, 32, 64, 128)


def require(s: Scope, name: str) -> None:
    """Refuse a builtin that the device does not have.

    Raises:
        FeatureError: its feature is not among the device's.
    """
    feature = NEEDS[name]
    if feature not in s.properties.features:
        raise FeatureError(
            f"cb.{name} needs the feature {feature!r} ({FEATURES[feature]}), which "
            f"{s.properties.name} does not have",
            hint=f'guard it: if "{feature}" in cb.device_properties().features',
        )


def emit(
    s: Scope,
    op: str,
    mems: tuple[Mem, ...] = (),
    args: tuple[Expr, ...] = (),
    attrs: tuple[Any, ...] = (),
) -> Value:
    """Append a statement without a result."""
    s.emit(Hardware(op, None, mems, args, attrs))
    return NONE


def result(
    s: Scope,
    op: str,
    vtype: VType,
    mems: tuple[Mem, ...],
    args: tuple[Expr, ...],
    attrs: tuple[Any, ...],
) -> Expr:
    """Append a statement whose result is a new variable."""
    target = s.fresh(op)
    s.types[target] = vtype
    s.emit(Hardware(op, target, mems, args, attrs))
    return Expr("var", vtype, (), target)


def memory(value: Value, kinds: tuple[str, ...], what: str) -> Mem:
    """The memory behind an argument."""
    names = {
        "global": "an array argument",
        "shared": "shared memory",
        "local": "local memory",
        "map": "a tensor map",
    }
    wanted = " or ".join(names[k] for k in kinds)
    if not isinstance(value, ArrayValue) or value.mem.kind not in kinds:
        given = names[value.mem.kind] if isinstance(value, ArrayValue) else describe(value)
        raise KernelTypeError(f"{what} must be {wanted}, not {given}")
    if value.mem.lanes:
        raise KernelTypeError(f"{what} holds lines; it must hold numbers")
    return value.mem


def barrier(s: Scope, value: Value, name: str) -> Mem:
    """Memory that `cb.barrier` made."""
    if not isinstance(value, ArrayValue) or value.mem.name not in s.barriers:
        raise KernelTypeError(
            f"cb.{name} works on barriers, not on {describe(value)}",
            hint="make them with cb.barrier(count, arrivals)",
        )
    return value.mem


def element(s: Scope, mem: Mem, where: Value, what: str) -> Expr:
    """Where an element is, in elements from the start of its memory: from its indices or its place
    in C order.
    """
    several = isinstance(where, TupleValue) or (
        isinstance(where, Const) and isinstance(where.value, tuple)
    )
    coords = tuple_items(where) if several else (where,)
    if several and len(coords) != mem.ndim:
        raise KernelTypeError(
            f"{what} has rank {mem.ndim} and is indexed with {len(coords)} indices"
        )
    if not several and mem.shape is None and mem.ndim > 1 and mem.layout != "contiguous":
        raise KernelTypeError(
            f"{what} is not contiguous, so one position does not say where",
            hint="give a tuple with an index for each axis",
        )
    steps = strides(s, mem)[-len(coords) :] if several else strides(s, mem)[-1:]
    terms: list[Value] = []
    for index, stride in zip(coords, steps, strict=True):
        known = index.value if isinstance(index, Const) else as_index(s, index)
        if isinstance(known, Expr):
            terms.append(
                known if stride == Const(1) else convert.binary("mul", known, stride, s.index)
            )
        elif known:
            terms.append(convert.binary("mul", index, stride, s.index))
    total: Value = ZERO
    for term in terms:
        total = term if total == ZERO else convert.binary("add", total, term, s.index)
    return as_index(s, total)


def strides(s: Scope, mem: Mem) -> tuple[Value, ...]:
    """How far neighbours along each axis are apart, in elements."""
    if mem.shape is not None:
        return tuple(Const(math.prod(mem.shape[d + 1 :])) for d in range(mem.ndim))
    last = mem.ndim - 1
    return tuple(
        Const(1)
        if d == last and mem.layout != "strided"
        else Expr("stride", VType(s.index), (), (mem, d))
        for d in range(mem.ndim)
    )


def flag(value: Value, what: str) -> bool:
    """A comptime bool."""
    if not isinstance(value, Const) or not isinstance(value.value, bool):
        raise ComptimeError(f"{what} must be True or False at comptime, not {describe(value)}")
    return value.value


def choice(s: Scope, value: Value, allowed: tuple[int, ...] | range, what: str) -> int:
    """A comptime int out of some."""
    n = comptime_int(value, what)
    if n not in allowed:
        options = (
            f"{allowed[0]} to {allowed[-1]}"
            if isinstance(allowed, range)
            else ", ".join(map(str, allowed))
        )
        raise KernelTypeError(f"{what} must be one of {options}, not {n}")
    return n


def matrix_dtype(
    s: Scope, value: Value, name: str, allowed: tuple[str, ...] = MATRIX_DTYPES
) -> DType:
    """The dtype of a product's inputs; "tf32" is another name of f32 here."""
    tf32 = isinstance(value, Const) and value.value == "tf32"
    dtype = dt.f32 if tf32 else dtype_of(value, f"the dtype of cb.{name}")
    if dtype.name not in allowed:
        raise DTypeError(
            f"cb.{name} does not take {dtype.name}", hint=f"it takes {', '.join(allowed)}"
        )
    units = {"mma_fp8", "tma"} & s.properties.features
    if dtype.name in FP8 and not units and s.properties.matrix_instruction(dtype.name) is None:
        raise FeatureError(f"{s.properties.name} has no matrix units for {dtype.name}")
    return dtype


def holds(mem: Mem, dtype: DType) -> bool:
    """Whether shared memory holds elements of a dtype; those without arithmetic of their own lie
    there as bytes.
    """
    return mem.dtype is dtype or (dtype.storage_only and mem.dtype is dt.u8 and dtype.itemsize == 1)


def words(s: Scope, value: Value, lanes: tuple[int, ...], what: str, dtype: DType = dt.u32) -> Expr:
    """A line of a dtype, of one of these lengths; 0 is a number."""
    wanted = " or ".join(map(str, lanes))
    if (
        not isinstance(value, Expr)
        or value.type.dtype is not dtype
        or value.type.lanes not in lanes
    ):
        given = str(value.type) if isinstance(value, Expr) else describe(value)
        raise KernelTypeError(f"{what} must be a line of {wanted} {dtype.name}, not {given}")
    return value
