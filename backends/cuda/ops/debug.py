"""Printing from a GPU, through the driver's vprintf."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, errors, types

from cubepy.backends.llvm.ops.numbers.convert import convert
from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import I8, I32, described, is_float, is_signed, literal

_BYTES = I8.as_pointer()


@literal_op
def print_values(form: Any, *values: Any) -> Any:
    """`print_values(format, *values)`: C's printf; integers as `%lld`/`%llu`, floats as doubles."""
    text = literal(form)
    if text is None:
        return None
    dtypes = [described(v) for v in values]
    if any(lanes for _, lanes in dtypes):
        raise errors.TypingError("print_values prints scalars; extract the lanes of a line")

    def emit(b: Any, _: Any, *args: Any) -> None:
        wide = [
            convert(b, v, d, "f64" if is_float(d) else ("i64" if is_signed(d) else "u64"))
            for v, (d, _) in zip(args, dtypes, strict=True)
        ]
        letters = cgutils.global_constant(
            b, "print_format", cgutils.make_bytearray(text.encode() + b"\0")
        )
        form = b.bitcast(letters, _BYTES)
        if wide:
            block = cgutils.alloca_once(b, ir.LiteralStructType([v.type for v in wide]))
            for k, v in enumerate(wide):
                b.store(v, b.gep(block, [I32(0), I32(k)]))
            values = b.bitcast(block, _BYTES)
        else:
            values = ir.Constant(_BYTES, None)
        fn = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(I32, [_BYTES, _BYTES]), "vprintf"
        )
        b.call(fn, [form, values])

    return types.void(form, *(types.unliteral(v) for v in values)), emit
