"""Printing from a GPU, through the driver's vprintf."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from cubepy.backends.llvm.ops.debug import BYTES, printing
from cubepy.backends.llvm.ops.registry import literal_op
from cubepy.backends.llvm.ops.types import I32


@literal_op
def print_values(form: Any, *values: Any) -> Any:
    """`print_values(format, *values)`: C's printf; integers as `%lld`/`%llu`, floats as doubles."""

    def call(b: Any, letters: Any, wide: list[Any]) -> None:
        if wide:
            block = cgutils.alloca_once(b, ir.LiteralStructType([v.type for v in wide]))
            for k, v in enumerate(wide):
                b.store(v, b.gep(block, [I32(0), I32(k)]))
            values = b.bitcast(block, BYTES)
        else:
            values = ir.Constant(BYTES, None)
        fn = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(I32, [BYTES, BYTES]), "vprintf"
        )
        b.call(fn, [letters, values])

    return printing(form, values, call)
