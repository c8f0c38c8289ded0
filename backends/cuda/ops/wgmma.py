"""Asynchronous matrix products of a group of four planes (`wgmma`), and the registers that they
need.

Accumulators are memory of the unit (one alloca): an instruction loads them all, ties them to its
results, and stores them back; LLVM then keeps them in registers. An operand in shared memory is
named by a descriptor: its address, the distances between its blocks of 8 rows, and how its bytes
    are swizzled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.cuda.ops.ptx import (
    VOID,
    asm,
    asm_words,
    line,
    names,
    nothing,
    pointer,
    shared_address,
    size,
    words,
)
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import I32, I64, Ptr, literal, memory_ir

SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}
"""How a descriptor's two highest bits name the bytes of a swizzle."""
BLOCK = 16
"""Bytes of a block: the lead of a swizzled tile along K."""


@dataclass(frozen=True)
class Product:
    """One instruction: depth, names of inputs and accumulator, whether operands may be
    transposed.
    """

    k: int
    inputs: str
    accumulator: str = "f32"
    flips: bool = False


PRODUCTS = {
    "f16": Product(16, "f16", flips=True),
    "bf16": Product(16, "bf16", flips=True),
    "f32": Product(8, "tf32"),
    "i8": Product(32, "s8", "s32"),
    "u8": Product(32, "u8", "s32"),
    "fp8_e4m3": Product(32, "e4m3"),
    "fp8_e5m2": Product(32, "e5m2"),
}
"""By the dtype of the inputs; f32 stands for tf32."""


def instruction(
    dtype: str, n: int, a_in_registers: bool, transpose_a: bool, transpose_b: bool
) -> str:
    """The text of one product: results and tied accumulators first, then a, b and the flag that
    keeps them.
    """
    p = PRODUCTS[dtype]
    count = n // 2
    at = 2 * count
    a, next_one = (names(at, 4), at + 4) if a_in_registers else (f"${at}", at + 1)
    scales = "" if p.accumulator == "s32" else ", 1, 1"
    if p.flips:
        scales += (
            f", {int(transpose_b)}"
            if a_in_registers
            else f", {int(transpose_a)}, {int(transpose_b)}"
        )
    kind = f"m64n{n}k{p.k}.{p.accumulator}.{p.inputs}.{p.inputs}"
    return (
        f"{{ .reg .pred keep; setp.ne.b32 keep, ${next_one + 1}, 0; "
        f"wgmma.mma_async.sync.aligned.{kind} {names(0, count)}, {a}, ${next_one}, keep{scales}; }}"
    )


def descriptor(
    b: Any, p: Ptr, base: Any, k: Any, swizzle: int, lead: int, stride: int, offset: int = 0
) -> Any:
    """The descriptor of an operand that starts at element k + offset; lead and stride are distances
    in elements.

    The address has 14 bits of it, in units of 16 bytes. In a cluster, addresses also say which cube
    they are of, above that, where the lead is: those bits must go where it is read, which it is not
    in the one block that a swizzled tile along K has.
    """
    address = b.lshr(shared_address(b, base, k, size(p)), ir.Constant(I32, 4))
    if swizzle == 0 or lead * size(p) > BLOCK:
        address = b.and_(address, ir.Constant(I32, (1 << 14) - 1))
    address = b.add(address, ir.Constant(I32, offset * size(p) >> 4))
    low = b.or_(address, ir.Constant(I32, (lead * size(p) >> 4) << 16))
    high = (stride * size(p) >> 4) | SWIZZLES[swizzle] << 30
    return b.or_(b.zext(low, I64), ir.Constant(I64, high << 32))


def _accumulators(b: Any, base: Any, first: int, count: int) -> list[Any]:
    return [b.gep(base, [ir.Constant(I64, first + k)]) for k in range(count)]


@literal_op
def wgmma(
    acc: Any,
    a: Any,
    b: Any,
    ai: Any,
    bi: Any,
    keep: Any,
    n: Any,
    dtype: Any,
    start: Any,
    transpose_a: Any,
    swizzle_a: Any,
    lead_a: Any,
    stride_a: Any,
    transpose_b: Any,
    swizzle_b: Any,
    lead_b: Any,
    stride_b: Any,
    offset_a: Any,
    offset_b: Any,
) -> Any:
    """`wgmma(acc, a, b, ai, bi, keep, ...)`: acc (plus itself if keep) += a * b, both in shared
    memory.

    After keep come literals: n, dtype, first accumulator, then transpose, swizzle, lead and stride
    of a and of b, and how many elements after ai and bi the operands start.
    """
    acc, a, b = (pointer(t) for t in (acc, a, b))
    options = (
        n,
        dtype,
        start,
        transpose_a,
        swizzle_a,
        lead_a,
        stride_a,
        transpose_b,
        swizzle_b,
        lead_b,
        stride_b,
        offset_a,
        offset_b,
    )
    o = [literal(t) for t in options]
    if None in o:
        return None

    def emit(x: Any, at: Any, pa: Any, pb: Any, i: Any, j: Any, flag: Any, *_: Any) -> None:
        operands = [
            descriptor(x, a, pa, i, o[4], o[5], o[6], o[11]),
            descriptor(x, b, pb, j, o[8], o[9], o[10], o[12]),
        ]
        _product(x, acc, at, operands, flag, instruction(o[1], o[0], False, o[3], o[7]), o[0], o[2])

    return types.void(acc, a, b, types.int64, types.int64, types.boolean, *options), emit


@literal_op
def wgmma_registers(
    acc: Any,
    b: Any,
    a: Any,
    bi: Any,
    keep: Any,
    n: Any,
    dtype: Any,
    start: Any,
    transpose_b: Any,
    swizzle_b: Any,
    lead_b: Any,
    stride_b: Any,
    offset_b: Any,
) -> Any:
    """`wgmma_registers(acc, b, a, bi, keep, ...)`: the same with a in registers, a line of
    four words.
    """
    acc, b, a = pointer(acc), pointer(b), line(a, "u32", 4)
    options = (n, dtype, start, transpose_b, swizzle_b, lead_b, stride_b, offset_b)
    o = [literal(t) for t in options]
    if None in o:
        return None

    def emit(x: Any, at: Any, pb: Any, fragment: Any, j: Any, flag: Any, *_: Any) -> None:
        operands = [*words(x, fragment, 4), descriptor(x, b, pb, j, *o[4:8])]
        _product(x, acc, at, operands, flag, instruction(o[1], o[0], True, False, o[3]), o[0], o[2])

    return types.void(acc, b, a, types.int64, types.boolean, *options), emit


def _product(
    x: Any, acc: Ptr, base: Any, operands: list[Any], keep: Any, text: str, n: int, start: int
) -> None:
    cells = _accumulators(x, base, start, n // 2)
    before = [x.load(p) for p in cells]
    args = [*operands, x.zext(keep, I32)]
    after = asm_words(x, n // 2, memory_ir(acc.dtype), text, args, memory=True, tied=before)
    for cell, value in zip(cells, after, strict=True):
        x.store(value, cell)


def _pin(x: Any, bases: list[tuple[Any, Ptr, int]]) -> None:
    """From here on accumulators count as new values: nothing that reads or writes them moves
    across.
    """
    for base, p, count in bases:
        cells = _accumulators(x, base, 0, count)
        element = memory_ir(p.dtype)
        after = asm_words(x, count, element, "", [], memory=True, tied=[x.load(at) for at in cells])
        for cell, value in zip(cells, after, strict=True):
            x.store(value, cell)


@literal_op
def wgmma_fence(*args: Any) -> Any:
    """`wgmma_fence(*accumulators, *counts)`: registers and shared memory written before are seen by
    products.
    """
    return _ordering(args, "wgmma.fence.sync.aligned;")


@literal_op
def wgmma_wait(*args: Any) -> Any:
    """`wgmma_wait(*accumulators, *counts, n)`: wait until at most n groups of products are
    under way.
    """
    if not args or literal(args[-1]) is None:
        return None
    return _ordering(args, f"wgmma.wait_group.sync.aligned {literal(args[-1])};", waits=True)


def _ordering(args: tuple[Any, ...], text: str, waits: bool = False) -> Any:
    count = len(args) // 2
    pointers, rest = [pointer(t) for t in args[:count]], args[count:]
    sizes = [literal(t) for t in rest]
    if None in sizes:
        return None

    def emit(x: Any, *values: Any) -> None:
        bases = list(zip(values[:count], pointers, sizes[:count], strict=True))
        if not waits:
            _pin(x, bases)
        asm(x, VOID, text, [], convergent=True)
        if waits:
            _pin(x, bases)

    return types.void(*pointers, *rest), emit


@op
def wgmma_commit() -> Any:
    """`wgmma_commit()`: the products since the last commit are one group."""
    return nothing("wgmma.commit_group.sync.aligned;", convergent=True)


@literal_op
def set_registers(count: Any, grow: Any) -> Any:
    """`set_registers(n, grow)`: give registers of this group of planes back, or take more."""
    n, up = literal(count), literal(grow)
    if n is None or up is None:
        return None
    text = f"setmaxnreg.{'inc' if up else 'dec'}.sync.aligned.u32 {n};"
    return types.void(count, grow), lambda b, *_: asm(b, VOID, text, [], convergent=True) and None
