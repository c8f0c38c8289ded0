"""The rule of `cb.tile_dot`: a CPU's matrix unit multiplies tiles where they lie in memory."""

from __future__ import annotations

import math

from cubepy.compiler.ir import Expr, Mem
from cubepy.compiler.lower.hardware.operands import element, emit, memory, require, strides
from cubepy.compiler.lower.operands import as_index, comptime_int, dtype_of
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import ArrayValue, Const, TupleValue, Value, describe
from cubepy.errors import DTypeError, KernelTypeError
from cubepy.lang import dtypes as dt

COLUMNS = 32
"""Of the sums of one call: two tiles of 16."""
KINDS = {"bf16": dt.f32, "i8": dt.i32, "u8": dt.i32}
"""What sums are made of, by the elements of a."""


def sums_of(value: Value, dtype: dt.DType) -> Mem:
    """Local memory whose rows hold 32 sums."""
    mem = value.mem if isinstance(value, ArrayValue) else None
    if mem is None or mem.kind != "local" or mem.dtype is not dtype or mem.shape is None:
        raise KernelTypeError(
            f"the sums of cb.tile_dot must be local memory of {dtype.name}, not {describe(value)}"
        )
    if math.prod(mem.shape[1:]) * max(mem.lanes, 1) != COLUMNS:
        shape = (*mem.shape, mem.lanes) if mem.lanes else mem.shape
        raise KernelTypeError(f"the sums of cb.tile_dot have rows of {COLUMNS}, not shape {shape}")
    return mem


def operand(s: Scope, value: Value, where: Value, what: str) -> tuple[Mem, tuple[Expr, Expr]]:
    """An operand's memory, the place it is read from, and how far its rows are apart, in words."""
    mem = memory(value, ("global", "local"), what)
    if mem.dtype is not dt.u32 or mem.ndim < 2:
        raise KernelTypeError(
            f"{what} must have rows of words (u32), not {mem.dtype.name} of {mem.ndim} axes"
        )
    if mem.layout == "strided":
        raise KernelTypeError(
            f"the words of {what} must be neighbours", hint="copy it, or swap its last axes"
        )
    if not isinstance(where, TupleValue) and not isinstance(getattr(where, "value", None), tuple):
        raise KernelTypeError(
            f"the place in {what} is a tuple with an index for each axis, not {describe(where)}"
        )
    return mem, (element(s, mem, where, what), as_index(s, strides(s, mem)[-2]))


@lowers("tile_dot")
def _tile_dot(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    if math.prod(s.units) > 1:
        raise KernelTypeError(
            f"cb.tile_dot is for cubes of one unit, not of {math.prod(s.units)}",
            hint="launch with units=1",
        )
    total, rows, a, i, b, j, words, dtype_v = unpack(
        name, args, kwargs, "sums", "rows", "a", "i", "b", "j", "words", "dtype"
    )
    dtype = dtype_of(dtype_v, "the dtype of cb.tile_dot")
    if dtype.name not in KINDS:
        raise DTypeError(
            f"cb.tile_dot does not take {dtype.name}", hint=f"it takes {', '.join(KINDS)}"
        )
    mem = sums_of(total, KINDS[dtype.name])
    most = (mem.shape or (0,))[0]
    if isinstance(rows, Const) and not 1 <= comptime_int(rows, "the rows of cb.tile_dot") <= most:
        raise KernelTypeError(
            f"cb.tile_dot takes 1 to {most} rows here, the rows of its sums, not {rows.value}"
        )
    left, left_at = operand(s, a, i, "the first operand of cb.tile_dot")
    right, right_at = operand(s, b, j, "the second operand of cb.tile_dot")
    s.read |= {left.name, right.name}
    s.written.add(mem.name)
    values = (as_index(s, rows), *left_at, *right_at, as_index(s, words))
    return emit(s, name, (mem, left, right), values, (dtype.name, COLUMNS * mem.dtype.itemsize))
