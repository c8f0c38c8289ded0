"""What kernels say while they run: reports of faults, and printing; and the call of a kernel by its
address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, errors, types

from cubepy.backends.llvm.ops.memory.elements import element_type, load_at, pointer
from cubepy.backends.llvm.ops.numbers.convert import convert
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import (
    I8,
    I32,
    I64,
    Ptr,
    described,
    is_float,
    is_signed,
    literal,
)

BYTES = I8.as_pointer()


@op
def report(err: Any, site: Any, a: Any, b: Any) -> Any:
    """`report(err, site, a, b)`: the first report of a launch leaves site, a, b in err[0:3]; later
    ones are dropped.
    """
    if pointer(err) != Ptr("i64"):
        raise errors.TypingError(f"report needs a pointer to i64, not {err}")

    return types.void(err, types.int64, types.int64, types.int64), _report


def _report(b: Any, at: Any, site: Any, first: Any, second: Any) -> None:
    pair = b.cmpxchg(at, ir.Constant(I64, 0), site, "seq_cst", "seq_cst")
    with b.if_then(b.extract_value(pair, 1), likely=False):
        for k, value in ((1, first), (2, second)):
            b.store(value, b.gep(at, [ir.Constant(I64, k)]), align=8)


@op
def load_or_report(p: Any, i: Any, ok: Any, err: Any, site: Any, index: Any, length: Any) -> Any:
    """`load_or_report(p, i, ok, err, site, index, length)`: p[i] if ok, else 0 and a report."""
    p = pointer(p)
    result = element_type(p)

    def emit(b: Any, at: Any, k: Any, ok: Any, err: Any, site: Any, index: Any, length: Any) -> Any:
        with b.if_else(ok, likely=True) as (inside, outside):
            with inside:
                value = load_at(b, p, b.gep(at, [k]))
                from_inside = b.block
            with outside:
                _report(b, err, site, index, length)
                from_outside = b.block
        out = b.phi(value.type)
        out.add_incoming(value, from_inside)
        out.add_incoming(ir.Constant(value.type, None), from_outside)
        return out

    i64 = types.int64
    return result(p, i64, types.boolean, err, i64, i64, i64), emit


@op
def check_line(err: Any, site: Any, room: Any, index: Any, length: Any) -> Any:
    """`check_line(err, site, room, index, length)`: report a line that starts outside; it may hang
    over the end.
    """

    def emit(b: Any, err: Any, site: Any, room: Any, index: Any, length: Any) -> None:
        with b.if_then(b.icmp_signed("<=", room, ir.Constant(I64, 0)), likely=False):
            _report(b, err, site, index, length)

    return types.void(err, *[types.int64] * 4), emit


def printing(form: Any, values: tuple[Any, ...], call: Callable[..., None]) -> Any:
    """The signature and code of `print_values(format, *values)`; `call(b, letters, wide)` makes the
    call, with a pointer to the format and with the values as f64, i64 or u64.
    """
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
        call(b, b.bitcast(letters, BYTES), wide)

    return types.void(form, *(types.unliteral(v) for v in values)), emit


@literal_op
def print_values(form: Any, *values: Any) -> Any:
    """`print_values(format, *values)`: C's printf, flushed; integers as `%lld`/`%llu`, floats as
    doubles.
    """

    def call(b: Any, letters: Any, wide: list[Any]) -> None:
        printf = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(I32, [BYTES], var_arg=True), "printf"
        )
        b.call(printf, [letters, *wide])
        flush = cgutils.get_or_insert_function(b.module, ir.FunctionType(I32, [BYTES]), "fflush")
        b.call(flush, [ir.Constant(BYTES, None)])

    return printing(form, values, call)


@op
def call_kernel(entry: Any, first: Any, last: Any, arguments: Any) -> Any:
    """`call_kernel(entry, first, last, arguments)`: call `void(int64, int64, int64 *)` at an
    address.
    """

    def emit(b: Any, entry: Any, first: Any, last: Any, arguments: Any) -> None:
        block = I64.as_pointer()
        fn = ir.FunctionType(ir.VoidType(), [I64, I64, block]).as_pointer()
        b.call(b.inttoptr(entry, fn), [first, last, b.inttoptr(arguments, block)])

    return types.void(*[types.int64] * 4), emit
