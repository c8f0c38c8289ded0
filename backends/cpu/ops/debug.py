"""What kernels say while they run: reports of faults, and printing; and the call of a kernel by its address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, errors, types

from cubepy.backends.cpu.ops.convert import convert
from cubepy.backends.cpu.ops.memory import pointer
from cubepy.backends.cpu.ops.registry import literal_op, op
from cubepy.backends.cpu.ops.types import I8, I32, I64, Ptr, described, is_float, is_signed, literal

_BYTES = I8.as_pointer()


@op
def report(err: Any, site: Any, a: Any, b: Any) -> Any:
    """`report(err, site, a, b)`: the first report of a launch leaves site, a, b in err[0:3]; later ones are dropped."""
    if pointer(err) != Ptr("i64"):
        raise errors.TypingError(f"report needs a pointer to i64, not {err}")

    def emit(b: Any, at: Any, site: Any, first: Any, second: Any) -> None:
        pair = b.cmpxchg(at, ir.Constant(I64, 0), site, "seq_cst", "seq_cst")
        with b.if_then(b.extract_value(pair, 1), likely=False):
            for k, value in ((1, first), (2, second)):
                b.store(value, b.gep(at, [ir.Constant(I64, k)]), align=8)

    return types.void(err, types.int64, types.int64, types.int64), emit


@literal_op
def print_values(form: Any, *values: Any) -> Any:
    """`print_values(format, *values)`: C's printf, flushed; integers as `%lld`/`%llu`, floats as doubles."""
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
        where = b.bitcast(
            cgutils.global_constant(b, "print_format", cgutils.make_bytearray(text.encode() + b"\0")), _BYTES
        )
        printf = cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, [_BYTES], var_arg=True), "printf")
        b.call(printf, [where, *wide])
        flush = cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, [_BYTES]), "fflush")
        b.call(flush, [ir.Constant(_BYTES, None)])

    return types.void(form, *(types.unliteral(v) for v in values)), emit


@op
def call_kernel(entry: Any, first: Any, last: Any, arguments: Any) -> Any:
    """`call_kernel(entry, first, last, arguments)`: call `void(int64, int64, int64 *)` at an address."""

    def emit(b: Any, entry: Any, first: Any, last: Any, arguments: Any) -> None:
        block = I64.as_pointer()
        fn = ir.FunctionType(ir.VoidType(), [I64, I64, block]).as_pointer()
        b.call(b.inttoptr(entry, fn), [first, last, b.inttoptr(arguments, block)])

    return types.void(*[types.int64] * 4), emit
