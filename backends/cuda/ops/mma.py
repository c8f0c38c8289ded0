"""Matrix products of a plane: `mma.sync`, and the loads and stores that bring tiles into its
fragments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.cuda.ops.ptx import (
    VOID,
    asm,
    asm_words,
    line,
    names,
    packed,
    pointer,
    shared_address,
    size,
    words,
)
from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import F32, I32, Line, literal


@dataclass(frozen=True)
class Fragment:
    """One matrix instruction: its shape, what PTX calls its inputs and its accumulator."""

    shape: str
    inputs: str
    accumulator: str = "f32"

    @property
    def carrier(self) -> str:
        """The dtype that carries the accumulator."""
        return "f32" if self.accumulator == "f32" else "i32"


FRAGMENTS = {
    "f16": Fragment("m16n8k16", "f16"),
    "bf16": Fragment("m16n8k16", "bf16"),
    "f32": Fragment("m16n8k8", "tf32"),
    "i8": Fragment("m16n8k32", "s8", "s32"),
    "u8": Fragment("m16n8k32", "u8", "s32"),
    "fp8_e4m3": Fragment("m16n8k32", "e4m3"),
    "fp8_e5m2": Fragment("m16n8k32", "e5m2"),
}
"""By the dtype of the inputs; f32 stands for tf32."""


@literal_op
def mma(a: Any, b: Any, c: Any, dtype: Any) -> Any:
    """`mma(a, b, c, dtype)`: c plus the product of the plane's fragments a (4 words) and b (2
    words).

    The dtype is that of both, or "u8.i8" and "i8.u8".
    """
    name = literal(dtype)
    if name is None:
        return None
    left, _, right = name.partition(".")
    f = FRAGMENTS[left]
    line(a, "u32", 4), line(b, "u32", 2), line(c, f.carrier, 4)
    element = F32 if f.carrier == "f32" else I32
    kind = f"{f.accumulator}.{f.inputs}.{FRAGMENTS[right or left].inputs}.{f.accumulator}"
    # The accumulators are tied to the results, so operands 4 to 7 are them.
    text = (
        f"mma.sync.aligned.{f.shape}.row.col.{kind} {names(0, 4)}, {names(8, 4)}, "
        f"{names(12, 2)}, {names(4, 4)};"
    )

    def emit(builder: Any, x: Any, y: Any, z: Any, _: Any) -> Any:
        args = [*words(builder, x, 4), *words(builder, y, 2)]
        return packed(
            builder, asm_words(builder, 4, element, text, args, tied=words(builder, z, 4))
        )

    return c(a, b, c, dtype), emit


@literal_op
def load_matrix(p: Any, i: Any, count: Any, transpose: Any) -> Any:
    """`load_matrix(p, i, count, transpose)`: `count` 8x8 tiles of 16-bit elements from shared
    memory, one word each.

    Unit k of the plane gives the place of a row: units 0 to 7 those of the first tile, 8 to 15 of
        the second...
    """
    p, n, flip = pointer(p), literal(count), literal(transpose)
    if n is None or flip is None:
        return None
    text = (
        f"ldmatrix.sync.aligned.m8n8.x{n}{'.trans' if flip else ''}.shared.b16 {names(0, n)}, "
        f"[${n}];"
    )

    def emit(b: Any, at: Any, k: Any, *_: Any) -> Any:
        address = shared_address(b, at, k, size(p))
        if n == 1:
            return packed(b, [asm(b, I32, text, [address], convergent=True)])
        return packed(b, asm_words(b, n, I32, text, [address], memory=True))

    return Line("u32", n)(p, types.int64, count, transpose), emit


@literal_op
def store_matrix(p: Any, v: Any, i: Any, transpose: Any) -> Any:
    """`store_matrix(p, v, i, transpose)`: the inverse of `load_matrix`."""
    p, flip = pointer(p), literal(transpose)
    if flip is None:
        return None
    n = line(v, "u32").lanes
    text = (
        f"stmatrix.sync.aligned.m8n8.x{n}{'.trans' if flip else ''}.shared.b16 [$0], {names(1, n)};"
    )

    def emit(b: Any, at: Any, x: Any, k: Any, _: Any) -> None:
        asm(b, VOID, text, [shared_address(b, at, k, size(p)), *words(b, x, n)], convergent=True)

    return types.void(p, v, types.int64, transpose), emit


_PER_WORD = {"f16": 2, "bf16": 2, "f32": 1, "fp8_e4m3": 4, "fp8_e5m2": 4}


@literal_op
def pack(v: Any, dtype: Any) -> Any:
    """`pack(v, dtype)`: floats as the words of a fragment, rounded to nearest; the first lane lies
    lowest.
    """
    name = literal(dtype)
    if name is None:
        return None
    per = _PER_WORD[name]
    n = line(v, "f32").lanes
    if n % per:
        raise errors.TypingError(f"{n} lanes are not whole words of {name}")

    def emit(b: Any, x: Any, _: Any) -> Any:
        parts = words(b, x, n)
        return packed(b, [_packed_word(b, parts[k : k + per], name) for k in range(0, n, per)])

    return Line("u32", n // per)(v, dtype), emit


def _packed_word(b: Any, parts: list[Any], name: str) -> Any:
    if name == "f32":  # tf32: 10 bits of mantissa, ties away from zero
        return asm(b, I32, "cvt.rna.tf32.f32 $0, $1;", parts, memory=False)
    if len(parts) == 2:
        return asm(b, I32, f"cvt.rn.{name}x2.f32 $0, $2, $1;", parts, memory=False)
    short = name.removeprefix("fp8_")
    cvt = f"cvt.rn.satfinite.{short}x2.f32"
    text = f"{{ .reg .b16 lo, hi; {cvt} lo, $2, $1; {cvt} hi, $4, $3; mov.b32 $0, {{lo, hi}}; }}"
    return asm(b, I32, text, parts, memory=False)


@literal_op
def packed_fma(x: Any, y: Any, z: Any, dtype: Any) -> Any:
    """`packed_fma(x, y, z, dtype)`: x * y + z of the pairs of f16 or bf16 that words hold,
    rounded once.
    """
    name = literal(dtype)
    if name is None:
        return None
    n = line(x, "u32").lanes
    text = f"fma.rn.{name}x2 $0, $1, $2, $3;"

    def emit(b: Any, *args: Any) -> Any:
        each = zip(*(words(b, a, n) for a in args[:3]), strict=True)
        return packed(b, [asm(b, I32, text, parts, memory=False) for parts in each])

    return Line("u32", n)(x, y, z, dtype), emit


@literal_op
def packed_max(x: Any, y: Any, dtype: Any) -> Any:
    """`packed_max(x, y, dtype)`: the larger of the pairs of f16 or bf16 that words hold; NaN if
    either is NaN.
    """
    name = literal(dtype)
    if name is None:
        return None
    text = f"max.NaN.{name}x2 $0, $1, $2;"

    def one(b: Any, *parts: Any) -> Any:
        return asm(b, I32, text, list(parts), memory=False)

    if not isinstance(x, Line):
        return types.uint32(types.uint32, types.uint32, dtype), lambda b, p, q, _: one(b, p, q)
    n = line(x, "u32").lanes

    def emit(b: Any, p: Any, q: Any, _: Any) -> Any:
        return packed(
            b, [one(b, *parts) for parts in zip(words(b, p, n), words(b, q, n), strict=True)]
        )

    return Line("u32", n)(x, y, dtype), emit


@literal_op
def unpack(v: Any, dtype: Any) -> Any:
    """`unpack(v, dtype)`: the floats that words of f16, bf16 or f32 hold."""
    name = literal(dtype)
    if name is None:
        return None
    n = line(v, "u32").lanes

    def halves(b: Any, x: Any) -> list[Any]:
        if name == "f32":
            return [b.bitcast(x, F32)]
        if name == "bf16":
            low = b.shl(x, ir.Constant(I32, 16))
            return [b.bitcast(y, F32) for y in (low, b.and_(x, ir.Constant(I32, 0xFFFF0000)))]
        text = "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $2; cvt.f32.f16 $0, lo; cvt.f32.f16 $1, hi; }"
        return asm_words(b, 2, F32, text, [x], convergent=False)

    def emit(b: Any, x: Any, _: Any) -> Any:
        return packed(b, [y for part in words(b, x, n) for y in halves(b, part)])

    return Line("f32", n * (1 if name == "f32" else 2))(v, dtype), emit
