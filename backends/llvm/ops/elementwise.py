"""Making ops that work on a scalar or on every lane of a line, from one emitter for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import errors, types

from cubepy.backends.llvm.ops.registry import Op
from cubepy.backends.llvm.ops.types import I32, described, is_float, is_int, value_type
from cubepy.backends.llvm.ops.values import lane, on_amd_of_old

Emitter = Callable[..., Any]
"""`emitter(builder, dtype, *values)` -> value."""

KINDS: dict[str, Callable[[str], bool]] = {
    "float": is_float,
    "int": is_int,
    "number": lambda d: d != "bool_",
    "integral": lambda d: not is_float(d),
    "any": lambda d: True,
}


def same(name: str, args: tuple[Any, ...]) -> tuple[str, int, Any]:
    """Dtype, lanes and numba type of arguments that have to be of one type."""
    dtype, lanes = described(args[0])
    t = value_type(dtype, lanes)
    for other in args[1:]:
        if other is not t and described(other) != (dtype, lanes):
            raise errors.TypingError(
                f"{name} needs operands of one type, not {', '.join(map(str, args))}"
            )
    return dtype, lanes, t


def elementwise(
    name: str,
    arity: int,
    emitter: Emitter,
    kind: str = "number",
    to_bool: bool = False,
    doc: str = "",
) -> Op:
    """An op on `arity` operands of one type.

    Args:
        name: of the op.
        arity: number of operands.
        emitter: builds the code, for scalars and vectors alike.
        kind: which dtypes it takes: a key of `KINDS`.
        to_bool: whether it gives a boolean or mask instead of its operands' type.
        doc: the op's docstring.
    """

    def define(*args: Any) -> Any:
        if len(args) != arity:
            raise errors.TypingError(f"{name} takes {arity} operands, not {len(args)}")
        dtype, lanes, t = same(name, args)
        if not KINDS[kind](dtype):
            raise errors.TypingError(f"{name} is not defined for {dtype}")
        result = value_type("bool_", lanes) if to_bool else t

        def emit(b: Any, *values: Any) -> Any:
            if lanes == 1 and on_amd_of_old(b):  # high halves of products end the process
                one = emitter(b, dtype, *(lane(b, v, 0) for v in values))
                undefined = ir.Constant(ir.VectorType(one.type, 1), ir.Undefined)
                return b.insert_element(undefined, one, I32(0))
            return emitter(b, dtype, *values)

        return result(*(types.unliteral(a) for a in args)), emit

    define.__doc__ = doc
    return Op(name, define, pure=True)
