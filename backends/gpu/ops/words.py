"""Floats as the words of fragments, where no instruction of the vendor's does it better."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import errors

from cubepy.backends.llvm.ops.memory.elements import line
from cubepy.backends.llvm.ops.numbers.convert import decode, encode
from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import I32, Line, itemsize, literal, memory_ir


@literal_op
def pack(v: Any, dtype: Any) -> Any:
    """`pack(v, dtype)`: floats as the words of a fragment, rounded to nearest; the first lane lies
    lowest.
    """
    name = literal(dtype)
    if name is None:
        return None
    lanes = line(v).lanes
    if lanes * itemsize(name) % 4:
        raise errors.TypingError(f"{lanes} lanes are not whole words of {name}")
    words = lanes * itemsize(name) // 4

    def emit(b: Any, x: Any, _: Any) -> Any:
        return b.bitcast(encode(b, x, "f32", name), ir.VectorType(I32, words))

    return Line("u32", words)(v, dtype), emit


@literal_op
def unpack(v: Any, dtype: Any) -> Any:
    """`unpack(v, dtype)`: the floats that words of f16 or bf16 hold."""
    name = literal(dtype)
    if name is None:
        return None
    lanes = line(v).lanes * 4 // itemsize(name)

    def emit(b: Any, x: Any, _: Any) -> Any:
        return decode(b, b.bitcast(x, memory_ir(name, lanes)), name)

    return Line("f32", lanes)(v, dtype), emit
