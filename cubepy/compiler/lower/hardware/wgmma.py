"""The rules of `cb.wgmma`: shapes, dtypes, and how its operands lie in shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.ir import Expr, Mem
from cubepy.compiler.lower.hardware.operands import (
    FALSE,
    NONE,
    SWIZZLES,
    TRUE,
    ZERO,
    choice,
    element,
    emit,
    flag,
    holds,
    matrix_dtype,
    memory,
    require,
    words,
)
from cubepy.compiler.lower.operands import as_index, comptime_int
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import ArrayValue, Const, Value
from cubepy.errors import ComptimeError, DTypeError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType

ROWS = 64
"""Rows of a product: four planes of 16."""
GROUP = 8
"""Rows of a core matrix; a swizzle repeats after so many."""
BLOCK = 16
"""Bytes of a row of a core matrix."""


@dataclass(frozen=True)
class Layout:
    """How an operand lies in shared memory.

    Attributes:
        transpose: rows of memory run along the operand's own axis instead of the depth.
        swizzle: bytes of a row of memory, whose 16-byte blocks are permuted; 0: not permuted.
        lead, stride: distances in elements, between blocks beside each other and groups of 8 rows.
    """

    transpose: bool
    swizzle: int
    lead: int
    stride: int


def layout(
    dtype: DType, width: int, transpose: bool, swizzle: int, lead: int, stride: int, what: str
) -> Layout:
    """A layout with its distances filled in.

    Args:
        width: elements of the operand along its own axis.
        lead, stride: 0 for what a dense tile has.

    Raises:
        KernelTypeError: a distance that has to be given is not, or is no multiple of 16 bytes.
        DTypeError: a transposed operand that is not 16 bits wide.
    """
    size = dtype.itemsize
    if transpose and dtype.name not in ("f16", "bf16"):
        raise DTypeError(
            f"{what} of {dtype.name} cannot be transposed", hint="store it with the depth innermost"
        )
    if swizzle == 0 and not (lead and stride):
        raise KernelTypeError(
            f"{what} is not swizzled, so its lead and stride must be given",
            hint="lead: elements between 16-byte blocks side by side; stride: between groups of "
            "8 rows",
        )
    if transpose and not lead and width * size > swizzle:
        raise KernelTypeError(
            f"{what} is transposed and {width * size} bytes wide, in tiles of {swizzle} "
            "bytes: its lead must be given",
            hint="lead: elements from one tile to the next",
        )
    lead = lead or BLOCK // size
    stride = stride or GROUP * swizzle // size
    for n in (lead, stride):
        if n * size % BLOCK or not 0 < n * size < 1 << 18:
            raise KernelTypeError(
                f"a distance of {n * size} bytes in {what} is no multiple of {BLOCK} below 256 KiB"
            )
    return Layout(transpose, swizzle, lead, stride)


def columns(s: Scope, value: Value, dtype: DType) -> int:
    """The columns of a product: multiples of 8 up to 256; of 16 beyond 24 for 8-bit integers."""
    n = choice(s, value, tuple(range(8, 257, 8)), "the n of cb.wgmma")
    if dtype.is_int and n > 24 and n % 16:
        raise KernelTypeError(
            f"the n of cb.wgmma with {dtype.name} must be a multiple of 16 beyond 24, not {n}"
        )
    return n


def accumulator(value: Value, dtype: DType, what: str) -> Mem:
    """Local memory that holds accumulators."""
    mem = memory(value, ("local",), what)
    wanted = dt.i32 if dtype.is_int else dt.f32
    if mem.dtype is not wanted:
        raise DTypeError(f"{what} must hold {wanted.name}, not {mem.dtype.name}")
    return mem


def operand(s: Scope, value: Value, where: Value, dtype: DType, what: str) -> tuple[Mem, Expr]:
    """Shared memory and the element where an operand starts."""
    mem = memory(value, ("shared",), what)
    if not holds(mem, dtype):
        raise DTypeError(f"{what} must hold {dtype.name}, not {mem.dtype.name}")
    s.read.add(mem.name)
    return mem, element(s, mem, where, what)


def split(e: Expr) -> tuple[Expr | None, int]:
    """An index as a part that varies and a comptime rest, which costs nothing in a descriptor."""
    if e.op == "const":
        return None, int(e.attr)  # type: ignore[call-overload]
    if e.op != "add":
        return e, 0
    (a, x), (b, y) = (split(part) for part in e.args)
    if a is None or b is None:
        return (b if a is None else a), x + y
    return Expr("add", e.type, (a, b)), x + y


def base_and_offset(s: Scope, at: Expr, dtype: DType) -> tuple[Expr, int]:
    """Where an operand starts: an element, and a comptime distance in whole blocks of 16 bytes
    beyond it.
    """
    varies, rest = split(at)
    if rest * dtype.itemsize % BLOCK or rest < 0:
        return at, 0
    return (as_index(s, ZERO) if varies is None else varies), rest


@lowers("wgmma")
def _wgmma(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    acc_v, a, ai, b, bi, n_v, dtype_v, keep, flip_a, flip_b, both, one, two, start_v, *distances = (
        unpack(
            name,
            args,
            kwargs,
            "acc",
            "a",
            "ai",
            "b",
            "bi",
            "n",
            "dtype",
            accumulate=TRUE,
            transpose_a=FALSE,
            transpose_b=FALSE,
            swizzle=Const(128),
            swizzle_a=NONE,
            swizzle_b=NONE,
            start=ZERO,
            a_lead=ZERO,
            a_stride=ZERO,
            b_lead=ZERO,
            b_stride=ZERO,
        )
    )
    dtype = matrix_dtype(s, dtype_v, name)
    n = columns(s, n_v, dtype)
    acc = accumulator(acc_v, dtype, "the accumulator of cb.wgmma")
    start = comptime_int(start_v, "the start of cb.wgmma")
    have = math.prod(acc.shape or ())
    if start < 0 or start + n // 2 > have:
        raise KernelTypeError(
            f"{n} columns need {n // 2} accumulators from {start} on, but there are {have}"
        )
    swizzles = [
        choice(s, both if own == NONE else own, SWIZZLES, "the swizzle of cb.wgmma")
        for own in (one, two)
    ]
    a_lead, a_stride, b_lead, b_stride = (
        comptime_int(d, "a distance of cb.wgmma") for d in distances
    )
    flag_keep = convert.to(convert.condition(keep), dt.bool_)
    b_mem, b_at = operand(s, b, bi, dtype, "the operand b of cb.wgmma")
    lay_b = layout(
        dtype,
        n,
        flag(flip_b, "transpose_b"),
        swizzles[1],
        b_lead,
        b_stride,
        "the operand b of cb.wgmma",
    )
    of_b = (lay_b.transpose, lay_b.swizzle, lay_b.lead, lay_b.stride)
    b_at, b_offset = base_and_offset(s, b_at, dtype)
    if isinstance(a, ArrayValue):
        a_mem, a_at = operand(s, a, ai, dtype, "the operand a of cb.wgmma")
        lay_a = layout(
            dtype,
            ROWS,
            flag(flip_a, "transpose_a"),
            swizzles[0],
            a_lead,
            a_stride,
            "the operand a of cb.wgmma",
        )
        of_a = (lay_a.transpose, lay_a.swizzle, lay_a.lead, lay_a.stride)
        a_at, a_offset = base_and_offset(s, a_at, dtype)
        options: tuple[Any, ...] = (n, dtype.name, start, *of_a, *of_b, a_offset, b_offset)
        return emit(s, name, (acc, a_mem, b_mem), (a_at, b_at, flag_keep), options)
    if flag(flip_a, "transpose_a"):
        raise KernelTypeError("the operand a of cb.wgmma is in registers and cannot be transposed")
    fragment = words(s, a, (4,), "the operand a of cb.wgmma")
    options = (n, dtype.name, start, *of_b, b_offset)
    return emit(s, "wgmma_registers", (acc, b_mem), (fragment, b_at, flag_keep), options)


@lowers("wgmma_fence", "wgmma_wait")
def _wgmma_order(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    if kwargs:
        raise KernelTypeError(f"cb.{name} takes its arguments by place")
    attrs: tuple[Any, ...] = ()
    if name == "wgmma_wait":
        if not args or not isinstance(args[0], Const):
            raise ComptimeError("cb.wgmma_wait needs a comptime number of groups first")
        attrs = (choice(s, args[0], range(8), "the groups of cb.wgmma_wait"),)
        args = args[1:]
    accs = tuple(memory(v, ("local",), f"an accumulator of cb.{name}") for v in args)
    return emit(s, name, accs, (), (*(math.prod(m.shape or ()) for m in accs), *attrs))
