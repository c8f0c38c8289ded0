"""Inline PTX: one instruction as an LLVM value, and addresses in shared memory.

The text of an instruction names its operands `$0, $1, ...`, results first. Instructions that a
whole plane or group of planes executes together are marked convergent, so that LLVM neither
duplicates them nor moves them under a condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.llvm.ops.types import F32, F64, I32, I64, Line, Ptr, itemsize
from cubepy.backends.llvm.ops.values import lane

VOID = ir.VoidType()
MEMORY = "~{memory}"
_LETTER = {F32: "f", F64: "d", I32: "r", I64: "l"}


def constraint(t: ir.Type) -> str:
    """The letter of the register class of a type."""
    return _LETTER.get(t, "l")


def asm(
    b: Any,
    result: ir.Type,
    text: str,
    args: Sequence[Any],
    *,
    memory: bool = True,
    convergent: bool = False,
) -> Any:
    """One instruction with a scalar result, or none; `memory`: it reads or writes memory,
    or waits.
    """
    parts = [] if isinstance(result, ir.VoidType) else [f"={constraint(result)}"]
    parts += [constraint(a.type) for a in args]
    return _call(b, result, text, parts, args, memory, convergent)


def asm_words(
    b: Any,
    results: int,
    element: ir.Type,
    text: str,
    args: Sequence[Any],
    *,
    memory: bool = False,
    convergent: bool = True,
    tied: Sequence[Any] = (),
) -> list[Any]:
    """An instruction with several results of one type; `tied` are inputs that start in the results'
    registers.
    """
    fields = ir.LiteralStructType([element] * results)
    parts = [f"={constraint(element)}"] * results
    parts += [str(k) for k in range(len(tied))] + [constraint(a.type) for a in args]
    struct = _call(b, fields, text, parts, [*tied, *args], memory, convergent)
    return [b.extract_value(struct, k) for k in range(results)]


def _call(
    b: Any,
    result: ir.Type,
    text: str,
    parts: list[str],
    args: Sequence[Any],
    memory: bool,
    convergent: bool,
) -> Any:
    kind = ir.FunctionType(result, [a.type for a in args])
    code = ir.InlineAsm(
        kind, text, ",".join([*parts, MEMORY] if memory else parts), side_effect=memory
    )
    return b.call(code, args, attrs=("convergent",) if convergent else ())


def names(first: int, count: int) -> str:
    """The operands from `first` on, in braces."""
    return "{" + ", ".join(f"${k}" for k in range(first, first + count)) + "}"


def words(b: Any, x: Any, count: int) -> list[Any]:
    """The lanes of a line as scalars."""
    return [lane(b, x, k) for k in range(count)]


def packed(b: Any, parts: Sequence[Any]) -> Any:
    """Scalars as a line."""
    out = ir.Constant(ir.VectorType(parts[0].type, len(parts)), ir.Undefined)
    for k, part in enumerate(parts):
        out = b.insert_element(out, part, ir.Constant(I32, k))
    return out


def word(b: Any, x: Any) -> Any:
    """An integer as 32 bits."""
    width = x.type.width
    return x if width == 32 else (b.trunc(x, I32) if width > 32 else b.zext(x, I32))


def shared_address(b: Any, base: Any, k: Any, bytes_each: int) -> Any:
    """The 32-bit address of element k of an array in shared memory."""
    address = b.ptrtoint(b.addrspacecast(base, base.type.pointee.as_pointer(3)), I32)
    return b.add(address, b.mul(word(b, k), ir.Constant(I32, bytes_each)))


def global_address(b: Any, base: Any, k: Any) -> Any:
    """The 64-bit address of element k of an array."""
    return b.ptrtoint(b.gep(base, [k]), I64)


def pointer(t: Any) -> Ptr:
    """The type of an argument that has to be a pointer to elements."""
    if not isinstance(t, Ptr) or t.lanes:
        raise errors.TypingError(f"{t} is not a pointer to elements")
    return t


def size(p: Ptr) -> int:
    """Bytes of an element."""
    return itemsize(p.dtype)


def line(t: Any, dtype: str, lanes: int | None = None) -> Line:
    """The type of an argument that has to be a line of a dtype."""
    if not isinstance(t, Line) or t.dtype != dtype or (lanes is not None and t.lanes != lanes):
        raise errors.TypingError(f"{t} is not a line of {lanes or 'several'} {dtype}")
    return t


def nothing(text: str, *, convergent: bool = False) -> Any:
    """The signature and emitter of an instruction without operands."""
    return types.void(), lambda b: asm(b, VOID, text, [], convergent=convergent) and None
